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
// For each op (see dispatch_hook.hpp), the recorder finds the values that the op reads
// (operands.hpp), lets it run, and notes its writes and results (results.hpp). It keeps no tensor
// or storage alive beyond an op.

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <reprise/base/clock.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/record/call_context.hpp>
#include <reprise/libtorch/record/op_meter.hpp>
#include <reprise/libtorch/record/operands.hpp>
#include <reprise/libtorch/record/other_threads.hpp>
#include <reprise/libtorch/record/recorder_hooks.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/record/releases.hpp>
#include <reprise/libtorch/record/results.hpp>
#include <reprise/libtorch/record/user_access.hpp>
#include <reprise/libtorch/record/wrapped_numbers.hpp>
#include <reprise/libtorch/torch/dispatch_hook.hpp>
#include <reprise/libtorch/torch/generator_state.hpp>

namespace reprise::recording {

class Recorder final : public DispatchHook, public PointerListener {
 public:
  explicit Recorder(RecorderHooks* hooks = nullptr)
      : hooks_(hooks), access_(tables_, hooks, &on_pointer_access) {
    switch_on();
    if (memory_.outermost()) device_memory().reset_peak();
    // the outer step needs its own peak from its own beginning
    else device_memory().reset_existing_peak();
    existed_ = bytes().existing();
  }

  ~Recorder() override { stop(); }

  /// From here on `meter` measures the ops; null for the recorder's own clock. The meter must
  /// outlive the recorder.
  void measure_with(OpMeter* meter) { meter_ = meter; }

  // ── its parts ──────────────────────────────────────────────────────────────────────────────────

  [[nodiscard]] const RecordingTables& tables() const { return tables_; }
  [[nodiscard]] RecordingTables& tables() { return tables_; }
  [[nodiscard]] StorageRecords& storages() { return tables_.records(); }
  [[nodiscard]] const Recording& recording() const { return tables_.recording(); }
  [[nodiscard]] std::size_t calls_seen() const { return tables_.calls_seen(); }
  [[nodiscard]] UserAccess& user_access() { return access_; }
  [[nodiscard]] Releases& releases() { return releases_; }
  [[nodiscard]] WrappedNumbers& numbers() { return numbers_; }
  [[nodiscard]] OperandReader& operands() { return operands_; }

  // ── before the step ────────────────────────────────────────────────────────────────────────────

  /// Registers a tensor from before the step. Two tensors with one storage are one value, or views
  /// of one value.
  void know(const at::Tensor& tensor, Origin origin, std::size_t index, Role role,
            std::string name) {
    if (tensor.defined() && is_plain(tensor))
      operands_.add_known(tensor, origin, index, role, std::move(name));
  }

  /// Call it before the step: reuses the memory of an empty recording. Memory that is freed after
  /// every step would have to be cleared and faulted in for the next step.
  void reuse(Recording&& old) {
    Recording& now = tables_.recording();
    if (!now.calls.empty() || !now.values.empty() || !old.calls.empty() || !old.values.empty())
      return;
    now = std::move(old);
  }
  /// The expected size of the step: the recorder reserves memory for its notes at once.
  void expect(std::size_t calls, std::size_t values, std::size_t storages) {
    tables_.reserve(calls, values, storages);
    context_.reserve(calls);
  }

  // ── in the step ────────────────────────────────────────────────────────────────────────────────

  /// The tensor's current value; none if it is not plain memory.
  [[nodiscard]] ValueId value_of(const at::Tensor& tensor) {
    return operands_.read(tensor, "the end of the step");
  }

  /// Everything from here on belongs to this phase. Ops that autograd runs belong to backward in
  /// any case.
  void enter(Phase phase) { tables_.enter(phase); }

  /// Held while an op is recorded. Take it before you read the step's state from outside an op.
  [[nodiscard]] std::recursive_mutex& guard() override { return guard_; }
  /// Writes on threads that have not joined the step count as writes of user code.
  void watch_other_threads() { OtherThreads::listen(this); }
  void note_pointer(c10::StorageImpl* storage) override { access_.note_pointer(storage); }

  /// The bytes of this step, without other threads' bytes. Relative to the step's beginning.
  [[nodiscard]] ByteCounter& bytes() const {
    return memory_.bytes() != nullptr ? *memory_.bytes() : device_memory();
  }

  /// Adds release calls for storages that died after the last op.
  void add_releases() {
    numbers_.add_kept();
    releases_.add_calls();
  }

  // ── its end ────────────────────────────────────────────────────────────────────────────────────

  /// Stops recording.
  void stop() {
    OtherThreads::unlisten(this);
    if (!is_on()) return;
    switch_off();
    access_.unwatch_all();
  }

  /// Stops recording and returns the recording. `outputs` are the values that the caller takes out
  /// of the step. All other values that are alive at the end are noted as kept.
  [[nodiscard]] Recording finish(std::vector<ValueId> outputs = {}) {
    add_releases();
    Recording& recording = tables_.recording();
    recording.peak = started_with_ + (bytes().peak_without_limit() - existed_);
    recording.base = tables_.base();
    stop();
    const StorageRecords& records = tables_.records();
    std::vector<bool> taken(records.size(), false);
    for (ValueId v : outputs)
      if (const StorageIndex s = tables_.storage_of(v); s != no_storage) taken[s] = true;
    for (StorageIndex s = 0; s < records.size(); ++s) {
      const StorageRecord::Contents& known = records[s].contents;
      if (!taken[s] && !known.persistent && records.alive(s) && !known.views.empty())
        recording.kept.push_back(known.views.front());
    }
    recording.outputs = std::move(outputs);
    return std::move(recording);
  }

 private:
  void on_op(const c10::OperatorHandle& op, c10::DispatchKeySet below,
             torch::jit::Stack& stack) override {
    const std::lock_guard lock(guard_);
    const StepBytes::Joined counted(memory_);  // if another thread has joined the step
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

  static void on_pointer_access(c10::StorageImpl* storage) {
    if (auto* recorder = dynamic_cast<Recorder*>(current())) {
      const std::lock_guard lock(recorder->guard_);
      return recorder->access_.note_pointer(storage);
    }
    if (at::in_parallel_region()) return;  // a kernel's own thread
    OtherThreads::tell(storage);
  }

  // ── one op ─────────────────────────────────────────────────────────────────────────────────────

  void record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
    add_releases();
    CallDraft call;
    PendingWrites writes = prepare(call, op, keys, stack);
    if (hooks_ != nullptr) hooks_->ready(call, written_);
    for (const ArgumentSlot& slot : call.reads) access_.unwatch(slot.value);
    bytes().open_window();
    const Bytes before = bytes().existing() - numbers_.bytes_of_op();
    run(call, op, stack);
    note(call, op, writes, before, stack);
  }

  // Everything that is known about the call before it runs.
  PendingWrites prepare(CallDraft& call, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        const torch::jit::Stack& stack) {
    call.facts = &facts_of(op);
    call.op = &*call.facts->handle;
    call.keys = keys;
    call.repeatable = call.facts->repeatable;
    call.grad_mode = at::GradMode::is_enabled();
    context_.note(call);
    const auto arguments = torch::jit::last(stack, call.facts->writes.size());
    if (hooks_ != nullptr) hooks_->before(op, arguments);
    operands_.read_arguments(call, arguments);
    context_.note_operands(call);
    refuse_what_cannot_run_again(call);
    PendingWrites writes = results_.writes_of(call, arguments);
    written_.clear();
    for (const PendingWrite& write : writes) written_.push_back(write.storage);
    return writes;
  }

  void refuse_what_cannot_run_again(const Call& call) {
    if (call.facts->random && !(GeneratorState::now() == generator_after_))
      tables_.refuse("the generator was set in the middle of the step, before " +
                     tables_.at_next_node(call.facts->name));
    if (call.facts->hands_lengths_to_host)
      tables_.refuse(tables_.at_next_node(call.facts->name) +
                     " goes with lengths that LibTorch reads behind the dispatcher");
    if (!call.facts->copies_lazily) return;
    tables_.refuse(tables_.at_next_node(call.facts->name) +
                   " makes a copy that shares memory until it is written");
    tables_.do_not_plan("a copy shares memory until it is written (" + call.facts->name + ")");
  }

  void run(CallDraft& call, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
    const Microseconds moving =
        memory_gate() != nullptr ? memory_gate()->time_spent() : Microseconds{};
    const auto start = std::chrono::steady_clock::now();
    if (meter_ != nullptr) meter_->begin_op();
    try {
      op.redispatchBoxed(call.keys, &stack);
    } catch (...) {
      tables_.refuse(call.facts->name + " threw inside the step");
      if (hooks_ != nullptr) hooks_->failed(call, written_);
      access_.watch_again(call);
      throw;
    }
    call.time = time_since(start);
    if (meter_ != nullptr) call.time = meter_->end_op();
    if (memory_gate() != nullptr)
      call.time = {std::max(0.0, call.time.count - (memory_gate()->time_spent() - moving).count)};
  }

  // Notes the call's writes and results. `before`: the bytes that were live when it began.
  void note(CallDraft& call, const c10::OperatorHandle& op, PendingWrites& writes, Bytes before,
            const torch::jit::Stack& stack) {
    const NodeId node = tables_.next_node();
    Bytes made{};
    for (const PendingWrite& write : writes) made += results_.note_write(call, node, write);
    writes.clear();
    const std::size_t returns = call.facts->returns;
    made += results_.note_results(call, node, torch::jit::last(stack, returns));
    const Bytes workspace = bytes().window_peak() - before - made;
    call.workspace = workspace > Bytes{0} ? workspace : Bytes{0};
    if (call.facts->random) call.add_update(generator());
    if (call.facts->random) generator_after_ = GeneratorState::now();
    access_.watch_again(call);
    tables_.recording().add(std::move(call));
    if (hooks_ != nullptr) hooks_->after(op, torch::jit::last(stack, returns), node);
    if (!watches_host()) access_.watch_user_fillable(node);
  }

  ValueId generator() {
    if (generator_.valid()) return generator_;
    RecordedValue value;
    value.origin = Origin::generator;
    value.outside = tables_.recording().keep({.name = "generator"});
    value.persistent = true;
    generator_ = tables_.add_value(std::move(value));
    return generator_;
  }

  RecorderHooks* hooks_;
  OpMeter* meter_ = nullptr;
  RecordingTables tables_;
  WrappedNumbers numbers_{tables_};
  UserAccess access_;
  OperandReader operands_{tables_, numbers_, access_};
  ResultNotes results_{tables_, operands_, access_};
  Releases releases_{tables_};
  CallContext context_{tables_};
  StepBytes memory_{tables_.start_serial()};
  const Bytes started_with_ = tables_.base();  // live bytes of the process
  Bytes existed_{};                            // the same number, in the count of bytes()
  std::recursive_mutex guard_;
  ValueId generator_{};
  GeneratorState generator_after_ = GeneratorState::now();  // after the last random op
  std::vector<StorageIndex> written_;                       // by the running op
};

}  // namespace reprise::recording
