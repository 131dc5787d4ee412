#pragma once
// Valid schedules to try things on, made from a seed: not what a planner would do, but whatever the
// rule allows.
//
//   random_schedule(rng, graph, {.insertions = 4})      the own order, or another that dependencies allow, with recomputations put
//                                                       in anywhere; each is kept where the simulator says that it is valid

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <reprise/graph/dependency.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise_test/random_graphs.hpp>

namespace reprise::testing {

using namespace graphs;

struct RandomScheduleOptions {
  /// recomputations asked for; fewer where the graph has nothing to recompute
  std::size_t insertions = 4;
  /// share of schedules whose first runs do not stand in the graph's own order
  double reorder = 0.3;
};

/// Nodes that can run are taken at random; the last one that became ready more often than others.
[[nodiscard]] inline Schedule random_order(Rng& rng, const StepGraph& graph) {
  const GraphAdapter<StepGraph> adapter{graph};
  std::vector<std::size_t> waits(graph.node_count(), 0);
  Schedule order, ready;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    waits[i] = in_degree(NodeId{i}, adapter);
    if (waits[i] == 0) ready.push_back(NodeId{i});
  }
  while (!ready.empty()) {
    const std::size_t pick = rng.chance(0.5) ? ready.size() - 1 : rng.below(ready.size());
    const NodeId n = ready[pick];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(pick));
    order.push_back(n);
    for (auto [e, end] = out_edges(n, adapter); e != end; ++e)
      if (--waits[target(*e, adapter).index] == 0) ready.push_back(target(*e, adapter));
  }
  return order;
}

/// What runs to have something again: a node and, each with its share of luck, what it reads.
[[nodiscard]] inline Schedule random_cone(Rng& rng, const StepGraph& graph, double deeper) {
  std::vector<bool> inside(graph.node_count(), false);
  Schedule todo{NodeId{rng.below(graph.node_count())}};
  inside[todo[0].index] = true;
  for (std::size_t k = 0; k < todo.size(); ++k)
    for (ValueId v : reads(graph, todo[k])) {
      const NodeId maker = producer(graph, v);
      const bool needed = overwrites(graph, todo[k], v) || rng.chance(deeper);
      if (!maker.valid() || inside[maker.index] || !needed) continue;
      inside[maker.index] = true;
      todo.push_back(maker);
    }
  std::sort(todo.begin(), todo.end());
  return todo;
}

[[nodiscard]] inline Schedule random_schedule(Rng& rng, const StepGraph& graph,
                                              const RandomScheduleOptions& options = {}) {
  Schedule schedule = own_order(graph);
  if (rng.chance(options.reorder)) {
    Schedule other = random_order(rng, graph);
    if (simulate(graph, other).valid) schedule = std::move(other);
  }
  std::size_t inserted = 0;
  for (std::size_t tries = 0;
       tries < 12 * options.insertions && inserted < options.insertions && !schedule.empty();
       ++tries) {
    const Schedule cone = random_cone(rng, graph, rng.uniform());
    Schedule longer = schedule;
    longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(rng.below(schedule.size() + 1)),
                  cone.begin(), cone.end());
    if (!simulate(graph, longer).valid) continue;
    schedule = std::move(longer);
    ++inserted;
  }
  return schedule;
}

}  // namespace reprise::testing
