#pragma once
// Plans that need several calls of a planner, or no call.
//
// ```cpp
// Plan own = plan_own_order(graph);                           // nothing recomputed
// Plan thin = plan_within_time(graph, request, 10, planner);  // the least peak for 10 % more time
// Plan best = plan_best_of(graph, request, {4, 2}, planner);  // of four seeds, two in parallel
// Plan same = plan_from_file("resnet50.plan.json", graph);    // refused for another graph
// times_differ(graph, measured);                              // ops take other times than planned
// ```

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/planner.hpp>

namespace reprise::planning {

/// Any composition of Planner, as a function: plan_with() by name, or Planner<MyCost,
/// MyStrategy>{}.plan().
using PlanFunction = std::function<Plan(const StepGraph&, const PlanRequest&)>;

/// Limit of processor time for a plan that a step waits for, if the user sets none.
inline constexpr double seconds_to_wait = 5;

/// For a plan that a step waits for.
[[nodiscard]] inline PlanRequest not_for_long(PlanRequest request) {
  if (request.seconds <= 0) request.seconds = seconds_to_wait;
  return request;
}

[[nodiscard]] inline Plan plan_own_order(const StepGraph& graph) {
  Plan plan;
  plan.schedule = own_order(graph);
  const Simulation cost = simulate(graph, plan.schedule);
  plan.budget = plan.peak = plan.baseline_peak = cost.peak;
  plan.time = plan.baseline_time = cost.time;
  plan.strategy = "none";
  return plan;
}

/// By bisection between the floor and the baseline peak.
[[nodiscard]] inline Plan plan_within_time(const StepGraph& graph, PlanRequest request,
                                           double percent, const PlanFunction& planner) {
  constexpr int halvings = 6;
  Plan best = plan_own_order(graph);
  request.effort /= halvings;  // together as much work as for one budget
  request.seconds /= halvings;
  request.until = 0;
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

struct Tries {
  unsigned count = 1, side_by_side = 1;
};

/// The useful number of seeds: one if the strategy is deterministic, or for a small effort.
[[nodiscard]] inline Tries tries_of(std::string_view strategy, const PlanRequest& request,
                                    Tries most) {
  return strategy == "anneal" && request.effort >= 1 ? most : Tries{};
}

/// The best plan of several seeds: a random search finds plans that differ by a few per cent. With
/// a limit in seconds, each thread has that limit, and starts no search that would exceed it.
/// Without a limit, the plan is the same under any load. Progress is that of the first search. An
/// exception of any search is thrown when all searches have ended.
[[nodiscard]] inline Plan plan_best_of(const StepGraph& graph, const PlanRequest& request,
                                       Tries tries, const PlanFunction& planner) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto since_start = [&] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  std::vector<Plan> plans(std::max(tries.count, 1u));
  std::vector<std::exception_ptr> errors(plans.size());
  // this thread runs the first search, because it reports progress to the user
  std::atomic<std::size_t> next{1};
  const auto work = [&](std::size_t k) {
    const double first = request.clock();
    const auto of_this_thread = [&] { return request.clock() - first; };
    double longest = 0;
    for (; k < plans.size(); k = next++) {
      const double begun = of_this_thread();
      if (k > 0 && (request.cancel.stop_requested() ||
                    (request.seconds > 0 && begun + longest > request.seconds)))
        return;
      try {
        PlanRequest asked = request;
        asked.seed += 1000 * k;
        if (k > 0) asked.progress = {};
        if (request.seconds > 0) asked.seconds = std::max(request.seconds - begun, 1e-3);
        asked.until = 0;
        plans[k] = planner(graph, asked);
      } catch (...) {
        errors[k] = std::current_exception();
      }
      longest = std::max(longest, of_this_thread() - begun);
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      for (std::size_t t = 1; t < std::min<std::size_t>(tries.side_by_side, plans.size()); ++t)
        others.emplace_back([&] { work(next++); });
      // no thread available: the existing threads do the work
    } catch (const std::system_error&) {
    }
    work(0);
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  const auto better = [](const Plan& a, const Plan& b) {
    if (a.schedule.empty() || b.schedule.empty()) return b.schedule.empty() && !a.schedule.empty();
    if (a.within_budget() != b.within_budget()) return a.within_budget();
    return a.within_budget() ? a.time < b.time : a.peak < b.peak;
  };
  Plan best = std::move(*std::ranges::min_element(plans, better));
  best.seconds = std::max(best.seconds, since_start());
  return best;
}

/// Whether the times (by node) differ from the graph's by a quarter or more, summed op by op:
/// another plan is then worthwhile.
[[nodiscard]] inline bool times_differ(const StepGraph& graph,
                                       const std::vector<Microseconds>& times) {
  double sum = 0, off = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    sum += times[i].count;
    off += std::abs(times[i].count - graph.node(NodeId{i}).time.count);
  }
  return off > 0.25 * sum;
}

/// Throws Errc::bad_schedule if the file was made for another graph, or its schedule cannot be run.
[[nodiscard]] inline Plan plan_from_file(const std::string& path, const StepGraph& graph) {
  const PlanFile file = read_plan_file(path, graph);
  if (file.graph_hash && file.graph_hash->starts_with(graph_hash_kind) &&
      *file.graph_hash != graph_hash(graph))
    throw Error(Errc::bad_schedule,
                "'" + path + "' was made for another model, or for other shapes: its graph is " +
                    *file.graph_hash + ", this one is " + graph_hash(graph));
  Plan plan = plan_own_order(graph);
  plan.schedule = file.schedule;
  const Simulation cost = simulate(graph, plan.schedule);
  if (!cost.valid) throw Error(Errc::bad_schedule, "'" + path + "': " + cost.violation->message);
  plan.peak = cost.peak;
  plan.time = cost.time;
  plan.strategy = file.strategy.value_or("file");
  return plan;
}

}  // namespace reprise::planning
