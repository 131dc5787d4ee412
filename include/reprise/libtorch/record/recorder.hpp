#pragma once
// A Recorder sees every op that LibTorch runs below autograd on this thread while it is in scope:
// forward, backward, optimizer.
//
//   Recorder recorder;
//   recorder.know(x, Origin::input, 0, Role::input, "x");
//   loss = model->forward(x).sum();
//   loss.backward();
//   Recording recording = recorder.finish();
//
// For each op (see dispatch_hook.hpp) the recorder asks which values it reads, lets it run, and
// notes what it wrote and made:
//
//   read(tensor) ──▶ known storage, version and geometry?  that value
//                    known storage, another geometry?      a view that was made before a write: an alias call says so
//                    unknown storage?                      a tensor from before the step, a wrapped number, or something
//                                                          made behind the dispatcher (then the step cannot be run again)
//
// Tensors and storages are never held beyond an op.

#include <chrono>
#include <cstring>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>

#include <reprise/base/error.hpp>
#include <reprise/base/flat_index.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/op_timer.hpp>
#include <reprise/libtorch/record/recorded_numbers.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/record/scope.hpp>
#include <reprise/libtorch/torch/dispatch_hook.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>
#include <reprise/libtorch/torch/kept_lists.hpp>
#include <reprise/libtorch/torch/storage_table.hpp>

namespace reprise {

/// What later stages do around each op.
struct RecorderHooks {
  virtual ~RecorderHooks() = default;
  /// The op has not run; `arguments` are its own. Anything that it reads may be brought back here.
  virtual void before(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> /*arguments*/) {
  }
  /// The op has not run, but is known as a call: what it reads and which storages it will write.
  virtual void ready(const Call& /*call*/, std::span<const StorageIndex> /*writes*/) {}
  /// The op has run and has become `node`.
  virtual void after(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> /*results*/,
                     NodeId /*node*/) {}
  /// The op threw; it may have written to these.
  virtual void failed(const Call& /*call*/, std::span<const StorageIndex> /*writes*/) {}
  /// Asked about the op's allocations on a thread that has joined the step.
  virtual MemoryGate* gate() { return nullptr; }
  /// An op on a thread that has joined the step is over.
  virtual void left() {}
  /// The host asks for a pointer to write through. True where that is dealt with: the recording
  /// then remains of use.
  virtual bool host_access(StorageIndex /*storage*/) { return false; }
  /// Comes before host_access() where it was found out from the contents, and so too late: the host
  /// has written already. May throw.
  virtual void host_wrote(StorageIndex /*storage*/) {}
};

class Recorder final : public DispatchHook, public RecordedNumbers {
 public:
  explicit Recorder(RecorderHooks* hooks = nullptr) : hooks_(hooks) {
    switch_on();
    if (memory_.outermost()) cpu_memory().reset_peak();
    // whoever runs the step wants to know what it held from its beginning
    else cpu_memory().reset_existing_peak();
    existed_ = bytes().existing();
  }

  ~Recorder() override { stop(); }

  /// From here on ops are timed by this; it must outlive the recorder.
  void time_with(OpTimer* timer) { timer_ = timer; }

  /// Tells of a tensor that is there before the step. Two that share a storage are one value, or
  /// views of one.
  void know(const at::Tensor& tensor, Origin origin, std::size_t index, Role role,
            std::string name) {
    if (!tensor.defined() || !is_plain(tensor)) return;
    const StorageIndex known = table_.find(tensor.storage().unsafeGetStorageImpl());
    if (known == no_storage) {
      const ValueId v = add_persistent(tensor, origin, index, role, std::move(name));
      if (origin == Origin::parameter || origin == Origin::buffer)
        state_[storage_of(v)].told = tensor.unsafeGetTensorImpl();
      watch(v);
      find_shared_memory(storage_of(v));
      return;
    }
    if (!view_of(known, tensor).valid()) add_alias(known, geometry_of(tensor));
  }

  /// Before anything is noted: the memory of a recording that is empty by now. Megabytes that are
  /// given back after every step would be cleared and faulted in again for the next.
  void reuse(Recording&& old) {
    if (!recording_.calls.empty() || !recording_.values.empty() || !old.calls.empty() ||
        !old.values.empty())
      return;
    recording_.calls = std::move(old.calls);
    recording_.values = std::move(old.values);
  }
  /// So long a step is to be expected: memory for what is noted of it is taken at once.
  void expect(std::size_t calls, std::size_t values, std::size_t storages) {
    recording_.calls.reserve(calls);
    recording_.values.reserve(values);
    storage_of_value_.reserve(values);
    origin_of_value_.reserve(values);
    state_.reserve(storages);
    table_.reserve(storages);
    forward_of_.reserve(calls);
  }

  /// The value that this tensor is now; none where it is not plain memory.
  [[nodiscard]] ValueId value_of(const at::Tensor& tensor) {
    return read(tensor, "the end of the step");
  }

  /// Everything from here on belongs to this phase; what autograd runs belongs to backward in any
  /// case.
  void enter(Phase phase) { phase_ = phase; }

  /// Held while an op is recorded: whoever looks at the step from outside of an op takes it first.
  [[nodiscard]] std::recursive_mutex& guard() { return guard_; }
  /// What other threads write, which have not joined the step, counts as written by the host.
  void heed_other_threads() {
    const std::lock_guard lock(heeding().guard);
    heeding().recorders.push_back(this);
  }
  /// What the step has taken: no other thread's bytes. Relative to its beginning.
  [[nodiscard]] ByteCounter& bytes() const {
    return memory_.bytes() != nullptr ? *memory_.bytes() : cpu_memory();
  }
  /// Sees nothing more.
  void stop() {
    {
      const std::lock_guard lock(heeding().guard);
      std::erase(heeding().recorders, this);
    }
    if (!is_on()) return;
    switch_off();
    for (StorageIndex s = 0; s < table_.size(); ++s) table_.unwatch(s);
  }

  /// Asks again to be told when the host takes a pointer.
  void watch(StorageIndex s) { table_.watch(s, &on_host_access); }
  void unwatch(StorageIndex s) { table_.unwatch(s); }

  /// Without LibTorch's hook: whether something that the host may well fill is no longer what an op
  /// has left there.
  [[nodiscard]] bool host_has_written(StorageIndex s) const {
    if (!state_[s].digest || table_.emptied(s)) return false;
    const auto storage = table_.lock(s);
    return storage && *state_[s].digest != digest_of(*storage);
  }
  /// Looks for that where an op comes to it, or where it would be given up: then the host has been
  /// there.
  bool find_host_writes(StorageIndex s) {
    if (!host_has_written(s)) return false;
    if (hooks_ != nullptr) hooks_->host_wrote(s);
    state_[s].digest.reset();
    note_host_access(table_.lock(s).get());
    return true;
  }

  /// Nothing runs again that reads memory of the user's own: its tensor may be gone by then, and
  /// the bytes another frame.
  void heed_foreign_memory() { heeds_foreign_ = true; }

  /// Storages that lie in the same memory, as far as ops have read or written them.
  [[nodiscard]] std::span<const StorageIndex> sharing_memory_with(StorageIndex s) const {
    if (sharing_.empty()) return {};
    const auto it = sharing_.find(s);
    return it == sharing_.end() ? std::span<const StorageIndex>{}
                                : std::span<const StorageIndex>(it->second);
  }
  /// The graph would not say what memory this step takes: it is not planned.
  void do_not_plan(std::string why) {
    if (recording_.unplannable.empty()) recording_.unplannable = std::move(why);
  }

  /// The user's code held the storage until now, though no op reads it any more: a call of its own
  /// says so.
  void note_release(StorageIndex s) {
    const bool persistent = state_[s].persistent;
    const ValueId v = persistent ? state_[s].root : newest_in(s);
    if (persistent) {
      for (const Call& call : recording_.calls)
        if (std::ranges::find(call.updates, v) != call.updates.end())
          return;  // an update needs a value that is there to the end
      recording_.values[v.index].persistent = false;
      recording_.values[v.index].initial = true;
    }
    released_.push_back(v);
  }
  /// What was let go since the last op becomes part of the recording: it existed until here.
  void add_releases() {
    add_kept_numbers();
    for (ValueId v : std::exchange(released_, {})) {
      Call call;
      call.kind = CallKind::release;
      call.reads.push_back({0, -1, v});
      call.phase = current_phase();
      call.repeatable = false;
      recording_.calls.push_back(std::move(call));
    }
  }
  /// Memory from before the step that no op has read was given back.
  void note_release(Bytes bytes) {
    if (recording_.calls.empty()) {
      base_ = base_ - bytes;
      return;
    }
    RecordedValue value;
    value.origin = Origin::captured;
    value.name = "released." + std::to_string(released_count_++);
    value.bytes = bytes;
    value.initial = true;
    released_.push_back(add_value(std::move(value)));
  }

  /// Switches the recorder off and hands over what it saw. `outputs` are the values that the caller
  /// takes out of the step; whatever else was made in the step and is still alive is noted as kept.
  [[nodiscard]] Recording finish(std::vector<ValueId> outputs = {}) {
    add_releases();
    recording_.peak = started_with_ + (bytes().existing_peak() - existed_);
    recording_.base = base_;
    stop();
    std::vector<bool> taken(table_.size(), false);
    for (ValueId v : outputs)
      if (storage_of(v) != no_storage) taken[storage_of(v)] = true;
    for (StorageIndex s = 0; s < table_.size(); ++s)
      if (!taken[s] && !state_[s].persistent && table_.alive(s) && !state_[s].views.empty())
        recording_.kept.push_back(state_[s].views.front());
    recording_.outputs = std::move(outputs);
    return std::move(recording_);
  }

 private:
  struct PendingWrite {
    ArgumentSlot slot;
    StorageIndex storage;
    Bytes bytes_before;
    /// for as long as the op runs: an op may change how it lies in its storage, too (transpose_,
    /// resize_)
    at::Tensor tensor;
  };
  using PendingWrites = c10::SmallVector<PendingWrite, 2>;

  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below,
             torch::jit::Stack& stack) override {
    const std::lock_guard lock(guard_);
    const StepBytes::Joined counted(memory_);  // where another thread has joined the step
    MemoryGate*& gate = memory_gate();
    if (hooks_ == nullptr || gate != nullptr) return record(op, below, stack);
    gate = hooks_->gate();
    const struct Asked {
      RecorderHooks& hooks;
      MemoryGate*& gate;
      ~Asked() {
        gate = nullptr;
        hooks.left();
      }
    } asked{*hooks_, gate};
    record(op, below, stack);
  }

  /// Recorders that want to know what threads do that have not joined their step.
  struct Heeding {
    std::mutex guard{};
    std::vector<Recorder*> recorders{};
  };
  REPRISE_ONE_PER_PROCESS static Heeding& heeding() {
    static auto& all = *new Heeding;
    return all;
  }

  static void on_host_access(c10::StorageImpl* storage) {
    if (auto* recorder = dynamic_cast<Recorder*>(current())) {
      const std::lock_guard lock(recorder->guard_);
      return recorder->note_host_access(storage);
    }
    if (at::in_parallel_region()) return;  // a kernel's own thread
    while (!tell_others(storage)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  // False where a step is busy. Its end waits for the list while it holds its own guard: nobody
  // waits for that one with the list in hand.
  static bool tell_others(c10::StorageImpl* storage) {
    const std::lock_guard lock(heeding().guard);
    for (Recorder* recorder : heeding().recorders) {
      const std::unique_lock step(recorder->guard_, std::try_to_lock);
      if (!step.owns_lock()) return false;
      recorder->note_host_access(storage);
    }
    return true;
  }

  // ── one op ─────────────────────────────────────────────────────────────────────────────────────

  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
    add_releases();
    Call call;
    call.op = op;
    call.facts = &facts_of(op);
    call.keys = keys;
    call.repeatable = call.facts->repeatable;
    call.grad_mode = at::GradMode::is_enabled();
    note_switches(call);
    place(call);
    if (hooks_ != nullptr) hooks_->before(op, torch::jit::last(stack, call.facts->writes.size()));
    read_arguments(call, stack);
    if (call.facts->random && !(GeneratorState::now() == generator_after_))
      refuse("the generator was set in the middle of the step, before " + call.facts->name +
             " (node " + std::to_string(recording_.calls.size()) + ")");
    if (call.facts->hands_lengths_to_host)
      refuse(call.facts->name + " (node " + std::to_string(recording_.calls.size()) +
             ") goes with lengths that LibTorch reads behind the dispatcher");
    if (call.facts->copies_lazily) {
      refuse(call.facts->name + " (node " + std::to_string(recording_.calls.size()) +
             ") makes a copy that shares memory until it is written");
      do_not_plan("a copy shares memory until it is written (" + call.facts->name + ")");
    }
    PendingWrites writes = writes_of(call, stack);
    written_.clear();
    for (const PendingWrite& write : writes) written_.push_back(write.storage);
    if (hooks_ != nullptr) hooks_->ready(call, written_);
    for (const ArgumentSlot& slot : call.reads) unwatch(slot.value);

    bytes().open_window();
    const Bytes before = bytes().existing() - bytes_of_numbers();
    const Microseconds moving =
        memory_gate() != nullptr ? memory_gate()->time_spent() : Microseconds{};
    const auto start = std::chrono::steady_clock::now();
    if (timer_ != nullptr) timer_->start();
    try {
      op.redispatchBoxed(keys, &stack);
    } catch (...) {
      refuse(call.facts->name + " threw inside the step");
      if (hooks_ != nullptr) hooks_->failed(call, written_);
      watch_again(call);
      throw;
    }
    call.time = {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                     .count()};
    if (timer_ != nullptr) call.time = timer_->stop();
    if (memory_gate() != nullptr)
      call.time = {std::max(0.0, call.time.count - (memory_gate()->time_spent() - moving).count)};

    const NodeId node{recording_.calls.size()};
    Bytes made{};
    for (const PendingWrite& write : writes) made += note_write(call, node, write);
    writes.clear();
    made += note_results(call, node, stack);
    const Bytes workspace = bytes().window_peak() - before - made;
    call.workspace = workspace > Bytes{0} ? workspace : Bytes{0};
    if (call.facts->random) call.updates.push_back(generator());
    if (call.facts->random) generator_after_ = GeneratorState::now();
    watch_again(call);
    const std::size_t returns = call.facts->returns;
    recording_.calls.push_back(std::move(call));
    if (hooks_ != nullptr) hooks_->after(op, torch::jit::last(stack, returns), node);
    if (!watches_host()) heed_room(node);
  }

  void note_switches(Call& call) {
    const Switches now = Switches::now();
    const bool first = switches_ == nullptr;
    if (first || *switches_ != now) switches_ = Switches::interned(now);
    if (first) switches_at_first_ = switches_;
    call.switches = switches_;
    if (switches_ != switches_at_first_)
      refuse("a switch of LibTorch's was set in the middle of the step, before " +
             call.facts->name + " (node " + std::to_string(recording_.calls.size()) +
             "): threads, default dtype, " +
             "denormals, deterministic algorithms, oneDNN or precision");
  }

  // Where in the step the call stands: phase, the forward call of a backward one, the user's scope.
  void place(Call& call) {
    const auto backward = torch::autograd::get_current_node();
    call.phase = backward ? Phase::backward : phase_;
    if (backward) {
      const std::uint32_t forward = forward_of_.find(backward->sequence_nr());
      if (forward != FlatIndex::none) call.forward = NodeId{forward};
      if (call.forward.valid()) call.path = recording_.calls[call.forward.index].path;
    } else {
      call.path = current_scope();
      sequence_ = at::sequence_number::peek();
    }
  }

  void read_arguments(Call& call, const torch::jit::Stack& stack) {
    const std::size_t count = call.facts->writes.size();
    const auto arguments = torch::jit::last(stack, count);
    call.args.reserve(count);
    for (std::size_t i = 0; i < count; ++i)
      read_argument(call, static_cast<std::uint32_t>(i), arguments[i]);
    if (call.path.empty() || call.phase == Phase::forward) name_after_operands(call);
    if (call.phase == Phase::forward && sequence_ > 0)
      forward_of_.insert(sequence_ - 1, static_cast<std::uint32_t>(recording_.calls.size()));
  }

  void read_argument(Call& call, std::uint32_t arg, const c10::IValue& argument) {
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      if (tensor.defined()) add_read(call, arg, -1, tensor);
      call.args.emplace_back(tensor.defined() ? c10::IValue() : argument);
      return;
    }
    if (argument.isTensorList() || (argument.isList() && holds_tensors(argument))) {
      std::int32_t element = 0;
      for (const c10::IValue& item : argument.toListRef()) {
        if (item.isTensor() && item.toTensor().defined())
          add_read(call, arg, element, item.toTensor());
        ++element;
      }
      call.args.push_back(blank_list(argument));
      return;
    }
    // c10d's all-gather
    if (argument.isList() && !argument.toListRef().empty() && argument.toListRef()[0].isList()) {
      std::int32_t element = 0;
      for (const c10::IValue& items : argument.toListRef())
        for (const c10::IValue& item : items.toListRef()) {
          if (item.isTensor() && item.toTensor().defined())
            add_read(call, arg, element, item.toTensor());
          ++element;
        }
      refuse_call(call, call.facts->name + " (node " + std::to_string(recording_.calls.size()) +
                            ") takes lists of lists");
      call.args.emplace_back();
      return;
    }
    if (is_object(argument)) {
      refuse_call(call, call.facts->name + " (node " + std::to_string(recording_.calls.size()) +
                            ") takes an argument that cannot be kept for another run");
      call.args.emplace_back();
      return;
    }
    if (argument.isGenerator() && argument.toGenerator().defined() &&
        argument.toGenerator() != at::detail::getDefaultCPUGenerator())
      refuse_call(call, call.facts->name + " (node " + std::to_string(recording_.calls.size()) +
                            ") draws from a generator of the user's own, whose state at the next "
                            "step cannot be known");
    call.args.push_back(argument.isIntList() ? kept_list(argument) : argument);
  }

  // What may hold tensors, or anything else, for as long as it lives: c10d's works hold what they
  // send.
  static bool is_object(const c10::IValue& value) {
    return value.isStorage() || value.isObject() || value.isPyObject() || value.isFuture() ||
           value.isCapsule() || value.isRRef() || value.isTuple() || value.isGenericDict() ||
           value.isBlob();
  }

  void add_read(Call& call, std::uint32_t arg, std::int32_t element, const at::Tensor& tensor) {
    call.reads.push_back({arg, element, read(tensor, call.facts->name)});
    const ValueId v = call.reads.back().value;
    if (heeds_foreign_ && v.valid() && storage_of(v) != no_storage && state_[storage_of(v)].foreign)
      call.repeatable = false;
    if (v.valid()) return;
    call.repeatable = false;
    call.opaque = true;
  }

  // Named after the parameter that it uses, else after what its first operand was named after.
  void name_after_operands(Call& call) {
    for (const ArgumentSlot& slot : call.reads) {
      if (!slot.value.valid()) continue;
      const RecordedValue& root = recording_.values[root_of(slot.value).index];
      if (root.role != Role::parameter && root.role != Role::buffer) continue;
      const auto dot = root.name.rfind('.');
      call.path =
          join(current_scope(), dot == std::string::npos ? root.name : root.name.substr(0, dot));
      return;
    }
    if (!call.path.empty()) return;
    for (const ArgumentSlot& slot : call.reads) {
      if (!slot.value.valid()) continue;
      const NodeId producer = recording_.values[slot.value.index].producer;
      if (!producer.valid()) continue;
      call.path = recording_.calls[producer.index].path;
      return;
    }
  }

  static std::string join(const std::string& outer, const std::string& inner) {
    return outer.empty() ? inner : outer + "/" + inner;
  }

  // ── what an op reads ───────────────────────────────────────────────────────────────────────────

  ValueId read(const at::Tensor& tensor, const std::string& reader) {
    if (!is_plain(tensor)) {
      refuse(reader + " (node " + std::to_string(recording_.calls.size()) +
             ") reads a tensor that is not plain strided memory (" + c10::str(tensor.layout()) +
             ")");
      return {};
    }
    const StorageIndex s = table_.find(tensor.storage().unsafeGetStorageImpl());
    if (s == no_storage) return adopt(tensor, reader);
    static_cast<void>(find_host_writes(s));
    if (state_[s].exposed) settle_host_writes(s);
    if (const ValueId known = view_of(s, tensor); known.valid()) {
      if (known == state_[s].root && is_alias_from_outside(s, tensor))
        recording_.reads_aliases = true;
      return known;
    }
    // Views of what is from before the step are made by ops, or told of by know(). This one was
    // made outside.
    if (state_[s].persistent)
      refuse(reader + " (node " + std::to_string(recording_.calls.size()) +
             ") reads a tensor of the user's that shares memory with '" +
             recording_.values[state_[s].root.index].name + "', but is not it");
    return add_alias(s, geometry_of(tensor));
  }

  // It lies just as the parameter does, but is another tensor, and no op of the step has made it
  // (detach(), say).
  [[nodiscard]] bool is_alias_from_outside(StorageIndex s, const at::Tensor& tensor) const {
    const StorageState& state = state_[s];
    if (state.told == nullptr || state.told == tensor.unsafeGetTensorImpl()) return false;
    return std::ranges::none_of(state.views, [&](ValueId v) {
      return v != state.root && lies_as(tensor, recording_.values[v.index].geometry);
    });
  }

  // A storage that no op of this step has made.
  ValueId adopt(const at::Tensor& tensor, const std::string& reader) {
    const c10::DataPtr& data = tensor.storage().data_ptr();
    const bool in_step = CountingAllocator::serial_of(data) > start_serial_;
    if (is_number(tensor, in_step)) return scalar(tensor);
    if (in_step) {
      refuse(reader + " (node " + std::to_string(recording_.calls.size()) +
             ") reads a tensor that was made in the step behind the dispatcher, where Reprise "
             "cannot see it");
      return add_unseen(tensor);
    }
    const std::string number = std::to_string(captured_++);
    const ValueId v =
        phase_ == Phase::optimizer
            ? add_persistent(tensor, Origin::captured, 0, Role::optimizer_state,
                             "optimizer." + number)
            : add_persistent(tensor, Origin::captured, 0, Role::constant, "captured." + number);
    watch(v);
    find_shared_memory(storage_of(v));
    return v;
  }

  // A tensor over memory of the user's own (from_blob) may lie inside of another tensor's block: an
  // op that writes one then changes the other, and the graph does not say so. A guided step treats
  // the two as one; a capture is refused.
  void find_shared_memory(StorageIndex s) {
    if (!state_[s].foreign) {
      for (const StorageIndex other : foreign_)
        if (table_.overlap(s, other)) note_shared_memory(s, other);
      return;
    }
    for (StorageIndex other = 0; other < table_.size(); ++other)
      if (other != s && table_.overlap(s, other)) note_shared_memory(s, other);
    foreign_.push_back(s);
  }
  void note_shared_memory(StorageIndex a, StorageIndex b) {
    refuse("'" + name_of(a) + "' and '" + name_of(b) + "' lie in the same memory");
    for (const StorageIndex s : {a, b})
      if (!state_[s].persistent && hooks_ != nullptr)
        static_cast<void>(hooks_->host_access(s));  // made in the step: it stays where it is
    sharing_[a].push_back(b);
    sharing_[b].push_back(a);
  }
  [[nodiscard]] std::string name_of(StorageIndex s) const {
    const RecordedValue& root = recording_.values[state_[s].root.index];
    return root.producer.valid() ? recording_.calls[root.producer.index].op_name() : root.name;
  }

  // ── what an op writes and makes ────────────────────────────────────────────────────────────────

  PendingWrites writes_of(const Call& call, const torch::jit::Stack& stack) const {
    const auto arguments = torch::jit::last(stack, call.facts->writes.size());
    PendingWrites writes;
    for (const ArgumentSlot& slot : call.reads) {
      if (!slot.value.valid() || (!call.facts->writes[slot.arg] && !call.facts->may_write &&
                                  !is_moved_statistic(call, slot)))
        continue;
      const StorageIndex s = storage_of(slot.value);
      if (s == no_storage) continue;
      writes.push_back({slot, s, state_[s].bytes, element_of(arguments[slot.arg], slot.element)});
    }
    return writes;
  }

  // Elements of a list of lists are numbered through.
  static at::Tensor element_of(const c10::IValue& argument, std::int32_t element) {
    if (element < 0) return argument.toTensor();
    const auto list = argument.toListRef();
    auto index = static_cast<std::size_t>(element);
    if (!list[0].isList()) return list[index].toTensor();
    std::size_t which = 0;
    while (index >= list[which].toListRef().size()) index -= list[which++].toListRef().size();
    return list[which].toListRef()[index].toTensor();
  }

  // Returns the bytes that the op has allocated for what it writes: those of an output that was
  // made larger.
  Bytes note_write(Call& call, NodeId node, const PendingWrite& write) {
    StorageState& state = state_[write.storage];
    const auto storage = table_.lock(write.storage);
    const Bytes now = storage ? bytes_of(*storage) : write.bytes_before;
    const bool resized = now != write.bytes_before;
    if (state.persistent && resized) {
      end_persistent(state, call);
    } else if (state.persistent) {
      note_update(call, write.storage);
      for (const StorageIndex other : sharing_memory_with(write.storage)) note_update(call, other);
      if (!call.facts->moves_statistics()) call.repeatable = false;
      return {};
    }
    RecordedValue value;
    value.geometry = geometry_of(write.tensor);
    value.producer = node;
    value.role = role_in(call.phase);
    if (resized) value.bytes = now;
    else value.overwrites = write.slot.value;
    const ValueId v = add_value(std::move(value), write.storage);
    call.results.push_back({ResultSlot::From::argument, write.slot.arg, write.slot.element, v});
    if (!made_by(node, state)) state.views.clear();
    state.views.push_back(v);
    state.bytes = now;
    state.digest.reset();
    state.made_without_tensors = state.made_without_tensors && reads_one_storage(call);
    if (state.exposed && storage) remember(state, *storage);
    return resized ? now : Bytes{};  // its old block exists until the op has filled the new one
  }

  void note_update(Call& call, StorageIndex s) {
    const StorageState& state = state_[s];
    if (state.persistent && std::ranges::find(call.updates, state.root) == call.updates.end())
      call.updates.push_back(state.root);
  }

  // A tensor from before the step was given a larger block: the old one ends here, and the new one
  // is made in the step.
  void end_persistent(StorageState& state, Call& call) {
    const auto updates = [&](const Call& earlier) {
      return std::ranges::find(earlier.updates, state.root) != earlier.updates.end();
    };
    RecordedValue& before = recording_.values[state.root.index];
    refuse("'" + before.name + "' from before the step was given a larger block in it");
    if (std::ranges::any_of(recording_.calls, updates)) {
      do_not_plan("'" + before.name + "' was written, and then given a larger block");
    } else {
      before.persistent = false;
      before.initial = true;
    }
    state.persistent = false;
    call.repeatable = false;
  }

  // fill_(t, 3) leaves t independent of data, copy_(t, x) does not.
  bool reads_one_storage(const Call& call) const {
    for (const ArgumentSlot& slot : call.reads)
      if (slot.value.valid() && storage_of(slot.value) != storage_of(call.reads.front().value))
        return false;
    return true;
  }

  Bytes note_results(Call& call, NodeId node, const torch::jit::Stack& stack) {
    const std::size_t returns = call.facts->returns;
    const auto results = torch::jit::last(stack, returns);
    Bytes made{};
    for (std::size_t i = 0; i < returns; ++i) {
      const c10::IValue& result = results[i];
      if (result.isTensor()) {
        made += note_result(call, node, static_cast<std::uint32_t>(i), -1, result.toTensor());
      } else if (result.isTensorList()) {
        std::int32_t element = 0;
        for (const c10::IValue& item : result.toListRef())
          made +=
              note_result(call, node, static_cast<std::uint32_t>(i), element++, item.toTensor());
      } else if (is_object(result)) {
        refuse_call(call, call.facts->name + " (node " + std::to_string(node.index) +
                              ") returns an object, which cannot be kept for another run");
      } else if (call.facts->reads_to_host) {
        call.returned.push_back({static_cast<std::uint32_t>(i), result});
      }
    }
    return made;
  }

  Bytes note_result(Call& call, NodeId node, std::uint32_t index, std::int32_t element,
                    const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    if (!is_plain(tensor)) {
      call.opaque = true;
      refuse_call(call, call.facts->name + " (node " + std::to_string(node.index) +
                            ") makes a tensor that is not plain strided memory (" +
                            c10::str(tensor.layout()) + ")");
      return note_parts(call, node, index, tensor);
    }
    const StorageIndex known = table_.find(tensor.storage().unsafeGetStorageImpl());
    if (known != no_storage) {
      note_view(call, node, index, element, known, geometry_of(tensor));
      return {};
    }
    // set_, or an op of another library that has kept it
    if (!call.facts->repeatable && is_from_before(tensor)) {
      static_cast<void>(adopt(tensor, call.facts->name));
      return {};
    }
    const StorageIndex s = track(tensor.storage());
    RecordedValue value;
    value.geometry = geometry_of(tensor);
    value.producer = node;
    value.role = role_in(call.phase);
    value.bytes = bytes_of(tensor.storage());
    const Bytes bytes = value.bytes;
    state_[s].bytes = bytes;
    // a file that is mapped, a copy that shares a block
    state_[s].foreign = is_foreign(tensor.storage());
    state_[s].made_without_tensors = call.reads.empty() && !call.facts->random;
    const ValueId v = add_value(std::move(value), s);
    state_[s].root = v;
    state_[s].views.push_back(v);
    call.results.push_back({ResultSlot::From::returned, index, element, v});
    return bytes;
  }

  // What a sparse tensor consists of: plain tensors, whose bytes count, though what reads them
  // through the sparse one is not seen.
  Bytes note_parts(Call& call, NodeId node, std::uint32_t index, const at::Tensor& tensor) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(above());
    Bytes made{};
    const auto note = [&](const at::Tensor& part) {
      if (part.defined() && is_plain(part) &&
          table_.find(part.storage().unsafeGetStorageImpl()) == no_storage && !is_from_before(part))
        made += note_result(call, node, index, -1, part);
    };
    if (tensor.layout() == at::kSparse) {
      note(tensor._indices());
      note(tensor._values());
    } else if (tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr) {
      note(tensor.crow_indices());
      note(tensor.col_indices());
      note(tensor.values());
    } else if (tensor.layout() == at::kSparseCsc || tensor.layout() == at::kSparseBsc) {
      note(tensor.ccol_indices());
      note(tensor.row_indices());
      note(tensor.values());
    }
    return made;
  }
  [[nodiscard]] bool is_from_before(const at::Tensor& tensor) const {
    const c10::DataPtr& data =
        tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
    return CountingAllocator::owns(data) && CountingAllocator::serial_of(data) <= start_serial_;
  }

  // A result over a storage that was there before: what the op wrote, or a view.
  void note_view(Call& call, NodeId node, std::uint32_t index, std::int32_t element, StorageIndex s,
                 Geometry geometry) {
    StorageState& state = state_[s];
    for (ValueId known : state.views) {
      if (!(recording_.values[known.index].geometry == geometry)) continue;
      const bool written =
          std::ranges::any_of(call.updates, [&](ValueId v) { return v == state.root; });
      if (written || recording_.values[known.index].producer == node) return;
    }
    RecordedValue value;
    value.geometry = std::move(geometry);
    value.alias_of = state.views.front();
    for (const ArgumentSlot& slot : call.reads)
      if (slot.value.valid() && storage_of(slot.value) == s && !made_by(node, state))
        value.alias_of = slot.value;
    value.producer = node;
    value.role = role_in(call.phase);
    const ValueId v = add_value(std::move(value), s);
    state.views.push_back(v);
    call.results.push_back({ResultSlot::From::returned, index, element, v});
  }

  // ── the host ───────────────────────────────────────────────────────────────────────────────────

  void note_host_access(c10::StorageImpl* storage) {
    const StorageIndex s = table_.find(storage);
    if (s == no_storage) return;
    table_.forget_watch(s);
    if (hooks_ != nullptr && hooks_->host_access(s)) return;
    StorageState& state = state_[s];
    if (!state.persistent && state.made_without_tensors) {
      // what lies there now is not `seen`: fresh memory may by chance hold what the host is about
      // to write
      state.exposed = true;
      return;
    }
    const ValueId v = state.views.empty() ? state.root : state.views.front();
    const RecordedValue& value = recording_.values[v.index];
    refuse("the host took a pointer to " +
           (value.producer.valid() ? "what node " + std::to_string(value.producer.index) + " (" +
                                         recording_.calls[value.producer.index].op_name() + ") made"
                                   : "'" + value.name + "'") +
           " in the middle of the step (data_ptr or accessor); what it read or wrote there cannot "
           "be seen");
  }

  // Nobody would tell that the host fills what an op has made for it. To the result of a factory it
  // is taken to have a pointer from the beginning; of a copy, and of what a factory made after
  // another tensor's shape, the contents are compared when an op comes to it: as a rule nobody but
  // ops fills it (a dropout's mask), and then it can be given up and made again. What is not filled
  // by the op gets contents that the host will hardly write, or they might be there already from
  // the step before.
  void heed_room(NodeId node) {
    const Call& call = recording_.calls[node.index];
    for (const ResultSlot& slot : call.results) {
      const StorageIndex s = storage_of(slot.value);
      if (slot.from != ResultSlot::From::returned || s == no_storage ||
          state_[s].root != slot.value)
        continue;
      if (!state_[s].made_without_tensors && !call.facts->makes_room) continue;
      const auto storage = table_.lock(s);
      if (!storage || storage->nbytes() == 0 || storage->device_type() != c10::DeviceType::CPU)
        continue;
      if (call.facts->unfilled) std::memset(storage->mutable_data(), 0xa5, storage->nbytes());
      if (!state_[s].made_without_tensors) {
        state_[s].digest = digest_of(*storage);
        continue;
      }
      note_host_access(storage.get());
      if (state_[s].exposed) remember(state_[s], *storage);
    }
  }

  static void remember(StorageState& state, c10::StorageImpl& storage) {
    const auto* bytes = static_cast<const std::byte*>(storage.data());
    state.seen.assign(bytes, bytes + storage.nbytes());
  }

  // The host had a pointer: what it wrote since an op last saw the storage becomes a constant.
  void settle_host_writes(StorageIndex s) {
    StorageState& state = state_[s];
    const auto storage = table_.lock(s);
    if (!storage || storage->nbytes() == 0) return;
    if (!state.seen.empty() &&
        std::memcmp(state.seen.data(), storage->data(), state.seen.size()) == 0)
      return;
    remember(state, *storage);
    const NodeId node{recording_.calls.size()};
    Call call;
    call.kind = CallKind::constant;
    call.phase = current_phase();
    call.constant = state.seen;
    const ValueId before = state.views.front();
    call.reads.push_back({0, -1, before});
    RecordedValue value;
    value.geometry = recording_.values[before.index].geometry;
    value.overwrites = before;
    value.producer = node;
    value.role = Role::constant;
    const ValueId v = add_value(std::move(value), s);
    call.results.push_back({ResultSlot::From::argument, 0, -1, v});
    recording_.calls.push_back(std::move(call));
    state.views.assign(1, v);
  }

  void watch_again(const Call& call) {
    for (const ArgumentSlot& slot : call.reads) watch(slot.value);
    for (const ResultSlot& slot : call.results) watch(slot.value);
  }
  void watch(ValueId v) {
    const StorageIndex s = storage_of(v);
    if (s != no_storage) table_.watch(s, &on_host_access);
  }
  void unwatch(ValueId v) {
    const StorageIndex s = storage_of(v);
    if (s != no_storage) table_.unwatch(s);
  }

  ValueId generator() {
    if (generator_.valid()) return generator_;
    RecordedValue value;
    value.origin = Origin::generator;
    value.name = "generator";
    value.persistent = true;
    generator_ = add_value(std::move(value));
    return generator_;
  }

  // A reason not to run this call again, and so the step.
  void refuse_call(Call& call, std::string why) {
    call.repeatable = false;
    refuse(std::move(why));
  }

  RecorderHooks* hooks_;
  OpTimer* timer_ = nullptr;
  StepBytes memory_{start_serial_};
  const Bytes started_with_ = base_;  // what existed in the process
  Bytes existed_{};                   // the same, as bytes() counts
  std::recursive_mutex guard_;
  // autograd's sequence number -> the call that it was given to
  FlatIndex forward_of_;
  // of the last op, and of the first
  const Switches *switches_ = nullptr, *switches_at_first_ = nullptr;
  ValueId generator_{};
  GeneratorState generator_after_ = GeneratorState::now();  // where the last random op left it
  std::uint64_t sequence_ = 0;
  std::size_t captured_ = 0;
  std::vector<ValueId> released_;      // since the last op
  std::vector<StorageIndex> written_;  // by the running op
  std::size_t released_count_ = 0;
  std::vector<StorageIndex> foreign_;  // over memory of the user's own
  std::unordered_map<StorageIndex, std::vector<StorageIndex>> sharing_;  // memory, with these
  bool heeds_foreign_ = false;
};

}  // namespace reprise
