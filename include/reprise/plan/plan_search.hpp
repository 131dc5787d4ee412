#pragma once
// A PlanSearch is one search for a plan, with all its attempts, inside one time limit.
//
//   PlanSearch search{.graph = graph, .rules = {.planner = planner}, .headroom = 2_GiB};
//   Plan plan = search.run({});
//
//   attempt 1   several seeds, the best of them           first_seconds, or later_seconds
//   attempt 2   if nothing fits: more effort               the rest of the user's limit, or of 5 seconds
//   attempt 3   and more                                   …
//
// A step that waits has 5 seconds of processor time unless the user sets another limit. A search in
// the background has no limit. A hasty search improves the plan less, but finds one as often.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <reprise/base/units.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise::planning {

/// The planner as a function, whatever its type.
struct PlanStage {
  PlanFunction plan{};
  std::string strategy{};  ///< its name; empty for a function of the user's
  bool own_costs = false;  ///< it uses other costs than the graph's times
};

struct PlanSearchRules {
  PlanFunction planner{};
  /// The user's seed, effort, seconds, …; the search sets the budget.
  PlanRequest planning{};
  bool keep_order = false;
  bool waited_for = true;  ///< a step waits for the plan
  /// Seeds for the first attempt, for a hasty search or another one; one seed if the seed changes
  /// nothing.
  std::function<Tries(bool hasty)> tries = [](bool /*hasty*/) { return Tries{}; };
  /// Relative effort for a plan that is refined later, when the times of warm ops are known.
  double first_effort = 1;
  /// Seconds for the first attempt of a hasty search, and of another search, including
  /// search_again; 0: all that there are.
  double first_seconds = 0, later_seconds = 0;
};

/// The bytes with which a step starts: persistent bytes and initial values.
[[nodiscard]] inline Bytes start_bytes(const StepGraph& graph) {
  Bytes sum = graph.persistent_bytes();
  for (std::size_t i = 0; i < graph.value_count(); ++i)
    if (graph.value(ValueId{i}).initial) sum += graph.value(ValueId{i}).bytes;
  return sum;
}

struct PlanSearch {
  std::shared_ptr<const StepGraph> graph{};
  PlanSearchRules rules{};
  Bytes headroom{};                  ///< above start_bytes(): the largest peak of the plan
  std::optional<double> percent{};   ///< instead: the smallest plan with at most this extra time
  std::optional<Bytes> ask_first{};  ///< a smaller headroom that is tried first
  bool hasty = false;                ///< with first_effort and first_seconds
  bool must_find = true;             ///< more attempts if nothing fits
  double spent = 0;                  ///< seconds of the limit that are used already

  /// The best plan of all attempts; within_budget() says whether it fits.
  [[nodiscard]] Plan run(std::stop_token stop) const {
    PlanRequest request = rules.planning;
    request.keep_order = request.keep_order || rules.keep_order;
    request.cancel = std::move(stop);
    const bool limited = request.seconds > 0;
    if (!limited && rules.waited_for) request.seconds = seconds_to_wait;
    const PlanRequest whole = started(request);
    if (!limited) request.seconds = seconds_of_first(request.seconds);
    if (hasty) request.effort *= rules.first_effort;
    if (percent) return plan_within_time(*graph, request, *percent, rules.planner);
    Plan best = first_attempt(request);
    for (int i = 1; i < most_attempts && must_find && !best.within_budget(); ++i) {
      if (StopSignal{whole}()) break;
      request.seconds = whole.seconds > 0 ? seconds_left(whole) : 0;
      if (i == 1 && hasty) {
        request.effort = rules.planning.effort;
      } else {
        ++request.seed;
        request.effort *= 3;
      }
      request.budget = budget_for(headroom);
      Plan next = plan_best_of(*graph, request, {}, rules.planner);
      next.seconds += best.seconds;
      if (next.within_budget() || next.peak < best.peak) best = std::move(next);
    }
    return best;
  }

 private:
  static constexpr int most_attempts = 3;
  /// A lower plan, if packing leaves gaps, needs some time as well.
  static constexpr double share_of_first = 0.75;

  [[nodiscard]] double seconds_of_first(double whole) const {
    const double limit = hasty ? rules.first_seconds : rules.later_seconds;
    return limit > 0 ? std::max(0.1, share_of_first * (limit - spent)) : whole;
  }

  [[nodiscard]] Bytes budget_for(Bytes above) const {
    constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max() / 4};
    return above >= unlimited ? unlimited : start_bytes(*graph) + above;
  }

  [[nodiscard]] Plan first_attempt(PlanRequest request) const {
    double gone = 0;
    if (ask_first) {
      request.budget = budget_for(*ask_first);
      Plan plan = plan_best_of(*graph, request, rules.tries(hasty), rules.planner);
      plan.budget = budget_for(headroom);
      if (plan.within_budget()) return plan;
      gone = plan.seconds;
    }
    request.budget = budget_for(headroom);
    Plan plan = plan_best_of(*graph, request, rules.tries(hasty), rules.planner);
    plan.seconds += gone;
    return plan;
  }
};

}  // namespace reprise::planning
