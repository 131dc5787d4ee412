#pragma once
// The parts of a guided step, and the parts that each of them refers to.
//
//   events ── residency          bytes leave and return; what happens to storages behind the dispatcher
//   lineage                      what can be recomputed from what
//   runner                       recomputes a recorded call
//   rematerializer               has events, lineage, runner: restores
//   follower                     has rematerializer: follows a plan, and owns its copies
//   eviction                     has lineage: picks victims when no plan decides
//   notes, takeover, pins        what the user's ops do
//
// Only an EntryScope gives access to them (entry_scope.hpp).

#include <span>
#include <utility>

#include <reprise/libtorch/guided/online_eviction.hpp>
#include <reprise/libtorch/guided/op_notes.hpp>
#include <reprise/libtorch/guided/plan_follower.hpp>
#include <reprise/libtorch/guided/summand_donation.hpp>

namespace reprise::guided {

template <EvictionPolicy Policy>
struct StepParts {
  StepParts(Recorder& step_recorder, SpillStore& file, Policy policy, GuidedStepCounters& counters,
            StorageOwner& owner, RematerializerListener& listener)
      : recorder(step_recorder),
        events(recorder.storages(), file, recorder.guard(), owner),
        lineage(recorder.tables(), events.residency()),
        runner(recorder, events.residency(), lineage, counters),
        rematerializer(recorder, events, lineage, runner, counters, listener),
        follower(recorder, events.residency(), lineage, runner, rematerializer, counters, listener),
        takeover(recorder, events.residency(), lineage),
        eviction(recorder, events, lineage, counters, std::move(policy)),
        notes(recorder, events, lineage, runner, rematerializer, listener),
        pins(recorder.storages()) {
    events.residency().explain_errors("call step.pin(tensor) first: ",
                                      "; ops need no such call, and on a thread of its own say "
                                      "`auto joined = step.join_thread();` "
                                      "first");
  }

  /// For EntryScope.
  void synchronize(bool outermost) {
    if (outermost) events.process_pending();
    notes.add_new_storages();
    lineage.grow();
  }

  // ── around an op ───────────────────────────────────────────────────────────────────────────────

  /// The op's operands stay resident until end_op().
  void pin_operands(const Call& call) {
    for_each_read(call, [this](StorageIndex s) {
      pins.add(s);
      for (const StorageIndex other : sharing_with(s)) pins.add(other);
    });
  }
  /// Materializes the op's operands, and the storages at the same memory, which a kernel reads
  /// through the operand's pointer.
  void materialize_operands(const Call& call) {
    for_each_read(call, [&](StorageIndex s) {
      if (!call.facts->views_only) {
        rematerializer.materialize(s);
        for (const StorageIndex other : sharing_with(s)) rematerializer.materialize(other);
      }
      if (may_linger(call)) notes.linger(s);
    });
  }
  /// The op is about to overwrite the storage.
  void before_overwrite(StorageIndex s) {
    const auto end = [this](StorageIndex written) {
      rematerializer.before_overwrite(written);
      events.residency().writes().stop(written);
    };
    end(s);
    for (const StorageIndex other : sharing_with(s)) end(other);
  }
  void end_op() {
    pins.release();
    rematerializer.set_op(nullptr);
  }

  /// User code has, or had, a pointer to the storage: it stays resident.
  void pin_for_user(StorageIndex s) {
    recorder.storages()[s].use.pinned = true;
    eviction.forget(s);
  }

  Recorder& recorder;
  StorageEvents events;
  Lineage lineage;
  CallRunner runner;
  Rematerializer rematerializer;
  PlanFollower follower;
  SummandDonation takeover;
  OnlineEviction<Policy> eviction;
  OpNotes notes;
  ScopedPins pins;  ///< of the running op

 private:
  [[nodiscard]] std::span<const StorageIndex> sharing_with(StorageIndex s) const {
    return recorder.user_access().sharing_memory_with(s);
  }
  template <class Visit>
  void for_each_read(const Call& call, const Visit& visit) const {
    for (const ArgumentSlot& read : call.reads)
      if (const StorageIndex s = recorder.tables().storage_of(read.value); s != no_storage)
        visit(s);
  }
};

}  // namespace reprise::guided
