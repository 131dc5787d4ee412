#pragma once
// A LibTorchProgram is a compiled schedule. For each occurrence, it has the operator, its arguments
// without the tensors, the slots of operands and results, and the slots to free afterwards.
//
//   schedule    conv            relu_           conv (again)
//   run         s2 = conv(s0)   s3 = relu_(s2)  s4 = conv(s0)
//   free after                  s2, s3 … when the rule says that their storage dies
//
// It runs below autograd and calls the same kernels as eager: same bits. Guards compare every
// data-dependent value (.item(), a shape that data decides) with the captured one. If a value
// differs, run() restores everything that the step has changed, and reports the difference.

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <reprise/base/error.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/libtorch/device/block_donation.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/record/call_again.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/record/gradient_sums.hpp>
#include <reprise/libtorch/replay/observer.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>
#include <reprise/libtorch/replay/step_snapshot.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>
#include <reprise/rewrite/lint.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::replaying {

/// Arguments of a run: the tensors for the graph's persistent values.
struct Bindings {
  std::span<const NamedTensor> parameters{};
  std::span<const NamedTensor> buffers{};
  std::span<const at::Tensor> inputs{};
  std::span<const NamedTensor> leaves{};
};

struct RunOutcome {
  bool completed = false;
  /// if not completed: the node at which the step diverged from the graph
  std::string difference{};
  std::vector<at::Tensor> results{};    ///< the loss function's results
  std::vector<at::Tensor> gradients{};  ///< in the order of CapturedStep::gradient_of()
  std::size_t workspace_changes = 0;    ///< nodes whose workspace changed; the new one is now known
};

class LibTorchProgram {
 public:
  /// Throws Errc::bad_schedule if the schedule breaks a rule. The captured step must outlive the
  /// program.
  LibTorchProgram(CapturedStep& step, std::span<const NodeId> schedule)
      : LibTorchProgram(step, checked_rewriting(step.graph(), schedule)) {}

  /// For a rewriting that lint() has accepted: LibTorchBackend calls this constructor.
  LibTorchProgram(CapturedStep& step, const Rewriting& rewriting)
      : step_(&step), schedule_(schedule_of(rewriting)), peak_(rewriting.peak) {
    slots_.resize(rewriting.slots.size());
    bind_.assign(step.graph().value_count(), no_index);
    for (SlotId s : rewriting.at_start) bind_[rewriting.slots[s.index].value.index] = s.index;
    make_scalars();
    for (const ProgramStep& program_step : rewriting.steps)
      add_instruction(rewriting, program_step);
    for (SlotId s : rewriting.outputs) result_slots_.push_back(s.index);
    protect_before_guards();
  }

  /// Peak above the persistent values. The predicted peak is this number plus the allocator's live
  /// bytes at the start.
  [[nodiscard]] Bytes peak_above_base() const { return peak_ - step_->graph().persistent_bytes(); }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] const CapturedStep& step() const { return *step_; }

  /// Tensors that a run writes in place, each once: buffers, existing gradients, inputs.
  [[nodiscard]] std::vector<at::Tensor> written(const Bindings& bindings) {
    const SlotsCleared cleared{slots_};
    RunOutcome outcome;
    std::vector<at::Tensor> tensors;
    if (!bind(bindings, outcome)) return tensors;
    std::vector<bool> listed(bind_.size(), false);
    for (const Instruction& instruction : instructions_) {
      for (ValueId v : instruction.call->updates) {
        if (listed[v.index] || bind_[v.index] == no_index || !slots_[bind_[v.index]].defined())
          continue;
        listed[v.index] = true;
        tensors.push_back(slots_[bind_[v.index]]);
      }
    }
    return tensors;
  }

  /// `memory` provides the blocks: an ArenaMemory that was started with this program's layout, or
  /// AllocatorMemory.
  template <class Looker = NullObserver, class Memory = AllocatorMemory>
  RunOutcome run(const Bindings& bindings, Looker&& observer = {}, Memory&& memory = {}) {
    static_assert(is_observer<std::remove_cvref_t<Looker>>() &&
                  is_step_memory<std::remove_cvref_t<Memory>>());
    const c10::impl::ExcludeDispatchKeyGuard below_autograd(DispatchHook::above());
    const SlotsCleared cleared{slots_};
    RunOutcome outcome;
    if (!bind(bindings, outcome)) return outcome;
    const std::optional<StepSnapshot> before_guards = save();
    std::vector<c10::IValue> stack;
    const StepBytes own(device_memory().serial());
    ByteCounter& bytes = bytes_of_step();
    for (std::size_t i = 0; i < instructions_.size(); ++i) {
      const Instruction& instruction = instructions_[i];
      observer.before(i, schedule_[i], [&] { return arguments_of(instruction); });
      bytes.open_window();
      const Bytes before = bytes.existing();
      const bool as_known = [&] {
        const InMemory<Memory> scope(memory, i);
        return execute(instruction, stack, outcome);
      }();
      if (!as_known) {
        if (before_guards) before_guards->restore();
        return outcome;
      }
      check_workspace(instruction, bytes.window_peak() - before, outcome);
      observer.after(i, schedule_[i], [&] { return results_of(instruction); });
      stack.clear();
      for (std::uint32_t slot : instruction.frees) slots_[slot].reset();
    }
    hand_over(outcome);
    memory.hand_over(outcome.gradients);
    return outcome;
  }

 private:
  struct Fill {
    std::uint32_t arg;
    std::int32_t element;
    std::uint32_t slot;
  };
  struct Store {
    ResultSlot::From from;
    std::uint32_t index;
    std::int32_t element;
    std::uint32_t slot;
    std::uint32_t source;  // From::argument: the slot that was passed
  };
  struct Instruction {
    NodeId node{};
    const Call* call = nullptr;
    bool again = false;  // a recomputation: without side effects
    bool draws_again = false;
    bool saves_generator = false;
    std::vector<Fill> fills{};
    std::vector<Store> stores{};
    std::vector<std::uint32_t> frees{};
    Bytes made{};                   // bytes of the storages that it allocates
    std::uint32_t over = no_index;  // the slot of the operand that its result overwrites
  };
  /// The scope of one op's allocations; also if the op throws.
  template <class Memory>
  struct InMemory {
    Memory& memory;
    InMemory(Memory& where, std::size_t step) : memory(where) { memory.begin(step); }
    ~InMemory() { memory.end(); }
    InMemory(const InMemory&) = delete;
    InMemory& operator=(const InMemory&) = delete;
  };
  struct SlotsCleared {
    std::vector<at::Tensor>& slots;
    ~SlotsCleared() {
      for (at::Tensor& slot : slots) slot.reset();
    }
  };

  [[nodiscard]] const Recording& recording() const { return step_->recording(); }

  [[nodiscard]] std::vector<at::Tensor> arguments_of(const Instruction& instruction) const {
    std::vector<at::Tensor> tensors;
    for (const Fill& fill : instruction.fills) tensors.push_back(slots_[fill.slot]);
    return tensors;
  }
  [[nodiscard]] std::vector<at::Tensor> results_of(const Instruction& instruction) const {
    std::vector<at::Tensor> tensors;
    for (const Store& store : instruction.stores) tensors.push_back(slots_[store.slot]);
    return tensors;
  }

  // ── compiling ──────────────────────────────────────────────────────────────────────────────────

  void make_scalars() {
    scalars_.resize(recording().values.size());
    for (std::size_t i = 0; i < recording().values.size(); ++i) {
      const RecordedValue& value = recording().values[i];
      if (value.origin != Origin::scalar) continue;
      scalars_[i] = tensor_of_number(value);
    }
  }

  void add_instruction(const Rewriting& rewriting, const ProgramStep& step) {
    Instruction instruction;
    instruction.node = step.node;
    instruction.call = &recording().calls[step.node.index];
    instruction.again = step.clone > 0;
    const bool random = instruction.call->kind == CallKind::op && instruction.call->facts->random;
    instruction.draws_again = random && step.effects == Effects::leave_out;
    instruction.saves_generator = random && step.effects == Effects::note_and_perform;
    for (const ArgumentSlot& read : instruction.call->reads)
      if (read.value.valid() && !is_statistic(instruction, read))
        instruction.fills.push_back({read.arg, read.element, slot_read(step, read.value)});
    add_stores(step, instruction);
    for (AllocationId a : step.allocates) instruction.made += rewriting.allocations[a.index].bytes;
    for (SlotId s : step.drops) instruction.frees.push_back(s.index);
    instructions_.push_back(std::move(instruction));
  }

  // A recomputed batch norm must not change the model's statistics again: it runs without them. If
  // the step itself made the statistics, they are written like any other argument.
  bool is_statistic(const Instruction& instruction, const ArgumentSlot& read) const {
    return instruction.again && is_running_stat(*instruction.call, read) &&
           recording().values[recording().owner_of(read.value).index].persistent;
  }

  std::uint32_t slot_read(const ProgramStep& step, ValueId v) const {
    if (bind_[v.index] != no_index) return bind_[v.index];
    const auto inputs = step_->graph().inputs(step.node);
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (inputs[k] == v) return step.reads[k].index;
    throw Error(Errc::bad_graph, "node " + std::to_string(step.node.index) + " reads value " +
                                     std::to_string(v.index) + ", which is not among its inputs");
  }

  void add_stores(const ProgramStep& step, Instruction& instruction) const {
    const auto& results = instruction.call->results;
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (const ValueId summand =
              overwritten_summand(step_->graph(), recording(), results[k].value);
          summand.valid())
        instruction.over = slot_read(step, summand);
      Store store{results[k].from, results[k].index, results[k].element, step.writes[k].index,
                  no_index};
      if (store.from == ResultSlot::From::argument)
        for (const Fill& fill : instruction.fills)
          if (fill.arg == store.index && fill.element == store.element) store.source = fill.slot;
      instruction.stores.push_back(store);
    }
  }

  // Everything that is written before the last guard must be restored if that guard fails.
  void protect_before_guards() {
    std::size_t last = 0;
    for (std::size_t i = 0; i < instructions_.size(); ++i)
      if (decides_by_data(*instructions_[i].call)) last = i + 1;
    for (std::size_t i = 0; i < last; ++i) {
      for (ValueId v : instructions_[i].call->updates) {
        if (recording().values[v.index].origin == Origin::generator) protects_generator_ = true;
        else if (std::ranges::find(protected_, v) == protected_.end()) protected_.push_back(v);
      }
    }
  }

  // An op of another library may have data-dependent shapes without declaring that.
  static bool decides_by_data(const Call& call) {
    return call.kind == CallKind::op &&
           (call.facts->returns_host_value || call.facts->dynamic_shape ||
            !call.facts->name.starts_with("aten::"));
  }

  // ── running ────────────────────────────────────────────────────────────────────────────────────

  bool bind(const Bindings& bindings, RunOutcome& outcome) {
    for (std::size_t i = 0; i < bind_.size(); ++i) {
      if (bind_[i] == no_index) continue;
      at::Tensor& slot = slots_[bind_[i]];
      const RecordedValue& value = recording().values[i];
      switch (value.origin) {
        case Origin::parameter: slot = bindings.parameters[value.origin_index].tensor; break;
        case Origin::buffer: slot = bindings.buffers[value.origin_index].tensor; break;
        case Origin::input: slot = bindings.inputs[value.origin_index]; break;
        case Origin::gradient: slot = bindings.leaves[value.origin_index].tensor.grad(); break;
        case Origin::scalar: slot = scalars_[i]; break;
        case Origin::captured: slot = captured(value); break;
        case Origin::generator: continue;
        case Origin::step: continue;
      }
      if (slot.defined()) continue;
      outcome.difference =
          "'" + value.name() + "', which the step read when it was recorded, no longer exists";
      return false;
    }
    return true;
  }

  static at::Tensor captured(const RecordedValue& value) {
    const auto storage = value.outside->captured->lock();
    if (!storage) return {};
    const at::Tensor like = at::from_blob(
        nullptr, {0}, at::TensorOptions().dtype(value.geometry->dtype).device(storage->device()));
    return tensor_over(c10::Storage(storage), *value.geometry, like);
  }

  bool execute(const Instruction& instruction, std::vector<c10::IValue>& stack,
               RunOutcome& outcome) {
    const Call& call = *instruction.call;
    if (call.kind == CallKind::alias) return make_alias(instruction), true;
    if (call.kind == CallKind::constant) return write_constant(instruction), true;
    stack.assign(call.args.begin(), call.args.end());
    fill_arguments(stack, instruction.fills, [&](std::size_t k) -> const at::Tensor& {
      return slots_[instruction.fills[k].slot];
    });
    if (instruction.saves_generator)
      generator_states_[instruction.node.index] = GeneratorState::now();
    std::optional<GeneratorState> now;
    if (instruction.draws_again) {
      now = GeneratorState::now();
      generator_states_.at(instruction.node.index).restore();
    }
    if (call.facts->about_shapes_only && call.results.empty() && call.updates.empty()) return true;
    run_op(instruction, stack);
    if (now) now->restore();
    if (!instruction.again)
      for (ValueId v : call.updates) bump(v);
    if (call.facts->returns_host_value && !same_host_value(instruction, stack, outcome))
      return false;
    for (const Store& store : instruction.stores) {
      at::Tensor& slot = slots_[store.slot];
      if (store.from == ResultSlot::From::argument) slot = slots_[store.source];
      else if (store.element < 0) slot = std::move(stack[store.index]).toTensor();
      else
        slot = stack[store.index].toListRef()[static_cast<std::size_t>(store.element)].toTensor();
    }
    return same_shapes(instruction, outcome);
  }

  // The operand that the result may overwrite is not read afterwards, overwritten or not.
  void run_op(const Instruction& instruction, std::vector<c10::IValue>& stack) {
    const Call& call = *instruction.call;
    if (instruction.over == no_index) return call.op->redispatchBoxed(call.keys, &stack);
    const c10::Storage operand = slots_[instruction.over].storage();
    c10::DataPtr& pointer = operand.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
    if (ThisDevice::owns(pointer)) {
      BlockDonation takeover(operand);
      call.op->redispatchBoxed(call.keys, &stack);
      if (takeover.taken_by(stack.back().toTensor()))
        return takeover.leave(std::exchange(pointer, c10::DataPtr{}));
    } else {
      call.op->redispatchBoxed(call.keys, &stack);
    }
    pointer.clear();
  }

  void make_alias(const Instruction& instruction) {
    const at::Tensor& source = slots_[instruction.fills.front().slot];
    const Store& store = instruction.stores.front();
    Geometry geometry = *recording().values[instruction.call->results.front().value.index].geometry;
    const Geometry& recorded =
        *recording().values[instruction.call->reads.front().value.index].geometry;
    geometry.offset +=
        moved_by(source, recorded) / static_cast<std::int64_t>(c10::elementSize(geometry.dtype));
    slots_[store.slot] = tensor_over(source.storage(), geometry, source);
  }

  // Difference between an argument's offset now and at the capture, in bytes: a program may get one
  // batch after the other of one large tensor.
  static std::int64_t moved_by(const at::Tensor& now, const Geometry& recorded) {
    return (now.storage_offset() - recorded.offset) * static_cast<std::int64_t>(now.element_size());
  }

  void write_constant(const Instruction& instruction) {
    const at::Tensor& target = slots_[instruction.fills.front().slot];
    std::memcpy(target.storage().mutable_data(), instruction.call->extras->constant.data(),
                instruction.call->extras->constant.size());
    slots_[instruction.stores.front().slot] = target;
  }

  // Below autograd, writes do not change a tensor's version. A tensor that outlives the step needs
  // it.
  void bump(ValueId v) {
    const std::uint32_t slot = bind_[v.index];
    if (slot != no_index && slots_[slot].defined())
      slots_[slot].unsafeGetTensorImpl()->bump_version();
  }

  bool same_host_value(const Instruction& instruction, const std::vector<c10::IValue>& stack,
                       RunOutcome& outcome) const {
    const Call& call = *instruction.call;
    for (const HostResult& known : call.extras->returned) {
      if (identical(known.value, stack[known.index])) continue;
      outcome.difference = "node " + std::to_string(instruction.node.index) + " (" +
                           Recording::label(call) + ") gave the host " +
                           attribute_of(stack[known.index]) + ", not " + attribute_of(known.value);
      return false;
    }
    return true;
  }

  // Bit for bit: a NaN equals itself, and 0.0 is not -0.0.
  static bool identical(const c10::IValue& a, const c10::IValue& b) {
    if (a.isDouble() && b.isDouble()) {
      const double x = a.toDouble(), y = b.toDouble();
      return std::memcmp(&x, &y, sizeof x) == 0;
    }
    return a.tagKind() == b.tagKind() && attribute_of(a) == attribute_of(b);
  }

  bool same_shapes(const Instruction& instruction, RunOutcome& outcome) const {
    for (std::size_t k = 0; k < instruction.stores.size(); ++k) {
      const Geometry& known =
          *recording().values[instruction.call->results[k].value.index].geometry;
      const at::Tensor& made = slots_[instruction.stores[k].slot];
      if (made.sizes() == at::IntArrayRef(known.sizes)) continue;
      outcome.difference = "node " + std::to_string(instruction.node.index) + " (" +
                           Recording::label(*instruction.call) + ") made a tensor of shape " +
                           c10::str(made.sizes()) + ", not " +
                           c10::str(at::IntArrayRef(known.sizes));
      // No snapshot was taken before this op, so nothing can be restored. An error is better than a
      // result that draws or counts twice.
      if (!decides_by_data(*instruction.call))
        throw Error(Errc::capture_failed,
                    outcome.difference +
                        ", although nothing lets its shape vary; please report this, with the op");
      return false;
    }
    return true;
  }

  void check_workspace(const Instruction& instruction, Bytes taken, RunOutcome& outcome) {
    const Bytes used = taken - instruction.made;
    const Bytes workspace = used > Bytes{0} ? used : Bytes{0};
    if (workspace == step_->graph().node(instruction.node).workspace) return;
    step_->graph().set_workspace(instruction.node, workspace);
    ++outcome.workspace_changes;
  }

  void hand_over(RunOutcome& outcome) {
    outcome.completed = true;
    const std::size_t results = step_->result_count();
    for (std::size_t k = 0; k < result_slots_.size(); ++k) {
      at::Tensor& slot = slots_[result_slots_[k]];
      // detached, because it may be a tensor of the model's own
      if (k < results) outcome.results.push_back(slot.tensor_data());
      else if (k < results + step_->gradient_of().size()) outcome.gradients.push_back(slot);
    }
    if (outcome.workspace_changes > 0) peak_ = simulate(step_->graph(), schedule_).peak;
  }

  // Copies what the step writes before its last guard.
  [[nodiscard]] std::optional<StepSnapshot> save() const {
    if (protected_.empty() && !protects_generator_) return std::nullopt;
    std::vector<at::Tensor> tensors;
    for (ValueId v : protected_) tensors.push_back(slots_[bind_[v.index]]);
    return StepSnapshot(std::move(tensors));
  }

  CapturedStep* step_;
  Schedule schedule_;
  Bytes peak_{};
  std::vector<Instruction> instructions_;
  std::vector<at::Tensor> slots_;    // by value instance
  std::vector<std::uint32_t> bind_;  // by value: the slot of a persistent value
  std::vector<at::Tensor> scalars_;  // by value: for Origin::scalar
  std::vector<std::uint32_t> result_slots_;
  std::vector<ValueId> protected_;
  bool protects_generator_ = false;
  std::unordered_map<std::uint32_t, GeneratorState> generator_states_;
};

}  // namespace reprise::replaying

namespace reprise {
using replaying::LibTorchProgram;
using replaying::RunOutcome;
}  // namespace reprise
