#pragma once
// Carries a plan out around the user's own ops, for as long as they are the planned ones.
//
//   plan    conv  relu  pool  conv'  relu'  grad               user's ops: conv relu pool grad
//                          │   └──────┴── run before grad, into memory of the plan's own ("instances"); when grad reads relu's result
//                          │              through a saved tensor, the bytes go under that tensor
//                          └── conv's and relu's storages are given up here
//
// Each storage instance of the plan lies in a storage of the user's, or here. What the user lets go
// but the plan still wants is kept; what the plan gives up is dropped under whoever holds it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/libtorch/device/cpu/block_takeover.hpp>
#include <reprise/libtorch/guided/guided_stream.hpp>
#include <reprise/libtorch/guided/remaker.hpp>
#include <reprise/libtorch/record/gradient_sums.hpp>

namespace reprise {

class PlanFollower : public Remaker {
 public:
  [[nodiscard]] bool following() const { return stream_ != nullptr; }

 protected:
  using Remaker::Remaker;

  /// From the step's first op on.
  void follow(std::shared_ptr<const PlannedStream> stream) {
    chosen_ = std::move(stream);
    stream_ = chosen_.get();
    instances_.assign(has_plan() ? stream_->plan->resolution().storages.size() : 0, {});
    own_of_.clear();
  }

  /// Another plan, whose stream is the same up to the op that comes now: what it has given up by
  /// now goes; what it has kept and the plan before it has dropped comes back when it is read.
  void enter(std::shared_ptr<const PlannedStream> stream, NodeId now) {
    follow(std::move(stream));
    next_ = now;
    if (!has_plan()) return;
    place_instances(stream_->plan->begin_of(now));
    for (StorageIndex s = 0; s < storages_.size(); ++s) {
      const ValueId newest = recorder_.newest_in(s);
      const bool planned = newest.valid() && recording().values[newest.index].producer.valid();
      if (!planned || marks_[s].instance != no_index || marks_[s].running > 0) continue;
      if (storages_.where(s) == Where::held) let_held_go(s);
      else drop_if_possible(s);
    }
  }

  /// Does everything that the plan has before this node; calls that the recorder added on its own
  /// lie on the way.
  void follow_to(NodeId node, bool to_the_end) {
    while (stream_ != nullptr && next_.index < node.index) {
      run_occurrences(next_);
      if (stream_ == nullptr) return;
      const NodeId here = next_;
      if (!same_call(here, recording().calls[here.index]) || !same_results(here))
        return leave_plan("another op came");
      finish_node(here);
    }
    if (stream_ == nullptr) return;
    if (to_the_end && node.index != stream_->recording->calls.size())
      leave_plan("the step ended early");
    else run_occurrences(node);
  }

  /// The user's op has run: its storages are the plan's instances; then what the plan gives up.
  void finish_node(NodeId node) {
    next_ = NodeId{node.index + 1};
    if (!has_plan()) return;
    const Call& call = recording().calls[node.index];
    const Resolution& resolution = stream_->plan->resolution();
    const std::uint32_t i = stream_->plan->first(node);
    for (std::size_t k = 0; k < call.results.size(); ++k) {
      const std::uint32_t value = resolution.outputs[i][k];
      if (value == no_index) continue;
      const std::uint32_t instance = resolution.values[value].storage;
      const StorageIndex s = recorder_.storage_of(call.results[k].value);
      if (!recording().values[call.results[k].value.index].alias_of.valid())
        set_newest(instance, call.results[k].value);
      const bool moves =
          overwritten_summand(*stream_->graph, recording(), call.results[k].value).valid();
      const bool stale =
          instances_[instance].own && (moves || call.results[k].from == ResultSlot::From::argument);
      // the user's copy could not be dropped, and it is the one that was written
      if (stale) release_own(instance);
      if (moves) leave_user(instance);
      if (resolution.storages[instance].made_by != i && !stale && !moves) continue;
      instances_[instance].live = true;
      instances_[instance].user = s;
      marks_[s].instance = instance;
    }
    free_after(i);
  }

  // ── a sum over one of its summands ─────────────────────────────────────────────────────────────

  /// The op is about to run: where the plan has its result lie where one of its operands lies, it
  /// will. Only where that could be made again, as everything that is dropped: somebody may hold
  /// it.
  void begin_takeover(const Call& call) {
    if (!has_plan() || call.kind != CallKind::op) return;
    const Call& known = stream_->recording->calls[recorder_.calls_seen()];
    if (known.results.size() != 1) return;
    const ValueId summand =
        overwritten_summand(*stream_->graph, *stream_->recording, known.results[0].value);
    if (!summand.valid()) return;
    const StorageIndex s = recorder_.storage_of(summand);
    if (s == no_storage || storages_.where(s) != Where::resident || marks_[s].pinned ||
        !makeable(recorder_.newest_in(s)))
      return;
    if (recorder_.host_has_written(s)) return;
    c10::Storage operand = storages_.memory_of(s);
    if (!CountingAllocator::owns(operand.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()))
      return;
    taken_from_ = s;
    takeover_.emplace(std::move(operand));
  }
  /// It has run, and what it made is known.
  void end_takeover(const at::Tensor& result) {
    if (takeover_->taken_by(result))
      takeover_->leave(storages_.hand_over(
          taken_from_, detail::describe(recording(), recorder_.newest_in(taken_from_))));
    takeover_.reset();
  }
  /// It threw, or was never heard of again.
  void undo_takeover() {
    if (!takeover_) return;
    if (takeover_->taken()) spoil(taken_from_);
    takeover_.reset();
  }
  [[nodiscard]] bool taking_over() const { return takeover_.has_value(); }

  [[nodiscard]] bool same_call(NodeId node, const Call& call) {
    const Recording& known = *stream_->recording;
    return node.index < known.calls.size() && detail::same_reads(call, known.calls[node.index]) &&
           same_values(known);
  }
  [[nodiscard]] bool same_results(NodeId node) {
    return detail::same_results(recording().calls[node.index],
                                stream_->recording->calls[node.index]) &&
           same_values(*stream_->recording);
  }

  /// From here on the step goes on without the plan. What the plan holds goes under the user's
  /// tensors, or is let go.
  void leave_plan(const char* why) {
    if (stream_ == nullptr) return;
    settle_instances();
    if (in_occurrence_) {  // its operands are left to it
      if (leave_after_ == nullptr) leave_after_ = why;
      return;
    }
    counters_.carried_out = has_plan() && next_.index >= stream_->plan->last_again().index;
    counters_.left_at = next_.index;
    counters_.left_because = why;
    stream_ = nullptr;
    for (Mark& mark : marks_) mark.instance = no_index;
  }

  /// The user's last tensor over it has died: whether the plan wants its bytes.
  [[nodiscard]] bool wanted_by_plan(StorageIndex s) const {
    if (marks_[s].instance != no_index) return instances_[marks_[s].instance].live;
    // from before the step: perhaps something is still to be made from it
    const ValueId v = recorder_.newest_in(s);
    if (!has_plan() || !v.valid() || v.index >= stream_->graph->value_count() ||
        recording().values[v.index].producer.valid())
      return false;
    return stream_->plan->used_until(v) >= stream_->plan->begin_of(next_);
  }

  /// The plan has made this storage's contents again, in memory of its own: they go under the
  /// user's tensors.
  bool supply(StorageIndex s) override {
    if (stream_ == nullptr) return false;
    const auto own = own_of_.find(recorder_.newest_in(s).index);
    if (own == own_of_.end()) return false;
    Instance& instance = instances_[own->second];
    if (instance.operand) return false;  // it cannot be taken from under what runs
    cpu_memory().move_out(storages_.bytes(s).count);
    storages_.put_back(
        s, std::exchange(instance.own.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(),
                         c10::DataPtr{}));
    instance.own = {};
    instance.user = s;
    marks_[s].instance = own->second;
    own_of_.erase(own);
    return true;
  }

  [[nodiscard]] bool has_elsewhere(ValueId v) const override {
    if (stream_ == nullptr || !own_of_.contains(v.index)) return false;
    const StorageIndex s = recorder_.storage_of(v);  // where settle_instances() puts it
    return recorder_.newest_in(s) == v &&
           (storages_.where(s) == Where::dropped || storages_.where(s) == Where::gone);
  }
  /// What it may have to be made from, and cannot be made again itself, must not lie here alone.
  void before_remaking() override {
    remade_ = true;
    for (const auto& [value, instance] : own_of_)
      if (stream_ != nullptr && !makeable(ValueId{value}))
        return leave_plan("something else has to be made again");
  }

  const PlannedStream* stream_ = nullptr;  // while it is followed
  // something that nobody held when the step was planned, or that the host took a pointer to
  bool remade_ = false;

 private:
  /// One of the plan's storage instances: in the user's storage, or here.
  struct Instance {
    bool live = false;
    StorageIndex user = no_storage;
    c10::Storage own{};
    ValueId newest{};
    bool operand = false;  ///< of what runs again just now
  };

  [[nodiscard]] bool has_plan() const { return stream_ != nullptr && stream_->plan.has_value(); }

  // What the plan has made again goes under the user's tensors, is held for what may have to be
  // made from it, or is let go.
  void settle_instances() {
    for (std::uint32_t i = 0; i < instances_.size(); ++i) {
      if (!instances_[i].own || instances_[i].operand) continue;
      const StorageIndex s = recorder_.storage_of(instances_[i].newest);
      const bool newest = recorder_.newest_in(s) == instances_[i].newest;
      // perhaps from another instance of it
      if (newest && storages_.where(s) == Where::dropped && supply(s) && !instances_[i].own)
        continue;
      if (newest && storages_.where(s) == Where::gone) {
        forget_own(i);
        storages_.hold(s, std::exchange(instances_[i].own, {}));
        instances_[i].user = s;
        came_back(s);
      } else {
        release_own(i);
      }
    }
  }

  // What the plan has at this point lies in the user's storages.
  void place_instances(std::uint32_t here) {
    const Resolution& resolution = stream_->plan->resolution();
    for (const ValueInstance& value : resolution.values) {
      if (value.made_by == no_index || value.made_by >= here ||
          stream_->graph->value(value.value).alias_of.valid())
        continue;
      const StorageInstance& lies_in = resolution.storages[value.storage];
      const StorageIndex s = recorder_.storage_of(value.value);
      if (lies_in.persistent || lies_in.last < here || s == no_storage ||
          recorder_.newest_in(s) != value.value)
        continue;
      leave_user(value.storage);
      instances_[value.storage] = {true, s, {}, value.value, false};
      marks_[s].instance = value.storage;
    }
  }

  // The instance lies elsewhere from now on.
  void leave_user(std::uint32_t instance) {
    const StorageIndex s = instances_[instance].user;
    if (s != no_storage && marks_[s].instance == instance) marks_[s].instance = no_index;
  }

  void run_occurrences(NodeId before) {
    if (before.index > stream_->recording->calls.size()) return leave_plan("the step goes on");
    if (!has_plan()) return;
    const FollowedPlan& plan = *stream_->plan;
    for (std::uint32_t i = plan.begin_of(before); i < plan.end_of(before); ++i) {
      run_occurrence(i);
      if (stream_ == nullptr) return;
      free_after(i);
      if (stream_ == nullptr) return;
    }
  }

  void run_occurrence(std::uint32_t i) {
    in_occurrence_ = true;
    leave_after_ = nullptr;
    const auto existing_peaks = cpu_memory().existing_peaks();
    try {
      run_again_as_planned(i);
    } catch (...) {
      end_occurrence(i);
      throw;
    }
    end_occurrence(i);
    cpu_memory().forget_existing_peaks_since(existing_peaks);
  }

  void end_occurrence(std::uint32_t i) {
    for (std::uint32_t value : stream_->plan->resolution().inputs[i])
      instances_[stream_->plan->resolution().values[value].storage].operand = false;
    in_occurrence_ = false;
    if (leave_after_ != nullptr) leave_plan(leave_after_);
  }

  void run_again_as_planned(std::uint32_t i) {
    const NodeId node = stream_->plan->schedule()[i];
    const Call& call = recording().calls[node.index];
    static_cast<void>(settle_pointer_writes(call));
    // by the host, not in the step that was planned
    if (!call.repeatable) return leave_plan("what something would be made from has changed");
    const Resolution& resolution = stream_->plan->resolution();
    Needed needed(marks_);
    std::vector<at::Tensor> tensors(call.reads.size());
    for (std::size_t k = 0; k < call.reads.size(); ++k) {
      if (!call.reads[k].value.valid() || is_moved_statistic(call, call.reads[k])) continue;
      tensors[k] = planned_tensor(i, node, call.reads[k].value, needed);
      if (!tensors[k].defined())
        return leave_plan("what is needed to make something again has gone");
    }
    std::vector<c10::IValue> results;
    if (call.kind == CallKind::op) results = run_again(call, node, tensors);
    for (std::size_t k = 0; k < call.results.size(); ++k) {
      const std::uint32_t value = resolution.outputs[i][k];
      if (value == no_index) continue;
      const std::uint32_t instance = resolution.values[value].storage;
      if (resolution.storages[instance].made_by == i && !instances_[instance].live) {
        const at::Tensor tensor = result_again(call, call.results[k], results, tensors);
        if (!tensor.defined()) return leave_plan("an op made less when it ran again");
        instances_[instance] = {true, no_storage, tensor.storage(), {}, false};
        cpu_memory().move_out(-resolution.storages[instance].bytes.count);
      }
      if (!recording().values[call.results[k].value.index].alias_of.valid())
        set_newest(instance, call.results[k].value);
    }
  }

  // None where it has gone.
  at::Tensor planned_tensor(std::uint32_t occurrence, NodeId node, ValueId v, Needed& needed) {
    const RecordedValue& root = recording().values[detail::root_of(recording(), v).index];
    const auto inputs = stream_->graph->inputs(node);
    for (std::size_t k = 0; k < inputs.size() && root.producer.valid(); ++k) {
      if (inputs[k] != v) continue;
      Instance& instance = instances_[stream_->plan->resolution()
                                          .values[stream_->plan->resolution().inputs[occurrence][k]]
                                          .storage];
      instance.operand = true;
      if (instance.own) return over(instance.own, v);
      if (instance.user != no_storage) return tensor_in(instance.user, v, needed);
    }
    if (root.origin == Origin::scalar) return tensor_of(v);
    return tensor_in(recorder_.storage_of(v), v, needed);
  }

  at::Tensor tensor_in(StorageIndex s, ValueId v, Needed& needed) {
    if (s == no_storage || storages_.where(s) == Where::gone || !holds(s, v)) return {};
    needed.add(s);
    bring_back(s);
    if (recorder_.host_has_written(s)) throw written_too_late(recorder_.maker_of(v));
    const c10::Storage memory = storages_.memory_of(s);
    return memory ? over(memory, v) : at::Tensor();
  }

  // Whether the contents of the storage, wherever they are, are this value's.
  [[nodiscard]] bool holds(StorageIndex s, ValueId v) const {
    const ValueId maker = recorder_.maker_of(v);
    return !marks_[s].spoiled && (recorder_.is_persistent(s) || recorder_.newest_in(s) == maker);
  }

  void free_after(std::uint32_t occurrence) {
    for (std::uint32_t instance : stream_->plan->frees(occurrence)) {
      Instance& it = instances_[instance];
      if (const ValueId v = stream_->plan->at_start(instance); v.valid()) {
        const StorageIndex s =
            v.index < recording().values.size() ? recorder_.storage_of(v) : no_storage;
        let_held_go(s);
        continue;
      }
      if (!it.live) continue;
      it.live = false;
      if (it.own) let_own_go(instance);
      else if (it.user != no_storage) give_up(it.user, instance);
      if (stream_ == nullptr) return;
    }
  }

  // The plan does not need it any more; but perhaps something that was dropped can only be made
  // from it.
  void let_own_go(std::uint32_t index) {
    const ValueId v = instances_[index].newest;
    if (makeable(v) || !has_elsewhere(v) || forget_source(v)) release_own(index);
    else leave_plan("what is dropped can only be made from what the plan gives up");
  }

  void release_own(std::uint32_t index) {
    forget_own(index);
    instances_[index].own = {};
    cpu_memory().move_out(stream_->plan->resolution().storages[index].bytes.count);
  }

  void give_up(StorageIndex s, std::uint32_t instance) {
    if (marks_[s].instance != instance) return;
    marks_[s].instance = no_index;
    if (storages_.where(s) == Where::held) return let_held_go(s);
    drop_if_possible(s);
  }

  void drop_if_possible(StorageIndex s) {
    const ValueId newest = recorder_.newest_in(s);
    if (storages_.where(s) != Where::resident || marks_[s].pinned) return;
    // the host may be about to fill it, and nobody would tell
    if (!watches_host() && marks_[s].unread && marks_[s].factory) return;
    if (makeable(newest) && !recorder_.find_host_writes(s))
      storages_.drop(s, detail::describe(recording(), newest));
  }

  // Notes which value lies in an instance now, so that it is found when the user's op reads it.
  void set_newest(std::uint32_t index, ValueId newest) {
    Instance& instance = instances_[index];
    if (instance.own && instance.newest.valid()) forget_own(index);
    instance.newest = newest;
    if (instance.own) own_of_[newest.index] = index;
  }
  void forget_own(std::uint32_t index) {
    const auto it = own_of_.find(instances_[index].newest.index);
    if (it != own_of_.end() && it->second == index) own_of_.erase(it);
  }

  // Values that have come since the last look.
  [[nodiscard]] bool same_values(const Recording& known) {
    for (; compared_ < recording().values.size(); ++compared_)
      if (compared_ >= known.values.size() ||
          !detail::same_value(recording().values[compared_], known.values[compared_]))
        return false;
    return true;
  }

  std::optional<BlockTakeover> takeover_;  // while such an op runs
  StorageIndex taken_from_ = no_storage;
  std::shared_ptr<const PlannedStream> chosen_;
  std::vector<Instance> instances_;  // by the plan's storage instance
  // value -> the instance here that holds it
  std::unordered_map<std::uint32_t, std::uint32_t> own_of_;
  NodeId next_{0};
  std::size_t compared_ = 0;
  bool in_occurrence_ = false;
  const char* leave_after_ = nullptr;  // the occurrence that runs, and why
};

}  // namespace reprise
