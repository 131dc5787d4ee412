#pragma once
// Makes any strategy's schedule obey the nodes that the user has pinned.
//
// ```cpp
// request.keep = {norm};       // breaks_pins() refuses a schedule that recomputes norm
// request.recompute = {relu};  // recompute_pinned() recomputes relu before its last reader
// ```
// The planner does this after the strategy, so a strategy need not know about pins.
// them.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <reprise/plan/request.hpp>
#include <reprise/plan/search/live_schedule.hpp>

namespace reprise::planning {

/// Whether a node that must be kept runs more than once.
[[nodiscard]] inline bool breaks_pins(const StepGraph& graph, std::span<const NodeId> schedule,
                                      const PlanRequest& request) {
  const auto runs = run_counts(graph, schedule);
  return std::any_of(request.keep.begin(), request.keep.end(),
                     [&](NodeId n) { return runs[n.index] > 1; });
}

// The slot of the last read of any result of the node's only occurrence; none without a read.
[[nodiscard]] inline std::uint32_t last_read_of(const LiveSchedule& live, std::uint32_t n) {
  std::uint32_t last = LiveSchedule::none;
  const auto x = live.occurrences(n).front();
  for (std::size_t k = 0; k < live.facts().outputs(n).size(); ++k) {
    const std::uint32_t read = live.last_read(live.made_by(x, k));
    if (read != LiveSchedule::none && (last == LiveSchedule::none || read > last)) last = read;
  }
  return last;
}

/// The schedule in which each pinned node is recomputed, if that is valid and inside the budget.
[[nodiscard]] inline Schedule recompute_pinned(const StepGraph& graph, Schedule schedule,
                                               const PlanRequest& request) {
  if (request.recompute.empty()) return schedule;
  const ScheduleFacts facts{graph};
  LiveSchedule live{facts, schedule};
  for (NodeId n : request.recompute) {
    if (live.occurrences(n.index).size() > 1 || !graph.node(n).recomputable) continue;
    const std::uint32_t last = last_read_of(live, n.index);
    if (last == LiveSchedule::none) continue;
    const auto again = live.insert(n, live.at(last));
    if (!live.valid() || live.peak() > request.budget) live.remove(again);
  }
  return live.schedule();
}

}  // namespace reprise::planning
