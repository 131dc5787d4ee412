#pragma once
// One search for a plan, with all its attempts, inside one limit in time.
//
//   PlanSearch search{.graph = graph, .rules = {.planner = planner}, .headroom = 2_GiB};
//   Plan plan = search.run({});
//
//   attempt 1   several seeds, the best of them           first_seconds, or later_seconds
//   attempt 2   where nothing fits: more effort            what is left of the user's limit, or of 5 seconds
//   attempt 3   and more                                   …
//
// A step that waits has 5 seconds of processor time unless the user names another limit; a search
// in the background has none. Haste bounds how much a plan is improved, never whether one is found.

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
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise::planning {

/// The planner that is asked, whatever its type was.
struct PlanStage {
  PlanFunction plan{};
  std::string strategy{};  ///< its name; empty for a function of the user's
  bool own_costs = false;  ///< it reckons with other costs than the graph's times
};

struct PlanSearchRules {
  PlanFunction planner{};
  /// Seed, effort, seconds, …, by the user; the budget is set here.
  PlanRequest planning{};
  bool keep_order = false;
  bool waited_for = true;  ///< a step waits for the plan
  /// Seeds for the first attempt of a hasty search, or of another; one where a seed changes
  /// nothing.
  std::function<Tries(bool hasty)> tries = [](bool /*hasty*/) { return Tries{}; };
  /// Of the usual effort, for a plan that is made again when the times of warm ops are known.
  double first_effort = 1;
  /// Seconds for the first attempt of a hasty search, and of another, together with what follows
  /// from it (search_again); 0: all that there is.
  double first_seconds = 0, later_seconds = 0;
};

/// What a step starts from: what outlives it, and what is there at its start.
[[nodiscard]] inline Bytes start_bytes(const StepGraph& graph) {
  Bytes sum = graph.persistent_bytes();
  for (std::size_t i = 0; i < graph.value_count(); ++i)
    if (graph.value(ValueId{i}).initial) sum += graph.value(ValueId{i}).bytes;
  return sum;
}

struct PlanSearch {
  std::shared_ptr<const StepGraph> graph{};
  PlanSearchRules rules{};
  Bytes headroom{};                  ///< above start_bytes(): what the plan may take
  std::optional<double> percent{};   ///< instead: the smallest plan that costs at most so much
  std::optional<Bytes> ask_first{};  ///< a smaller headroom that is tried first
  bool hasty = false;                ///< with first_effort and first_seconds
  std::vector<Schedule> starts{};    ///< that may be near to what is looked for
  bool must_find = true;             ///< more attempts where nothing fits
  double spent = 0;                  ///< seconds of the limit that are gone already

  /// The best plan of all attempts; within_budget() says whether it fits.
  [[nodiscard]] Plan run(std::stop_token stop) const {
    PlanRequest request = rules.planning;
    request.keep_order = request.keep_order || rules.keep_order;
    request.cancel = std::move(stop);
    if (!starts.empty()) request.starts = starts;
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
  /// What follows from a plan (a lower one, where packing wastes bytes) needs some time as well.
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
