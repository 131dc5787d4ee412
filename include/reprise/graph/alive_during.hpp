#pragma once
// The storages that are alive while a node runs.
//
//   alive_during(graph, storage_lifetimes(graph), peak_node)   // the largest first

#include <algorithm>
#include <functional>
#include <vector>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>

#include <reprise/base/ids.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

/// Largest first.
[[nodiscard]] inline std::vector<StorageId> alive_during(
    const StepGraph& graph, const std::vector<StorageLifetime>& lifetimes, NodeId n) {
  const auto is_alive = [&](StorageId s) { return lifetimes[s.index].covers(n); };
  auto alive = graph.storage_ids() | ranges::views::filter(is_alive) | ranges::to<std::vector>();
  std::ranges::stable_sort(alive, std::greater{},
                           [&](StorageId s) { return graph.storage(s).bytes; });
  return alive;
}

}  // namespace reprise::graphs
