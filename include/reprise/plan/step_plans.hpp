#pragma once
// Plans that need more than one call of a planner, or none.
//
//   Plan own  = plan_own_order(graph);                              nothing recomputed
//   Plan thin = plan_within_time(graph, request, 10, planner);      the smallest peak found that costs at most 10 % more time
//   Plan same = plan_from_file("resnet50.plan.json", graph);        refused where it was made for another graph

#include <functional>
#include <string>
#include <utility>

#include <reprise/error.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/plan/simulate.hpp>

namespace reprise {

/// Any composition of Planner, as a function: plan_with() by name, or Planner<MyCost, MyStrategy>{}.plan().
using PlanFunction = std::function<Plan(const StepGraph&, const PlanRequest&)>;

[[nodiscard]] inline Plan plan_own_order(const StepGraph& graph) {
  Plan plan;
  plan.schedule = own_order(graph);
  const Simulation cost = simulate(graph, plan.schedule);
  plan.budget = plan.peak = plan.baseline_peak = cost.peak;
  plan.time = plan.baseline_time = cost.time;
  plan.strategy = "none";
  return plan;
}

/// By halving the interval between floor and own peak.
[[nodiscard]] inline Plan plan_within_time(const StepGraph& graph, PlanRequest request, double percent, const PlanFunction& planner) {
  constexpr int halvings = 6;
  Plan best = plan_own_order(graph);
  request.effort /= halvings;  // as much work in all as for one budget
  request.seconds /= halvings;
  double seconds = 0;
  Bytes low = floor_bytes(graph), high = best.peak;
  for (int i = 0; i < halvings && low < high; ++i) {
    request.budget = low + Bytes{(high - low).count / 2};
    Plan plan = planner(graph, request);
    seconds += plan.seconds;
    if (plan.within_budget() && plan.overhead() * 100 <= percent) {
      high = plan.peak;
      best = std::move(plan);
    } else {
      low = request.budget + Bytes{1};
    }
  }
  best.budget = best.peak;
  best.seconds = seconds;
  return best;
}

/// Throws Errc::bad_schedule where the file was made for another graph, or its schedule cannot be run.
[[nodiscard]] inline Plan plan_from_file(const std::string& path, const StepGraph& graph) {
  const PlanFile file = read_plan_file(path, graph);
  if (file.graph_hash && file.graph_hash->starts_with(graph_hash_kind) && *file.graph_hash != graph_hash(graph))
    throw Error(Errc::bad_schedule, "'" + path + "' was made for another model, or for other shapes: its graph is " + *file.graph_hash +
                                        ", this one is " + graph_hash(graph));
  Plan plan = plan_own_order(graph);
  plan.schedule = file.schedule;
  const Simulation cost = simulate(graph, plan.schedule);
  if (!cost.valid) throw Error(Errc::bad_schedule, "'" + path + "': " + cost.violation->message);
  plan.peak = cost.peak;
  plan.time = cost.time;
  plan.strategy = file.strategy.value_or("file");
  return plan;
}

}  // namespace reprise
