#pragma once
// A Schedule lists nodes in running order, some of them more than once.
//
//   graph: 0 norm, 1 relu, 2 flat, 3 wide, 4 sum, 5 grad
//
// ```cpp
// own_order(graph);               // 0 1 2 3 4 5: the baseline, every node once, as captured
// const Schedule again = {norm, relu, flat, wide, sum, norm, relu, flat, grad};
// recomputations(graph, again);   // 3: norm, relu and flat are recomputed before grad
// keeps_order(graph, again);      // true: the first occurrences are in the graph's own order
// ```

#include <cstdint>
#include <span>
#include <vector>

#include <range/v3/range/conversion.hpp>

#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

using Schedule = std::vector<NodeId>;

/// Every node once, in the graph's own order.
[[nodiscard]] inline Schedule own_order(const StepGraph& graph) {
  return graph.node_ids() | ranges::to<Schedule>();
}

/// Number of occurrences of each node.
[[nodiscard]] inline std::vector<std::uint32_t> run_counts(const StepGraph& graph,
                                                           std::span<const NodeId> schedule) {
  std::vector<std::uint32_t> counts(graph.node_count(), 0);
  for (NodeId n : schedule) ++counts[n.index];
  return counts;
}

/// Occurrences that are not their node's first.
[[nodiscard]] inline std::size_t recomputations(const StepGraph& graph,
                                                std::span<const NodeId> schedule) {
  std::size_t again = 0;
  for (std::uint32_t count : run_counts(graph, schedule)) again += count > 1 ? count - 1 : 0;
  return again;
}

/// Whether the first occurrences are in the graph's own order.
[[nodiscard]] inline bool keeps_order(const StepGraph& graph, std::span<const NodeId> schedule) {
  std::vector<bool> seen(graph.node_count(), false);
  std::uint32_t next = 0;
  for (NodeId n : schedule) {
    if (seen[n.index]) continue;
    if (n.index != next++) return false;
    seen[n.index] = true;
  }
  return true;
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::keeps_order;
using graphs::own_order;
using graphs::recomputations;
using graphs::run_counts;
using graphs::Schedule;
}  // namespace reprise
