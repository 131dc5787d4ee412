#pragma once
// A FollowedPlan is a schedule in the form in which a step follows it: what to recompute before
// each node of the user's own order, and what to evict after each occurrence.
//
//   schedule      conv  relu  pool  conv  relu  grad          own order: conv relu pool grad
//   before grad                     recompute conv, relu
//   after pool                evict conv's and relu's storages
//
// The order of first occurrences is the graph's own: the user's code decides it.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/simulate.hpp>

namespace reprise::planning {

class FollowedPlan {
 public:
  /// Throws Errc::bad_schedule if the schedule breaks a rule or changes the order.
  FollowedPlan(const StepGraph& graph, Schedule schedule) : schedule_(std::move(schedule)) {
    const Simulation cost = simulate(graph, schedule_);
    if (!cost.valid) throw Error(Errc::bad_schedule, cost.violation->message);
    peak_ = cost.peak;
    resolution_ = resolve(graph, schedule_);
    place_nodes(graph);
    std::vector<std::vector<std::uint32_t>> at(schedule_.size());
    for (std::size_t i = 0; i < resolution_.storages.size(); ++i) {
      const StorageInstance& s = resolution_.storages[i];
      if (!s.persistent && s.last < schedule_.size())
        at[s.last].push_back(static_cast<std::uint32_t>(i));
    }
    for (const auto& list : at) frees_.push_back(list);
    used_until_.assign(graph.value_count(), 0);
    at_start_.assign(resolution_.storages.size(), ValueId{});
    for (const ValueInstance& v : resolution_.values) {
      if (v.made_by != no_index) continue;
      used_until_[v.value.index] = resolution_.storages[v.storage].last;
      if (graph.value(v.value).owns()) at_start_[v.storage] = v.value;
    }
  }

  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] const Resolution& resolution() const { return resolution_; }
  [[nodiscard]] Bytes peak() const { return peak_; }
  /// The node's first occurrence.
  [[nodiscard]] std::uint32_t first(NodeId n) const { return first_[n.index]; }
  [[nodiscard]] std::size_t node_count() const { return first_.size(); }
  /// Recomputations between the previous node and this one: the occurrences from begin_of(n) to
  /// first(n), without first(n). For one past the last node: the recomputations at the end.
  [[nodiscard]] std::uint32_t begin_of(NodeId n) const {
    return n.index == 0 ? 0 : first_[n.index - 1] + 1;
  }
  [[nodiscard]] std::uint32_t end_of(NodeId n) const {
    return n.index < first_.size() ? first_[n.index] : static_cast<std::uint32_t>(schedule_.size());
  }
  /// Storage instances that are evicted or freed after the occurrence.
  [[nodiscard]] auto frees(std::uint32_t occurrence) const { return frees_[occurrence]; }
  /// For an initial or persistent value: the last occurrence that uses it.
  [[nodiscard]] std::uint32_t used_until(ValueId v) const { return used_until_[v.index]; }
  /// The owner of a storage instance from before the step; none for a storage that a node
  /// allocates.
  [[nodiscard]] ValueId at_start(std::uint32_t instance) const { return at_start_[instance]; }
  /// From this node on, nothing is recomputed.
  [[nodiscard]] NodeId last_again() const { return last_again_; }
  [[nodiscard]] std::size_t recomputed() const { return schedule_.size() - first_.size(); }

 private:
  void place_nodes(const StepGraph& graph) {
    first_.assign(graph.node_count(), no_index);
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < schedule_.size(); ++i) {
      if (first_[schedule_[i].index] != no_index) {
        last_again_ = NodeId{next};
        continue;
      }
      if (schedule_[i].index != next++)
        throw Error(
            Errc::bad_schedule,
            "node " + std::to_string(schedule_[i].index) +
                " runs before an earlier one: a plan that is followed keeps the graph's own order");
      first_[schedule_[i].index] = static_cast<std::uint32_t>(i);
    }
  }

  Schedule schedule_;
  Resolution resolution_;
  Bytes peak_{};
  NodeId last_again_{0};
  std::vector<std::uint32_t> first_;       // by node
  FlatLists<std::uint32_t> frees_;         // by occurrence
  std::vector<std::uint32_t> used_until_;  // by value
  std::vector<ValueId> at_start_;          // by storage instance
};

}  // namespace reprise::planning
