#pragma once
// A GuidedStep keeps one step of the user's own code inside a budget. Before each op, it
// materializes the op's operands. After each op, it evicts what the plan evicts.
//
//   user's op        conv  relu  pool ........ grad (reads relu's result through a saved tensor)
//   the step                         evict relu ▲ conv, relu recomputed from *this* step's calls; the bytes go back under the tensor
//
// Two ways to decide what is evicted:
//   planned   the op sequence matches a plan, node by node: evictions and recomputations are at the plan's positions
//   online    no plan, or the sequence has diverged: when an allocation would pass the budget, an eviction policy picks
//
// In both ways, all operands are resident when an op runs, and only rematerializable values are
// evicted. The parts of a step: residency.hpp moves bytes, rematerializer.hpp restores them,
// plan_follower.hpp follows a plan, online_eviction.hpp picks victims. This header tells the parts
// what happens. Every function that is called from outside opens an EntryScope, because nothing
// else gives access to the parts.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <reprise/libtorch/guided/entry_scope.hpp>
#include <reprise/libtorch/guided/plan_choice.hpp>
#include <reprise/libtorch/guided/pointer_access.hpp>
#include <reprise/libtorch/guided/step_limit.hpp>
#include <reprise/libtorch/guided/step_parts.hpp>

namespace reprise::guided {

template <EvictionPolicy Policy>
class GuidedStep final : public RecorderHooks,
                         public MemoryGate,
                         public StorageOwner,
                         public RematerializerListener {
 public:
  using Choose = PlanChoice::Choose;

  /// `limit` 0: no limit. If the step cannot keep the limit, it throws an error with the text of
  /// `advice`, or goes on above the limit.
  GuidedStep(Bytes limit, bool throws, SpillStore& file, Policy policy, Choose choose,
             std::function<std::string()> advice)
      : limit_(limit, throws),
        choice_(std::move(choose)),
        advice_(std::move(advice)),
        recorder_(this),
        entrance_(recorder_.guard(), recorder_, file, std::move(policy), counters_, *this, *this) {
    ThisDevice::begin_step();
    recorder_.numbers().give_each_a_value();
    recorder_.operands().forbid_recompute_from_foreign();
    recorder_.watch_other_threads();
    memory_gate() = this;
    try {
      set_limit(limit);
    } catch (...) {  // no destructor runs
      leave_thread();
      ThisDevice::abandon_step();
      throw;
    }
  }
  ~GuidedStep() override { stop(); }
  GuidedStep(const GuidedStep&) = delete;
  GuidedStep& operator=(const GuidedStep&) = delete;

  [[nodiscard]] Recorder& recorder() { return recorder_; }
  [[nodiscard]] const GuidedStepCounters& counters() const { return counters_; }
  [[nodiscard]] TransferStats transfers() {
    return Scope(entrance_, Synchronize::no)->events.residency().transfers().all();
  }
  [[nodiscard]] bool went_over() const { return limit_.went_over(); }
  /// Bytes that the step needed above its start bytes, if the step exceeded its limit; else 0.
  [[nodiscard]] Bytes needed_above_base() const {
    return went_over() ? limit_.needed() - recorder_.tables().base() : Bytes{0};
  }

  /// The expected number of calls, values and storages.
  void expect(std::size_t calls, std::size_t values, std::size_t storages) {
    recorder_.expect(calls, values, storages);
    Scope(entrance_)->lineage.reserve(values);
  }
  /// Evicted storages keep their addresses: a pointer from any time reads the bytes that eager
  /// would.
  void keep_pointers() { Scope(entrance_)->events.residency().keep_pointers(); }
  /// Compares every recomputation with the first run. Throws at the first difference.
  void verify() { Scope(entrance_)->runner.verify(); }
  /// `needed_before` is called when memory runs out for the first time. It returns what an earlier
  /// step that began with the same ops needed above its start bytes, or 0 if nothing is known.
  void ask_for_need(std::function<Bytes(const Recording& so_far)> needed_before) {
    needed_before_ = std::move(needed_before);
  }
  void set_limit(Bytes limit) {
    limit_.set(limit_here() = limit);
    Scope(entrance_)->notes.watch_sources(limit > Bytes{0});
  }

  /// User code may read and write the tensor at any time: it becomes resident and stays so.
  void pin(const at::Tensor& tensor) {
    if (!tensor.defined() || !is_plain(tensor)) return;
    const Scope step(entrance_);
    // also for a tensor that no op of the step has read yet
    static_cast<void>(recorder_.value_of(tensor));
    const StorageIndex s = recorder_.tables().storage_of(tensor);
    if (s == no_storage) return;
    step->synchronize(false);
    step->rematerializer.materialize(s);
    static_cast<void>(host_access(s));
    recorder_.user_access().unwatch(s);
  }

  /// Ends the step: everything alive is restored inside the limit. Throws if that does not fit.
  [[nodiscard]] Recording finish() {
    const Scope step(entrance_);
    recorder_.add_releases();
    step->synchronize(false);
    if (step->follower.is_following())
      step->follower.advance_to(recorder_.tables().next_node(), true);
    counters_.followed = step->follower.is_following();
    step->follower.leave("the step has ended");
    static const std::string end = "the end of the step";
    step->rematerializer.set_op(&end);
    ScopedPins pins(recorder_.storages());
    for (StorageIndex s = 0; s < recorder_.storages().size(); ++s) {
      if (!recorder_.storages().alive(s)) continue;
      pins.add(s);
      step->rematerializer.materialize(s);
    }
    counters_.predicted =
        counters_.followed && !choice_.entered_late() && !step->follower.recomputed_off_plan();
    leave_thread();
    Recording recording = recorder_.finish();
    step->events.let_go();
    ThisDevice::end_step();
    finished_ = true;
    return recording;
  }

  // ── around each op (RecorderHooks) ─────────────────────────────────────────────────────────────

  MemoryGate* gate() override { return this; }
  void left() override { leave_thread(); }

  void ready(const Call& call, std::span<const StorageIndex> writes) override {
    // per thread: for a thread that has joined, or that did not see the limit change
    limit_here() = limit_.bytes();
    const Scope step(entrance_);
    step->eviction.tick();
    step->rematerializer.set_op(&call.facts->name);
    step->takeover.undo();
    step->pins.release();
    choice_.before_op(recorder_.tables(), step->follower, call);
    step->pin_operands(call);
    make_room_for_others(*step);
    if (!call.facts->views_only)
      static_cast<void>(step->rematerializer.process_pointer_writes(call));
    if (call.facts->random) step->runner.note_generator(recorder_.tables().next_node());
    choice_.advance(recorder_.tables(), step->follower, call);
    step->materialize_operands(call);
    for (StorageIndex s : writes) step->before_overwrite(s);
    step->runner.note_operands(call);
    if (const ValueId summand = step->follower.summand_of_next(call); summand.valid())
      step->takeover.begin(summand);
  }

  void after(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> results,
             NodeId node) override {
    const Call& call = recorder_.recording().calls[node.index];
    const Scope step(entrance_);
    if (step->takeover.is_on()) step->takeover.end(results[0].toTensor());
    step->notes.note_call(call, node);
    if (step->follower.is_following()) {
      if (step->follower.has_results(node)) step->follower.finish_node(node);
      else choice_.diverge(step->follower, "an op made something else");
    }
    if (step->eviction.is_on()) step->eviction.touch_all(call);
    step->end_op();
    if (!step->follower.is_following()) step->eviction.evict_without_pressure();
  }

  void failed(const Call& /*call*/, std::span<const StorageIndex> writes) override {
    const Scope step(entrance_);
    step->takeover.undo();
    step->follower.leave("an op threw");
    for (StorageIndex s : writes) {
      StorageRecord::Use& use = recorder_.storages()[s].use;
      use.corrupt = use.pinned = true;
    }
    step->end_op();
  }

  bool host_access(StorageIndex s) override {
    const Scope step(entrance_);
    if (step->runner.is_running()) {  // the kernel of a recomputation, not user code
      step->runner.watch_afterwards(s);
      return true;
    }
    Residency& residency = step->events.residency();
    const ResidencyState state = residency.state(s);
    if (state == ResidencyState::spilled || state == ResidencyState::evicted)
      step->rematerializer.materialize(s);
    if (residency.writes().edges_written(s)) {  // written already: the old contents are needed
      step->rematerializer.process_pointer_write(s);
      return true;
    }
    const NodeId producer = step->notes.producer_of_contents(s);
    const bool expected = producer.valid() && !step->follower.expects_repeatable(producer);
    if (!expected) choice_.diverge(step->follower, "the host took a pointer");
    step->notes.give_to_user(s);
    step->pin_for_user(s);
    return true;
  }

  void host_wrote(StorageIndex s) override { Scope(entrance_)->notes.refuse_late_write(s); }

  // ── memory (MemoryGate) ────────────────────────────────────────────────────────────────────────

  void before_allocation(Bytes bytes) override {
    if (limit_.allows(bytes)) return;
    const Scope step(entrance_);
    if (!make_room_online(*step, bytes)) {
      if (step->rematerializer.can_give_way()) throw GiveWay{};
      if (limit_.throws())
        throw limit_.too_small(step->rematerializer.op(), bytes, recorder_.tables(),
                               step->events.residency(), advice_ ? advice_() : std::string{});
      limit_.exceed(device_memory().live() + bytes);
    }
    limit_.note_allocation(bytes);
  }
  [[nodiscard]] Microseconds time_spent() const override {
    const Scope step(entrance_, Synchronize::no);
    const TransferStats& transfers = step->events.residency().transfers().all();
    return transfers.time_out + transfers.time_in;
  }
  void after_release(Bytes bytes, std::uint64_t serial) override {
    if (serial > recorder_.tables().start_serial()) return;
    // a thread that has joined may be in an op
    const Scope step(entrance_, Synchronize::no);
    if (!step->events.residency().is_freeing() && recorder_.is_on())
      recorder_.releases().note(bytes);
  }

  // ── storages that die or change behind the dispatcher (StorageOwner) ───────────────────────────

  void make_room(Bytes bytes) override { before_allocation(bytes); }
  void touched(StorageIndex s, bool writes) override {
    const PointerAccess access(*this, limit_);
    const Scope step(entrance_);
    step->follower.note_off_plan();  // no plan restores it and keeps it resident
    if (writes) return on_user_write(s);
    step->pin_for_user(s);
    step->rematerializer.materialize(s);
    if (step->notes.watchable(s)) step->events.watch_writes(s);
  }
  void was_touched(StorageIndex s, bool writes) override {
    const Scope step(entrance_, Synchronize::no);
    if (writes) step->notes.refuse_late_write(s);
    if (writes) static_cast<void>(host_access(s));
    step->pin_for_user(s);
  }
  void exchanged(StorageIndex s) override {
    const PointerAccess access(*this, limit_);
    on_user_write(s);
  }
  [[nodiscard]] bool in_op() const override {
    const Scope step(entrance_, Synchronize::no);
    return step->rematerializer.op() != nullptr || step->runner.is_running();
  }
  bool died(StorageIndex s) override {
    const Scope step(entrance_, Synchronize::no);
    step->eviction.forget(s);
    if (recorder_.is_on() && step->notes.records_death_of(s)) recorder_.releases().note(s);
    const ValueId v = recorder_.tables().latest_version(s);
    if (v.valid() && !step->lineage.reproducible(v)) step->lineage.record_deaths_of_dependants(v);
    if (step->follower.needs(s)) return true;
    return v.valid() && !step->lineage.rematerializable(v) &&
           !step->rematerializer.try_release_source(v);
  }

  // ── what the Rematerializer changes ────────────────────────────────────────────────────────────

  void on_restored(StorageIndex s) override {
    Scope(entrance_, Synchronize::no)->eviction.touch(s);
  }
  void on_only_spills() override {
    const Scope step(entrance_, Synchronize::no);
    step->follower.leave("recomputation has reached its bound");
    step->eviction.touch_all();
  }
  // Recomputes first what was evicted and made from it. Nothing is recomputed from it afterwards.
  void on_user_write(StorageIndex s) override {
    const Scope step(entrance_, Synchronize::no);
    const CallRunner::Interrupted interrupted(step->runner);  // the access counts as user code's
    static_cast<void>(host_access(s));
  }

 private:
  using Parts = StepParts<Policy>;
  using Scope = EntryScope<Parts>;

  // ── memory ─────────────────────────────────────────────────────────────────────────────────────

  // False if nothing more can be reclaimed.
  [[nodiscard]] bool make_room_online(Parts& step, Bytes bytes) {
    choice_.give_up(step.follower, "memory ran out");
    step.rematerializer.note_out_of_memory();
    if (!std::exchange(ran_out_, true) && !limit_.throws() && needed_before_)
      limit_.exceed(recorder_.tables().base() + needed_before_(recorder_.recording()));
    step.eviction.begin();
    return step.eviction.make_room(bytes, limit_.enforced());
  }

  // Threads that are not part of the step do not ask before they allocate. The next op makes room
  // for what they have allocated since the last op.
  void make_room_for_others(Parts& step) {
    if (limit_.given() && device_memory().live() > limit_.enforced())
      static_cast<void>(make_room_online(step, {}));
  }

  // ── the end ────────────────────────────────────────────────────────────────────────────────────

  void stop() {
    const Scope step(entrance_, Synchronize::no);
    if (memory_gate() == this) leave_thread();
    limit_.remove();
    try {
      step->follower.leave("the step has ended");
    } catch (...) {  // a copy that did not fit: reading the tensor gives an error
    }
    for (StorageIndex s = 0; s < recorder_.storages().size(); ++s) {
      try {
        if (recorder_.is_on() && recorder_.storages().alive(s)) step->rematerializer.materialize(s);
      } catch (...) {  // reading it throws and says why
      }
    }
    recorder_.stop();
    step->events.let_go();
    if (!finished_) ThisDevice::abandon_step();
  }

  static void leave_thread() {
    memory_gate() = nullptr;
    limit_here() = {};
  }

  StepLimit limit_;
  PlanChoice choice_;
  std::function<std::string()> advice_;
  std::function<Bytes(const Recording& so_far)> needed_before_;
  GuidedStepCounters counters_;
  bool ran_out_ = false, finished_ = false;
  Recorder recorder_;
  mutable Entrance<Parts> entrance_;
};

}  // namespace reprise::guided
