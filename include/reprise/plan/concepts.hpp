#pragma once
// What a policy must be able to do. A type that does it fits; nothing is inherited.
//
// ```cpp
// struct HalfPrice {         // a CostModel
//   Microseconds time(const StepGraph& graph, NodeId n) const {
//     return {graph.node(n).time.count / 2};
//   }
// };
// struct NeverRecompute {    // a Strategy, the null one
//   std::string_view name() const { return "never"; }
//   Schedule schedule(const StepGraph& graph, const PlanRequest&) const {
//     return own_order(graph);
//   }
// };
// Planner<HalfPrice, NeverRecompute>{}.plan(graph, {});
// ```

#include <concepts>
#include <string_view>

#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/request.hpp>

namespace reprise {

/// CostModel requires: (1) time(graph, node) -> Microseconds: what one run of the node is to cost.
/// Finite, not negative.
template <class T>
concept CostModel = requires(const T& model, const StepGraph& graph, NodeId n) {
  { model.time(graph, n) } -> std::convertible_to<Microseconds>;
};

/// Strategy requires: (1) name() -> std::string_view, as in flags and files; (2) schedule(graph,
/// request) -> Schedule: a valid one, inside the budget if it can find one, else with as low a peak
/// as it can find.
template <class T>
concept Strategy = requires(const T& strategy, const StepGraph& graph, const PlanRequest& request) {
  { strategy.name() } -> std::convertible_to<std::string_view>;
  { strategy.schedule(graph, request) } -> std::convertible_to<Schedule>;
};

}  // namespace reprise
