#pragma once
// A Replanner keeps a plan for each step that a loop makes. Its front names the steps by a key:
// TrainStep by a signature, MemoryBudget by an op sequence.
//
//   Replanner<std::string, MyProgram> replanner{rules, hooks};
//   auto& known = replanner.find_or_add([](auto& key) { return key == "x [8, 3]"; }, [] { return "x [8, 3]"; });
//   known.graph = graph;
//   replanner.ensure(known, {.headroom = 2_GiB})       planned: known.made fits 2 GiB
//   replanner.ensure(known, {.headroom = 2_GiB})       nothing to do
//   replanner.ensure(known, {.headroom = 1_GiB})       the plan does not fit 1 GiB: planned for 1 GiB
//   replanner.ensure(known, {.headroom = 4_GiB})       over 3 % more: planned again, the cheaper of both plans stays
//   replanner.refine(known, times, set_times)          ops take other times than at first: the next ensure() plans once more
//   replanner.improve(known)                           what was planned in haste is to stay: the next ensure() searches thoroughly
//
// The headroom is the budget minus the start bytes. The front decides what it makes of a plan (a
// program, a plan to follow): Hooks::make. Plans are made while the step waits, or on a thread of
// the replanner. Steps then go on without a plan meanwhile.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/clock.hpp>
#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/plan/background_planner.hpp>
#include <reprise/plan/plan_search.hpp>

namespace reprise::planning {

/// The goal of a plan: to fit a headroom, or to cost little time.
struct PlanGoal {
  Bytes headroom{};
  /// instead of a headroom: the smallest peak that costs at most this much extra time
  std::optional<double> percent{};
};

/// When plans are made, and with how much effort.
struct ReplanRules {
  PlanSearchRules search{};
  bool in_background = false;  ///< false: ensure() waits
  /// In the background, a step without a plan uses another step's plan, or a plan that a thread of
  /// its own finds with first_effort, until improve() has had a better one made. If that thread
  /// finds nothing, the polite thread goes on. If false, first_effort is for the first plan alone.
  bool quick_first = false;
  bool refine = true;  ///< plan once more with the times of warm ops
  std::size_t max_plans =
      16;  ///< steps that are known at once; the least recently used one is removed first
  /// The planner uses costs other than the graph's times. Only the planner can then compare two
  /// plans, so the newest plan is taken.
  bool own_costs = false;
};

/// Counters of a replanner.
struct ReplanCounters {
  std::int64_t plans = 0;        ///< searches that were begun
  std::int64_t refinements = 0;  ///< searches because of better times; part of `plans`
  Microseconds waited{};         ///< time that steps waited for plans
};

/// The thing that a front makes of a plan.
///   1. fits(headroom) -> bool         whether it can be used with this headroom
///   2. extra_time(graph) -> double    as a share of the step's own time, with the graph's present times
///   3. recomputed() -> std::size_t    number of recomputed ops
template <class M>
concept MadeOfPlan = requires(const M& made, Bytes headroom, const StepGraph& graph) {
  { made.fits(headroom) } -> std::convertible_to<bool>;
  { made.extra_time(graph) } -> std::convertible_to<double>;
  { made.recomputed() } -> std::convertible_to<std::size_t>;
};

template <class Key, class Made>
class Replanner {
 public:
  /// One step that the loop makes.
  struct Known {
    Key key{};
    std::shared_ptr<const StepGraph> graph{};  ///< set by the front; null: nothing is planned
    std::shared_ptr<Made> made{};              ///< null if there is no plan
    Bytes headroom{};                          ///< of the last plan
    bool unplannable = false;                  ///< no plan was found for `headroom`
    std::string why{};                         ///< why none was found, as text
    std::exception_ptr failure{};              ///< the planner's exception, if it threw
    std::optional<Bytes> smallest{};  ///< above the start bytes: the smallest peak found instead
    bool hasty = false;  ///< planned with little effort, because better times will follow
    bool refined = false;
    PlanGoal goal{};  ///< of the last search

   private:
    friend class Replanner;
    std::optional<double> percent{};  // the last goal of that kind
    bool old_times = false;
    std::shared_ptr<PlanJob> job{};
    std::shared_ptr<Plan> found{};
    double spent = 0;
  };

  using Schedules = std::vector<Schedule>;
  /// Searches once more, for another headroom. For a front whose result needs more bytes than the
  /// plan.
  using Again = std::function<Plan(Bytes headroom)>;
  struct Hooks {
    /// Makes something of a plan. May throw: the plan is then not used.
    std::function<std::shared_ptr<Made>(Known&, Plan, const Again&)> make{};
    /// A smaller headroom to try first; none by default.
    std::function<std::optional<Bytes>(const Known&)> ask_first{};
    /// Schedules of known.graph that may be good: of steps with the same ops. With quick_first.
    std::function<Schedules(const Known&)> starts{};
    /// A new plan has replaced the old one; or no plan was found.
    std::function<void(const Known&)> used{}, none_found{};
    std::function<void(const std::string&)> log = [](const std::string& /*text*/) {};
  };

  Replanner(ReplanRules rules, Hooks hooks) : rules_(std::move(rules)), hooks_(std::move(hooks)) {
    static_assert(MadeOfPlan<Made>);
  }
  ~Replanner() {
    for (Known& known : steps_) cancel(known);
  }
  Replanner(const Replanner&) = delete;
  Replanner& operator=(const Replanner&) = delete;

  // ── known steps ────────────────────────────────────────────────────────────────────────────────

  /// Most recently used first.
  [[nodiscard]] std::list<Known>& steps() { return steps_; }
  [[nodiscard]] const std::list<Known>& steps() const { return steps_; }

  /// References to steps stay valid while the steps are kept.
  template <class Matches, class MakeKey>
  Known& find_or_add(const Matches& matches, const MakeKey& make_key) {
    const auto it =
        std::ranges::find_if(steps_, [&](const Known& known) { return matches(known.key); });
    if (it == steps_.end()) return add(make_key());
    steps_.splice(steps_.begin(), steps_, it);
    return steps_.front();
  }
  Known& add(Key key) {
    if (steps_.size() >= std::max<std::size_t>(rules_.max_plans, 1)) {
      cancel(steps_.back());
      steps_.pop_back();
    }
    steps_.emplace_front();
    steps_.front().key = std::move(key);
    return steps_.front();
  }
  void touch(const Known& known) {
    const auto it = std::ranges::find_if(steps_, [&](const Known& k) { return &k == &known; });
    if (it != steps_.end()) steps_.splice(steps_.begin(), steps_, it);
  }

  // ── plans ──────────────────────────────────────────────────────────────────────────────────────

  /// Makes sure that a plan for this goal exists or is being made. True if `known.made` can be
  /// used.
  bool ensure(Known& known, const PlanGoal& goal) {
    const auto start = std::chrono::steady_clock::now();
    const bool was_planning = known.job != nullptr;
    take(known, false);
    if (!known.job && needs_plan(known, goal)) {
      Schedules starts;
      if (rules_.quick_first && hooks_.starts) starts = hooks_.starts(known);
      if (!use_start(known, goal, starts)) begin(known, goal, Haste::allowed, starts);
    }
    const bool waits = !rules_.in_background && known.job != nullptr;
    take(known, !rules_.in_background);
    if (waits || (was_planning && !known.job)) counters_.waited += microseconds_since(start);
    return known.made && known.made->fits(goal.headroom);
  }

  /// Whether another plan is worth its search: the one rule for both fronts.
  [[nodiscard]] static bool needs_plan(const Known& known, const PlanGoal& goal) {
    if (known.old_times || (goal.percent && known.percent != goal.percent)) return true;
    const bool more = static_cast<double>(goal.headroom.count) >
                      (1 + worth_planning_again) * static_cast<double>(known.headroom.count);
    if (!known.made || !known.made->fits(goal.headroom)) return !known.unplannable || more;
    return !goal.percent && known.made->recomputed() > 0 && more;
  }

  /// Whether the replanner needs times of this step.
  [[nodiscard]] bool wants_times(const Known& known) const {
    return rules_.refine && !known.refined && !known.job && known.made &&
           known.made->recomputed() > 0;
  }
  /// Times of ops, by node, in a step that is not the first. If these make another plan worthwhile,
  /// `set_times` stores them in known.graph, and the next ensure() plans.
  template <class SetTimes>
  void refine(Known& known, const std::vector<Microseconds>& times, const SetTimes& set_times) {
    if (!wants_times(known) || times.size() != known.graph->node_count()) return;
    known.refined = true;
    const bool differ = times_differ(*known.graph, times);
    if (!differ && !known.hasty) return;
    set_times();
    known.old_times = true;
    ++counters_.refinements;
    hooks_.log(differ ? "ops take another time than in the first step: planned again"
                      : "planned again, with more effort than at first");
  }

  /// The step has come again: where its plan was made in haste, or is another step's, the next
  /// ensure() searches thoroughly.
  void improve(Known& known) {
    if (!rules_.quick_first || !known.hasty || known.job || !known.made) return;
    known.hasty = false;
    known.old_times = known.made->recomputed() > 0;
  }

  /// Starts to use a finished plan; `wait`: waits for a plan that is being made.
  void take(Known& known, bool wait) {
    if (!known.job || (!wait && !known.job->done())) return;
    const std::shared_ptr<PlanJob> job = std::exchange(known.job, nullptr);
    known.unplannable = true;  // unless a plan fits
    known.failure = {};
    known.smallest.reset();
    known.why = "none was found";
    try {
      static_cast<void>(job->take());
      use(known, std::move(*known.found));
    } catch (const std::exception& error) {
      known.failure = std::current_exception();
      known.why = error.what();
    } catch (...) {  // a user's planner may throw anything
      known.failure = std::current_exception();
      known.why = "the planner threw something that is no std::exception";
    }
    known.found.reset();
    if (known.unplannable && known.hasty && rules_.quick_first && !known.failure) {
      known.unplannable = false;
      begin(known, known.goal, Haste::never, hooks_.starts ? hooks_.starts(known) : Schedules{});
      if (wait) take(known, true);
      return;
    }
    if (known.unplannable && hooks_.none_found) hooks_.none_found(known);
  }
  void wait() {
    for (Known& known : steps_) take(known, true);
  }
  [[nodiscard]] bool planning(const Known& known) const { return known.job != nullptr; }

  /// Uses a plan from elsewhere, valid up to this headroom.
  void put(Known& known, std::shared_ptr<Made> made, Bytes headroom) {
    cancel(known);
    known.job.reset();
    known.made = std::move(made);
    known.headroom = headroom;
    known.unplannable = known.old_times = false;
  }
  /// All plans for this step become invalid.
  void forget_plan(Known& known) {
    cancel(known);
    known.job.reset();
    known.made.reset();
    known.unplannable = false;
  }

  /// Runs work of the front on the planner's thread.
  [[nodiscard]] std::shared_ptr<PlanJob> start(PlanJob::Work work, bool hasty = false) {
    if (rules_.quick_first && hasty) return quick_.submit(std::move(work));
    if (rules_.in_background) return planner_.submit(std::move(work));
    auto job = std::make_shared<PlanJob>(std::move(work));
    job->run();
    return job;
  }

  [[nodiscard]] const ReplanRules& rules() const { return rules_; }
  [[nodiscard]] const ReplanCounters& counters() const { return counters_; }

 private:
  enum class Haste : bool { never, allowed };

  /// Additional headroom, as a share, that may save some of the recomputation.
  static constexpr double worth_planning_again = 0.03;

  static Microseconds microseconds_since(std::chrono::steady_clock::time_point start) {
    return time_since(start);
  }

  static void cancel(Known& known) {
    if (known.job) known.job->cancel();
  }

  // The fastest of these that fits, as it is.
  bool use_start(Known& known, const PlanGoal& goal, const Schedules& starts) {
    if (goal.percent || (known.made && known.made->fits(goal.headroom))) return false;
    const Schedule* best = nullptr;
    Simulation least;
    for (const Schedule& start : starts) {
      const Simulation cost = simulate(*known.graph, start);
      const bool fits = cost.valid && cost.peak - start_bytes(*known.graph) <= goal.headroom;
      if (!fits || (best != nullptr && cost.time.count >= least.time.count)) continue;
      best = &start;
      least = cost;
    }
    if (best == nullptr) return false;
    Plan plan;
    plan.schedule = *best;
    plan.budget = start_bytes(*known.graph) + goal.headroom;
    plan.peak = least.peak;
    plan.time = least.time;
    try {
      known.made = hooks_.make(known, std::move(plan), {});
    } catch (const std::exception&) {  // one of its own, then
      return false;
    }
    known.goal = goal;
    known.headroom = goal.headroom;
    known.unplannable = known.old_times = false;
    known.hasty = true;
    hooks_.log("the plan of a step with the same ops serves this one");
    if (hooks_.used) hooks_.used(known);
    return true;
  }

  void begin(Known& known, const PlanGoal& goal, Haste haste, const Schedules& starts) {
    known.goal = goal;
    if (goal.percent) known.percent = goal.percent;
    known.headroom = goal.headroom;
    known.old_times = false;
    known.smallest.reset();
    known.failure = {};
    if (!goal.percent && goal.headroom <= Bytes{0}) {
      known.unplannable = true;
      known.why = "the step starts with more than that";
      return;
    }
    const bool has_one = known.made && known.made->fits(goal.headroom);
    const bool may_be_hasty =
        rules_.quick_first ? !has_one && !goal.percent : rules_.refine && !known.refined;
    known.hasty = haste == Haste::allowed && may_be_hasty && !rules_.own_costs &&
                  rules_.search.first_effort < 1;
    ++counters_.plans;
    known.found = std::make_shared<Plan>();
    PlanSearch search{.graph = known.graph,
                      .rules = rules_.search,
                      .headroom = goal.headroom,
                      .percent = goal.percent,
                      .hasty = known.hasty,
                      .starts = starts,
                      .must_find = !has_one && !(known.hasty && rules_.quick_first)};
    if (hooks_.ask_first) search.ask_first = hooks_.ask_first(known);
    known.job = start(
        [search = std::move(search), found = known.found](std::stop_token stop) {
          *found = search.run(std::move(stop));
          return Schedule{};
        },
        known.hasty);
  }

  // Keeps the cheaper one of the present plan and the new plan.
  void use(Known& known, Plan plan) {
    known.spent = plan.seconds;
    if (plan.schedule.empty()) return;  // cancelled
    const Simulation cost = simulate(*known.graph, plan.schedule);
    if (!cost.valid) throw Error(Errc::bad_schedule, cost.violation->message);
    plan.peak = cost.peak;  // does not trust the planner's own numbers
    if (!rules_.own_costs) plan.time = cost.time;
    const Bytes above = cost.peak - start_bytes(*known.graph);
    if (!known.goal.percent && above > known.goal.headroom) {
      known.smallest = above;
      known.why = "the best plan needs " + format_bytes(above) + " (" +
                  std::to_string(above.count) + " bytes) of it";
      const bool has_one = known.made && known.made->fits(known.goal.headroom);
      known.unplannable = !has_one;
      return;
    }
    auto made = hooks_.make(known, std::move(plan),
                            [&](Bytes headroom) { return search_again(known, headroom); });
    known.unplannable = false;
    if (known.goal.percent) known.headroom = above;
    const bool may_stay = !rules_.own_costs && !known.goal.percent && known.made &&
                          known.made->fits(known.goal.headroom);
    if (may_stay && known.made->extra_time(*known.graph) <= made->extra_time(*known.graph))
      return hooks_.log("the plan that there is stays: no faster one was found");
    known.made = std::move(made);
    if (hooks_.used) hooks_.used(known);
  }

  [[nodiscard]] Plan search_again(Known& known, Bytes headroom) {
    const PlanSearch search{.graph = known.graph,
                            .rules = rules_.search,
                            .headroom = headroom,
                            .hasty = known.hasty,
                            .must_find = false,
                            .spent = known.spent};
    Plan plan = search.run({});
    known.spent += plan.seconds;
    return plan;
  }

  ReplanRules rules_;
  Hooks hooks_;
  ReplanCounters counters_;
  std::list<Known> steps_;
  // last: their threads end first
  BackgroundPlanner planner_{Politeness::polite}, quick_;
};

}  // namespace reprise::planning
