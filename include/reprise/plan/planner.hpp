#pragma once
// A Planner turns a budget into a Plan: a schedule with its exact peak and time, and bounds on
// both.
//
// ```cpp
// Plan plan = Planner{}.plan(graph, {.budget = 4_GiB});    // MeasuredCost, Anneal
// Plan other = Planner<ByteCost, MinCut>{}.plan(graph, {.budget = 4_GiB});
// ```
//
//   plan.peak, plan.time, plan.overhead()                                  // exact, by the simulator
//   plan.floor                                                             // no schedule's peak is below this
//
// The strategy proposes, and the simulator judges, so every returned schedule is valid. For a
// budget above the baseline peak, the planner returns the graph's own order at once. If nothing
// fits, it returns the best schedule found, and within_budget() is false. plan_or_throw() throws an
// error instead, with the single-node bound and the smallest peak found.

#include <chrono>
#include <string>
#include <utility>

#include <reprise/graph/simulate.hpp>
#include <reprise/plan/concepts.hpp>
#include <reprise/plan/cost_models/measured_cost.hpp>
#include <reprise/plan/least_extra.hpp>
#include <reprise/plan/pins.hpp>
#include <reprise/plan/strategies/anneal.hpp>

namespace reprise::planning {

struct Plan {
  Schedule schedule{};
  Bytes budget{};
  Bytes peak{};
  Microseconds time{};
  Bytes baseline_peak{};
  Microseconds baseline_time{};
  Bytes floor{};               ///< a lower bound on the peak of every schedule
  Microseconds least_extra{};  ///< the same for the extra time of schedules inside the budget
  bool optimal = false;        ///< proven to be the fastest inside the budget
  std::string strategy{};
  std::uint64_t seed = 0;
  double seconds = 0;

  [[nodiscard]] bool within_budget() const { return peak <= budget; }
  /// Extra time as a share of the baseline: 0.07 for 7 % more.
  [[nodiscard]] double overhead() const {
    return baseline_time.count > 0 ? (time.count - baseline_time.count) / baseline_time.count : 0;
  }
};

template <class Cost = MeasuredCost, class Policy = Anneal>
class Planner {
  static_assert(is_cost_model<Cost>() && is_strategy<Policy>());

 public:
  Planner() = default;
  explicit Planner(Policy strategy, Cost cost = {})
      : strategy_(std::move(strategy)), cost_(std::move(cost)) {}

  [[nodiscard]] const Policy& strategy() const { return strategy_; }
  [[nodiscard]] const Cost& cost() const { return cost_; }

  /// Throws Errc::bad_argument for an impossible budget, Errc::bad_graph for a graph that cannot be
  /// run.
  [[nodiscard]] Plan plan(const StepGraph& measured, PlanRequest request) const {
    request = started(std::move(request));
    if (request.budget <= Bytes{0})
      throw Error(Errc::bad_argument, "budget: " + std::to_string(request.budget.count) +
                                          " bytes; must be greater than zero");
    const auto begin = std::chrono::steady_clock::now();
    const StepGraph graph = priced(measured);
    const Simulation baseline = simulate(graph, own_order(graph));
    if (!baseline.valid)
      throw Error(Errc::bad_graph,
                  "nodes: the graph's own order cannot be run: " + baseline.violation->message);
    Plan plan;
    plan.schedule = own_order(graph);
    plan.budget = request.budget;
    plan.baseline_peak = plan.peak = baseline.peak;
    plan.baseline_time = plan.time = baseline.time;
    plan.floor = floor_bytes(graph);
    plan.strategy = strategy_.name();
    plan.seed = request.seed;
    plan.optimal = baseline.peak <= request.budget;
    if (baseline.peak > request.budget) propose(graph, request, plan);
    plan.least_extra = least_extra_time(graph, request, baseline).least;
    const double least = (baseline.time + plan.least_extra).count;
    plan.optimal = plan.optimal || (plan.within_budget() && plan.time.count <= least * (1 + 1e-9));
    plan.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return plan;
  }

  /// As plan(); throws Errc::budget_unreachable if no schedule inside the budget was found.
  [[nodiscard]] Plan plan_or_throw(const StepGraph& graph, PlanRequest request) const {
    Plan plan = this->plan(graph, std::move(request));
    if (!plan.within_budget()) throw Error(Errc::budget_unreachable, unreachable_message(plan));
    return plan;
  }

  [[nodiscard]] static std::string unreachable_message(const Plan& plan) {
    return "budget: no schedule within " + std::to_string(plan.budget.count) +
           " bytes was found; no schedule at all is below " + std::to_string(plan.floor.count) +
           " (outputs or largest single node), the smallest peak found is " +
           std::to_string(plan.peak.count);
  }

 private:
  [[nodiscard]] StepGraph priced(const StepGraph& measured) const {
    StepGraph graph = measured;
    for (std::size_t i = 0; i < graph.node_count(); ++i)
      graph.set_time(NodeId{i}, cost_.time(measured, NodeId{i}));
    return graph;
  }

  void propose(const StepGraph& graph, const PlanRequest& request, Plan& plan) const {
    tell(request, 0, plan);
    Schedule schedule = strategy_.schedule(graph, request);
    const bool sound = simulate(graph, schedule).valid && !breaks_pins(graph, schedule, request);
    if (sound) take(graph, request, recompute_pinned(graph, std::move(schedule), request), plan);
    tell(request, 1, plan);
  }

  // Takes a proposal only if it is valid, keeps the order if asked to, and is no worse than the
  // present plan.
  void take(const StepGraph& graph, const PlanRequest& request, Schedule schedule,
            Plan& plan) const {
    const Simulation s = simulate(graph, schedule);
    if (!s.valid || (request.keep_order && !keeps_order(graph, schedule)) || s.peak > plan.peak)
      return;
    plan.schedule = std::move(schedule);
    plan.peak = s.peak;
    plan.time = s.time;
  }

  // Reports the begin and the end; strategies may report more in between.
  void tell(const PlanRequest& request, double share, const Plan& plan) const {
    if (request.progress) request.progress({strategy_.name(), share, plan.peak, plan.time});
  }

  Policy strategy_{};
  Cost cost_{};
};

}  // namespace reprise::planning

namespace reprise {
using planning::Plan;
using planning::Planner;
}  // namespace reprise
