#pragma once
// CostModel and Strategy are the concepts that the planner's parts must model; nothing is
// inherited.
//
//   struct HalfPrice {                                                          a CostModel
//     Microseconds time(const StepGraph& graph, NodeId n) const { return {graph.node(n).time.count / 2}; }
//   };
//   struct NeverRecompute {                                                     a Strategy
//     std::string_view name() const { return "never"; }
//     Schedule schedule(const StepGraph& graph, const PlanRequest&) const { return own_order(graph); }
//   };
//   Planner<HalfPrice, NeverRecompute>{}
//
// Each requirement is a concept of its own: is_cost_model() and is_strategy() name the requirement
// that is not met.

#include <concepts>
#include <string_view>

#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/request.hpp>

namespace reprise::planning {

namespace cost_model_requirement {
template <class T>
concept time = requires(const T& model, const StepGraph& graph, NodeId n) {
  { model.time(graph, n) } -> std::convertible_to<Microseconds>;
};
}  // namespace cost_model_requirement

/// CostModel requires: (1) time(graph, node) -> Microseconds: the cost of one run of the node.
/// Finite, not negative.
template <class T>
concept CostModel = cost_model_requirement::time<T>;

/// True. If C is no CostModel, one line of the compiler's output says what it lacks.
template <class C>
[[nodiscard]] consteval bool is_cost_model() {
  static_assert(cost_model_requirement::time<C>,
                "C is no CostModel: it needs (1) Microseconds time(const StepGraph&, NodeId) "
                "const; see docs/policies/cost_model.md");
  return CostModel<C>;
}

namespace strategy_requirement {
template <class T>
concept name = requires(const T& strategy) {
  { strategy.name() } -> std::convertible_to<std::string_view>;
};
template <class T>
concept schedule = requires(const T& strategy, const StepGraph& graph, const PlanRequest& request) {
  { strategy.schedule(graph, request) } -> std::convertible_to<Schedule>;
};
}  // namespace strategy_requirement

/// Strategy requires: (1) name() -> std::string_view, as in flags and files; (2) schedule(graph,
/// request) -> Schedule: a valid schedule, inside the budget if the strategy finds one, else with
/// the smallest peak that it finds.
template <class T>
concept Strategy = strategy_requirement::name<T> && strategy_requirement::schedule<T>;

/// True. If S is no Strategy, one line of the compiler's output says what it lacks.
template <class S>
[[nodiscard]] consteval bool is_strategy() {
  static_assert(strategy_requirement::name<S>,
                "S is no Strategy: it needs (1) std::string_view name() const; see "
                "docs/policies/strategy.md");
  static_assert(strategy_requirement::schedule<S>,
                "S is no Strategy: it needs (2) Schedule schedule(const StepGraph&, const "
                "PlanRequest&) const; see docs/policies/strategy.md");
  return Strategy<S>;
}

/// The null model of Strategy: the graph's own order, for every budget.
struct NeverRecompute {
  [[nodiscard]] static std::string_view name() { return "never"; }
  [[nodiscard]] static Schedule schedule(const StepGraph& graph, const PlanRequest& /*request*/) {
    return own_order(graph);
  }
};
static_assert(Strategy<NeverRecompute>);

/// The null model of CostModel: every node costs 0.
struct NoCost {
  [[nodiscard]] static Microseconds time(const StepGraph& /*graph*/, NodeId /*node*/) { return {}; }
};
static_assert(CostModel<NoCost>);

}  // namespace reprise::planning

namespace reprise {
using planning::CostModel;
using planning::NeverRecompute;
using planning::NoCost;
using planning::Strategy;
}  // namespace reprise
