#pragma once
// advise() finds the smallest budget for which there is a plan, the plan's cost, and the shares of
// the floor.
//
// ```cpp
// Advice advice = advise(graph);
// std::cout << advice.text();
// ```
//     smallest feasible budget 61.20 MiB (without one 148.00 MiB), for 38.2 % extra time
//     no schedule is below 58.00 MiB: conv1/convolution needs that at once
//       parameter        40.00 MiB
//       activation       18.00 MiB
//       largest: fc.weight 40.00 MiB, conv1/convolution 18.00 MiB
//
// "Feasible" means that the planner finds a plan: a bisection between the floor and the baseline
// peak.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/plan/shares.hpp>
#include <reprise/plan/step_plans.hpp>
#include <reprise/plan/strategies.hpp>

namespace reprise::planning {

struct Advice {
  Bytes smallest{};       ///< the smallest budget for which a plan was found
  Bytes unconstrained{};  ///< what the step needs without a budget
  Bytes floor{};          ///< a lower bound on the peak of every schedule
  Microseconds time{};    ///< planned time of the step inside the smallest budget
  Microseconds own_time{};
  std::string because{};  ///< what sets the floor
  MemoryShares shares{};  ///< shares of the floor
  Schedule schedule{};    ///< inside the smallest budget

  [[nodiscard]] double extra_time() const {
    return own_time.count > 0 ? time.count / own_time.count - 1 : 0;
  }

  [[nodiscard]] std::string text() const {
    char extra[32];
    std::snprintf(extra, sizeof extra, "%.1f %%", 100 * extra_time());
    return "smallest feasible budget " + format_bytes(smallest) + " (without one " +
           format_bytes(unconstrained) + "), for " + extra + " extra time\nno schedule is below " +
           format_bytes(floor) + ": " + because + " at once\n" + shares.text();
  }
};

// The storages in addition to the persistent ones that this node needs at once; without a node, the
// step's outputs.
inline void for_each_needed(const StepGraph& graph, NodeId node, const auto& visit) {
  std::vector<char> seen(graph.storage_count(), 0);
  const auto go = [&](std::span<const ValueId> values) {
    for (ValueId v : values) {
      const StorageId s = graph.value(v).storage;
      if (!graph.storage(s).persistent && !std::exchange(seen[s.index], 1))
        visit(v, graph.storage(s).bytes);
    }
  };
  if (!node.valid()) return go(graph.outputs());
  go(graph.inputs(node));
  go(graph.outputs(node));
}

/// The shares of the floor. `beside`: live bytes of the process that no op of the step uses.
[[nodiscard]] inline Advice floor_advice(const StepGraph& graph, Bytes beside = {}) {
  Advice advice;
  const FloorNeed need = floor_need(graph);
  advice.floor = graph.persistent_bytes() + need.bytes + beside;
  advice.because = need.node.valid() ? graph.node(need.node).name + " (node " +
                                           std::to_string(graph.node(need.node).id) + ") needs that"
                                     : "the outputs of the step are there";
  std::vector<char> seen(graph.storage_count(), 0);
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const StorageId s = graph.value(ValueId{i}).storage;
    if (graph.storage(s).persistent && !std::exchange(seen[s.index], 1))
      advice.shares.add(graph.value(ValueId{i}).role, graph.storage(s).bytes,
                        graph.value(ValueId{i}).name);
  }
  for_each_needed(graph, need.node, [&](ValueId v, Bytes bytes) {
    advice.shares.add(graph.value(v).role, bytes, graph.value(v).name);
  });
  if (need.node.valid())
    advice.shares.add(Role::other, graph.node(need.node).workspace,
                      "workspace of " + graph.node(need.node).name);
  advice.shares.add(Role::other, beside, "what no op of the step touches");
  return advice;
}

/// Plans up to `rounds` budgets, together in the request's seconds. Keeps the order if the request
/// says so.
[[nodiscard]] inline Advice advise(const StepGraph& graph, PlanRequest request,
                                   const PlanFunction& planner, Bytes beside = {}, int rounds = 7) {
  Advice advice = floor_advice(graph, beside);
  const Simulation own = simulate(graph, own_order(graph));
  if (!own.valid)
    throw Error(Errc::bad_graph,
                "nodes: the graph's own order cannot be run: " + own.violation->message);
  Bytes low = advice.floor - beside, best = own.peak;
  advice.unconstrained = own.peak + beside;
  advice.time = advice.own_time = own.time;
  advice.schedule = own_order(graph);
  const PlanRequest whole = started(request);
  for (int i = 0; i < rounds && low < best && !StopSignal{whole}(); ++i) {
    request.until = with_share(whole, 1. / (rounds - i)).until;
    request.budget =
        i == 0 ? std::max(low, Bytes{1}) : Bytes{low.count + (best.count - low.count) / 2};
    Schedule schedule = planner(graph, request).schedule;
    const Simulation cost = simulate(graph, schedule);  // does not trust the planner's own numbers
    if (cost.valid && cost.peak <= request.budget) {
      best = request.budget;  // not the plan's peak: the planner may find no plan for that budget
      advice.time = cost.time;
      advice.schedule = std::move(schedule);
    } else {
      low = request.budget + Bytes{1};
    }
  }
  advice.smallest = best + beside;
  return advice;
}
[[nodiscard]] inline Advice advise(const StepGraph& graph, const PlanRequest& request = {},
                                   std::string_view strategy = "anneal", Bytes beside = {},
                                   int rounds = 7) {
  return advise(graph, request,
                PlanFunction([strategy](auto& g, auto& r) { return plan_with(strategy, g, r); }),
                beside, rounds);
}

}  // namespace reprise::planning

namespace reprise {
using planning::Advice;
using planning::advise;
}  // namespace reprise
