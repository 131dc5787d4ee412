#pragma once
// The PlanFollower follows a plan while the user's code runs. Between two user ops, it runs the
// recomputations and evictions that the plan has at this position. It stops when the user's op
// sequence diverges.
//
//   plan    conv  relu  pool  conv'  relu'  grad               user's ops: conv relu pool grad
//                          │   └──────┴── recomputed before grad, into copies of the plan's own; when grad reads relu's result
//                          │              through a saved tensor, the bytes go under that tensor
//                          └── conv's and relu's storages are evicted here
//
// The bytes of a planned storage instance are in the user's storage or in a copy
// (plan_instances.hpp). If the user's last tensor dies and the plan still needs the bytes, they are
// orphaned. If the plan evicts a storage that the user still refers to, the user's tensors remain
// and have no bytes until an op reads them.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reprise/libtorch/guided/occurrence_runner.hpp>
#include <reprise/libtorch/guided/plan_instances.hpp>
#include <reprise/libtorch/guided/planned_sequence.hpp>
#include <reprise/libtorch/guided/rematerializer.hpp>
#include <reprise/libtorch/record/gradient_sums.hpp>

namespace reprise::guided {

class PlanFollower final : public ValueSource {
 public:
  PlanFollower(Recorder& recorder, Residency& residency, Lineage& lineage, CallRunner& runner,
               Rematerializer& rematerializer, GuidedStepCounters& counters,
               RematerializerListener& listener)
      : recorder_(recorder),
        tables_(recorder.tables()),
        residency_(residency),
        lineage_(lineage),
        rematerializer_(rematerializer),
        counters_(counters),
        listener_(listener),
        instances_(recorder.tables(), residency),
        occurrences_(recorder, residency, runner, rematerializer, instances_) {
    lineage_.ask(*this);
  }
  PlanFollower(const PlanFollower&) = delete;
  PlanFollower& operator=(const PlanFollower&) = delete;

  [[nodiscard]] bool is_following() const { return sequence_ != nullptr; }
  /// The step recomputed something that the plan does not recompute, or user code used a pointer.
  /// The predicted peak does not hold.
  [[nodiscard]] bool recomputed_off_plan() const { return recomputed_off_plan_; }
  void note_off_plan() { recomputed_off_plan_ = true; }
  /// Whether the plan's call at this node is recomputable; true without a plan.
  [[nodiscard]] bool expects_repeatable(NodeId node) const {
    return sequence_ == nullptr || sequence_->recording->calls[node.index].repeatable;
  }

  /// From the step's first op on.
  void follow(std::shared_ptr<const PlannedSequence> sequence) {
    chosen_ = std::move(sequence);
    sequence_ = chosen_.get();
    recomputed_before_ = 0;
    instances_.reset(has_plan() ? &*sequence_->plan : nullptr);
  }

  /// Changes to another plan whose sequence is the same up to the present op. Evicts what the new
  /// plan has evicted by now. If the new plan keeps something that the old plan evicted, it is
  /// restored when an op reads it.
  void enter(std::shared_ptr<const PlannedSequence> sequence, NodeId now) {
    follow(std::move(sequence));
    next_ = now;
    recomputed_before_ = now.index;
    if (!has_plan()) return;
    instances_.place(*sequence_->graph, sequence_->plan->begin_of(now));
    const StorageRecords& records = residency_.records();
    for (StorageIndex s = 0; s < records.size(); ++s) {
      const ValueId latest = tables_.latest_version(s);
      const bool planned = latest.valid() && tables_.value(latest).producer.valid();
      if (!planned || instances_.instance_in(s) != no_index || records[s].use.pin_count > 0)
        continue;
      if (residency_.state(s) == ResidencyState::orphaned) rematerializer_.release_orphan(s);
      else evict_if_possible(s);
    }
  }

  /// Does everything that the plan has before this node. Calls that the recorder added by itself
  /// may come before the node.
  void advance_to(NodeId node, bool to_the_end) {
    while (sequence_ != nullptr && next_.index < node.index) {
      run_occurrences(next_);
      if (sequence_ == nullptr) return;
      const NodeId here = next_;
      if (!is_call(here, recording().calls[here.index]) || !has_results(here))
        return leave("another op came");
      finish_node(here);
    }
    if (sequence_ == nullptr) return;
    if (to_the_end && node.index != sequence_->recording->calls.size())
      leave("the step ended early");
    else run_occurrences(node);
  }

  /// The user's op has run: its storages become the plan's instances. Then the plan frees and
  /// evicts.
  void finish_node(NodeId node) {
    next_ = NodeId{node.index + 1};
    if (!has_plan()) return;
    const Call& call = recording().calls[node.index];
    const Resolution& resolution = sequence_->plan->resolution();
    const std::uint32_t i = sequence_->plan->first(node);
    for (std::size_t k = 0; k < call.results.size(); ++k) {
      const std::uint32_t value = resolution.outputs[i][k];
      if (value == no_index) continue;
      const ValueId result = call.results[k].value;
      const std::uint32_t instance = resolution.values[value].storage;
      if (!recording().values[result.index].alias_of.valid())
        instances_.set_latest(instance, result);
      const bool moves = overwritten_summand(*sequence_->graph, recording(), result).valid();
      const bool stale = instances_[instance].copy &&
                         (moves || call.results[k].from == ResultSlot::From::argument);
      // the user's storage could not be evicted, and the op wrote that storage
      if (stale) instances_.release_copy(instance);
      if (moves) instances_.leave_user(instance);
      if (resolution.storages[instance].made_by != i && !stale && !moves) continue;
      instances_.put_in_user(instance, tables_.storage_of(result));
    }
    free_after(i);
  }

  /// The summand whose block the plan donates to the op's result; none for most ops.
  [[nodiscard]] ValueId summand_of_next(const Call& call) const {
    if (!has_plan() || call.kind != CallKind::op) return {};
    const Call& known = sequence_->recording->calls[tables_.calls_seen()];
    if (known.results.size() != 1) return {};
    return overwritten_summand(*sequence_->graph, *sequence_->recording, known.results[0].value);
  }

  [[nodiscard]] bool is_call(NodeId node, const Call& call) {
    const Recording& known = *sequence_->recording;
    return node.index < known.calls.size() && same_reads(call, known.calls[node.index]) &&
           has_values(known);
  }
  [[nodiscard]] bool has_results(NodeId node) {
    return same_results(recording().calls[node.index], sequence_->recording->calls[node.index]) &&
           has_values(*sequence_->recording);
  }

  /// From here on, the step goes on without the plan. The plan's copies are attached to the user's
  /// tensors or freed.
  void leave(const char* why) {
    if (sequence_ == nullptr) return;
    settle_copies();
    if (in_occurrence_) {  // the running occurrence still needs its operands
      if (leave_after_ == nullptr) leave_after_ = why;
      return;
    }
    counters_.carried_out =
        has_plan() && (sequence_->plan->recomputed() == 0 ||
                       recomputed_before_ > sequence_->plan->last_again().index);
    counters_.diverged_at = next_.index;
    counters_.divergence = why;
    sequence_ = nullptr;
    instances_.leave_all();
  }

  /// The user's last tensor over the storage has died: whether the plan needs its bytes.
  [[nodiscard]] bool needs(StorageIndex s) const {
    if (sequence_ == nullptr) return false;
    if (instances_.instance_in(s) != no_index) return instances_.needs(s);
    // from before the step: a later recomputation may start from it
    const ValueId v = tables_.latest_version(s);
    if (!has_plan() || !v.valid() || v.index >= sequence_->graph->value_count() ||
        tables_.value(v).producer.valid())
      return false;
    return sequence_->plan->used_until(v) >= sequence_->plan->begin_of(next_);
  }

  // ── for the Rematerializer ─────────────────────────────────────────────────────────────────────

  bool materialize_from_plan(StorageIndex s) override {
    return sequence_ != nullptr && instances_.attach(s);
  }
  [[nodiscard]] bool plan_holds(ValueId v) const override {
    return sequence_ != nullptr && instances_.holds(v);
  }
  // A recomputation may start from a value that cannot be recomputed. Such a value must not be in a
  // copy alone.
  void before_recompute() override {
    recomputed_off_plan_ = true;
    if (sequence_ != nullptr &&
        instances_.any_copy([&](ValueId v) { return !lineage_.rematerializable(v); }))
      leave("something else has to be recomputed");
  }

 private:
  [[nodiscard]] const Recording& recording() const { return tables_.recording(); }
  [[nodiscard]] bool has_plan() const {
    return sequence_ != nullptr && sequence_->plan.has_value();
  }

  // Copies are attached to the user's tensors, kept as sources, or freed.
  void settle_copies() {
    for (std::uint32_t i = 0; i < instances_.size(); ++i) {
      if (!instances_[i].copy || instances_[i].operand) continue;
      const StorageIndex s = tables_.storage_of(instances_[i].latest);
      const bool latest = tables_.latest_version(s) == instances_[i].latest;
      // perhaps from another instance of it
      if (latest && residency_.state(s) == ResidencyState::evicted && instances_.attach(s) &&
          !instances_[i].copy)
        continue;
      if (latest && residency_.state(s) == ResidencyState::dead) {
        instances_.make_orphan(i, s);
        listener_.on_restored(s);
      } else {
        instances_.release_copy(i);
      }
    }
  }

  // ── recomputation ──────────────────────────────────────────────────────────────────────────────

  void run_occurrences(NodeId before) {
    if (before.index > sequence_->recording->calls.size()) return leave("the step goes on");
    if (!has_plan()) return;
    const FollowedPlan& plan = *sequence_->plan;
    for (std::uint32_t i = plan.begin_of(before); i < plan.end_of(before); ++i) {
      run_occurrence(i);
      if (sequence_ == nullptr) return;
      free_after(i);
      if (sequence_ == nullptr) return;
    }
    recomputed_before_ = before.index + 1;
  }

  void run_occurrence(std::uint32_t i) {
    in_occurrence_ = true;
    leave_after_ = nullptr;
    const auto existing_peaks = device_memory().existing_peaks();
    try {
      if (const char* why = occurrences_.run(*sequence_, i); why != nullptr) leave(why);
    } catch (...) {
      end_occurrence(i);
      throw;
    }
    end_occurrence(i);
    device_memory().forget_existing_peaks_since(existing_peaks);
  }

  void end_occurrence(std::uint32_t i) {
    const Resolution& resolution = sequence_->plan->resolution();
    for (std::uint32_t value : resolution.inputs[i])
      instances_[resolution.values[value].storage].operand = false;
    in_occurrence_ = false;
    if (leave_after_ != nullptr) leave(leave_after_);
  }

  // ── eviction ───────────────────────────────────────────────────────────────────────────────────

  void free_after(std::uint32_t occurrence) {
    for (std::uint32_t i : sequence_->plan->frees(occurrence)) {
      PlanInstances::Instance& instance = instances_[i];
      if (const ValueId v = sequence_->plan->at_start(i); v.valid()) {
        if (v.index < recording().values.size())
          rematerializer_.release_orphan(tables_.storage_of(v));
        continue;
      }
      if (!instance.live) continue;
      instance.live = false;
      if (instance.copy) free_copy(i);
      else if (instance.user != no_storage) evict_instance(instance.user, i);
      if (sequence_ == nullptr) return;
    }
  }

  // The plan does not need the copy. But an evicted value may be recomputable from it only.
  void free_copy(std::uint32_t i) {
    const ValueId v = instances_[i].latest;
    if (lineage_.rematerializable(v) || !plan_holds(v) || rematerializer_.try_release_source(v))
      instances_.release_copy(i);
    else leave("what is evicted can only be recomputed from what the plan frees");
  }

  void evict_instance(StorageIndex s, std::uint32_t i) {
    if (instances_.instance_in(s) != i) return;
    instances_.leave_user(i);
    if (residency_.state(s) == ResidencyState::orphaned) return rematerializer_.release_orphan(s);
    evict_if_possible(s);
  }

  void evict_if_possible(StorageIndex s) {
    const StorageRecord::Use& use = residency_.records()[s].use;
    const ValueId latest = tables_.latest_version(s);
    if (residency_.state(s) != ResidencyState::resident || use.pinned) return;
    // user code may be about to write the storage, and LibTorch does not report that
    if (!watches_host() && use.unread && use.user_may_fill) return;
    if (lineage_.rematerializable(latest) && !recorder_.user_access().find_writes(s))
      residency_.evict(s, recording().describe(latest));
  }

  // Whether values have been added since the last call.
  [[nodiscard]] bool has_values(const Recording& known) {
    for (; compared_ < recording().values.size(); ++compared_)
      if (compared_ >= known.values.size() ||
          !same_value(recording().values[compared_], known.values[compared_]))
        return false;
    return true;
  }

  Recorder& recorder_;
  const RecordingTables& tables_;
  Residency& residency_;
  Lineage& lineage_;
  Rematerializer& rematerializer_;
  GuidedStepCounters& counters_;
  RematerializerListener& listener_;
  PlanInstances instances_;
  OccurrenceRunner occurrences_;
  std::shared_ptr<const PlannedSequence> chosen_;
  const PlannedSequence* sequence_ = nullptr;  // while the follower follows it
  NodeId next_{0};
  std::size_t recomputed_before_ = 0;  // all recomputations before nodes of lower index have run
  std::size_t compared_ = 0;
  bool in_occurrence_ = false;
  const char* leave_after_ = nullptr;  // the reason to leave after the running occurrence
  bool recomputed_off_plan_ = false;
};

}  // namespace reprise::guided
