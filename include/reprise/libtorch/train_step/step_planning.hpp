#pragma once
// StepPlanning provides a program for a captured step that fits the headroom: the budget minus the
// start bytes, and minus other steps' arenas.
//
//   StepPlanning::ensure_program(known)       known.made has plan, program and layout; false if no plan fits
//
//   case                                          plan for                  seconds for the first attempt
//   after the capture                             the times of the capture  1.2, with little effort
//   after the second replay                       the times of that replay  3.6; the cheaper of both plans stays
//   headroom shrinks (Adam's state), or grows     the new headroom          1.2 or 3.6
//   no plan fits in that time                     the same                  the rest of 5, with more effort
//   the arena is higher than the headroom         less, or without arena    the rest
//
// The Replanner decides when a sequence is planned again, and which plan stays
// (plan/replanner.hpp).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/replay/arena_layout.hpp>
#include <reprise/libtorch/train_step/known_step.hpp>
#include <reprise/libtorch/train_step/step_context.hpp>
#include <reprise/libtorch/train_step/step_stages.hpp>
#include <reprise/plan/replanner.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise::training {

class StepPlanning {
 public:
  using Known = KnownSteps::Known;

  /// The context must outlive this.
  StepPlanning(StepContext& context, StepStages stages)
      : context_(context),
        stages_(std::move(stages)),
        steps_(rules(context.options, stages_.planner), hooks()) {}

  /// what the next capture uses instead of making one; then empty
  GivenPlan given{};

  [[nodiscard]] KnownSteps& steps() { return steps_; }

  /// Makes sure that there is a program for the headroom. False if none was found.
  bool ensure_program(Known& known) {
    const StepGraph& graph = *known.graph;
    resolve(known);
    if (!known.made && given) {
      const Plan plan = given_plan(graph);
      steps_.put(known, ready(known, plan), Bytes{std::numeric_limits<std::int64_t>::max() / 4});
      known.made->from_file = true;  // not to be improved
    }
    if (!context_.options.budget.given()) {
      if (!known.made) steps_.put(known, ready(known, plan_own_order(graph)), Bytes{});
      return true;
    }
    refine(known);
    return plan_for(known) || fall_back(known);
  }

  /// Computes the eager peak, the floor and the budget in bytes for the present start bytes. A
  /// share is a share of all bytes that the allocator would have: it includes the optimizer's
  /// state, after it has been allocated, and other steps' arenas.
  void resolve(Known& known) {
    if (!known.key.floor) known.key.floor = stages_.analyse(*known.graph).memory.floor;
    resolve(known, *known.key.captured, *known.key.floor);
  }
  /// For a step that is not replayed.
  void resolve(Known& known, const CapturedStep& captured) {
    if (captured.graph().node_count() == 0) return;  // there is no graph, so nothing is known
    resolve(known, captured, floor_bytes(captured.graph()));
  }

  /// The budget minus the start bytes and minus other steps' arenas.
  [[nodiscard]] Bytes headroom() const {
    return context_.last.budget - context_.last.base - context_.others;
  }

  /// For errors: what a sufficient budget depends on, by the numbers of resolve().
  [[nodiscard]] std::string what_it_needs() const {
    const StepReport& last = context_.last;
    std::string text = format_exactly(last.base) +
                       " are live when the step begins, no schedule is below " +
                       format_exactly(last.floor);
    if (last.eager_peak > Bytes{0})
      text += ", which is " + std::to_string(percent_up(last.floor, last.eager_peak)) +
              " % of what it takes without a budget";
    if (context_.others > Bytes{0})
      text += ", arenas of other steps hold " + format_exactly(context_.others) +
              " beyond what is alive in them";
    return text;
  }

  /// The budget in bytes, as far as it is known before the step has been captured. The peak of
  /// another step says nothing about this one's.
  [[nodiscard]] Bytes known_budget(const Known& known) const {
    return context_.options.budget.kind == Budget::Kind::bytes ? context_.options.budget.bytes
                                                               : known.key.budget;
  }

  /// Whether the next replay is timed. With warm caches, ops take other times than in the capture.
  [[nodiscard]] bool wants_times(const Known& known) const {
    return context_.options.budget.given() && !known.made->from_file &&
           known.made->replays == timed_replay && steps_.wants_times(known);
  }

 private:
  /// The replay that is timed. The replay before it has touched the arena's pages and warmed the
  /// caches of primitives.
  static constexpr int timed_replay = 1;
  /// Seeds to try for a plan that is meant to stay.
  static constexpr unsigned max_tries = 8;
  /// If page faults cost less than this share of the time, the step is not planned again.
  static constexpr double worth_planning_lower = 0.02;

  // The step waits for its plan, so the planner may use the step's cores.
  static ReplanRules rules(const TrainStepOptions& options, const PlanStage& planner) {
    PlanSearchRules search{.planner = planner.plan,
                           .planning = options.run.planning,
                           .first_effort = 0.3,
                           .first_seconds = 1.2,
                           .later_seconds = 3.6};
    search.tries = [name = planner.strategy, planning = options.run.planning](bool hasty) {
      const auto cores = std::clamp(static_cast<unsigned>(at::get_num_threads()), 1u, max_tries);
      return tries_of(name, planning, {hasty ? cores : max_tries, cores});
    };
    return {.search = std::move(search),
            .refine = options.run.refine,
            .max_plans = options.run.max_plans,
            .own_costs = planner.own_costs || options.budget.kind == Budget::Kind::extra_time};
  }

  KnownSteps::Hooks hooks() {
    return {.make = [this](Known& known, Plan plan,
                           const KnownSteps::Again& again) { return make(known, plan, again); },
            .ask_first =
                [](const Known& known) {
                  return known.key.packing > 1 ? std::optional(lower(known)) : std::nullopt;
                },
            .log = [this](const std::string& text) { context_.log.info(text); }};
  }

  [[nodiscard]] static std::int64_t percent_up(Bytes part, Bytes whole) {
    return static_cast<std::int64_t>(
        std::ceil(100 * static_cast<double>(part.count) / static_cast<double>(whole.count)));
  }

  void resolve(Known& known, const CapturedStep& captured, Bytes floor) {
    const Recording& recording = captured.recording();
    StepReport& last = context_.last;
    last.eager_peak = last.base + (recording.peak - recording.base);
    if (floor > Bytes{0}) last.floor = last.base + (floor - captured.graph().persistent_bytes());
    const Budget& budget = context_.options.budget;
    if (!budget.given()) return;
    last.budget = budget.resolve(last.eager_peak + context_.others, last.floor + context_.others);
    if (budget.kind != Budget::Kind::extra_time) known.key.budget = last.budget;
  }

  Plan given_plan(const StepGraph& graph) {
    try {
      return std::exchange(given, {})(graph);
    } catch (const Error& e) {
      throw Error(e.code(), e.what() + context_.afterwards());
    }
  }

  void refine(Known& known) {
    const std::vector<Microseconds> measured = std::exchange(known.key.measured, {});
    if (measured.empty()) return;
    steps_.refine(known, measured, [&] {
      StepGraph& graph = known.key.captured->graph();
      for (std::size_t i = 0; i < measured.size(); ++i) graph.set_time(NodeId{i}, measured[i]);
    });
  }

  bool plan_for(Known& known) {
    const bool by_cost = context_.options.budget.kind == Budget::Kind::extra_time;
    const PlanGoal goal{
        .headroom = headroom(),
        .percent = by_cost ? std::optional(context_.options.budget.percent) : std::nullopt};
    const ReplanCounters before = steps_.counters();
    const auto old = known.made;
    const bool usable = steps_.ensure(known, goal);
    const ReplanCounters& now = steps_.counters();
    context_.counters.plans = now.plans;
    context_.counters.refinements = now.refinements;
    if (now.plans == before.plans) return usable;
    context_.last.planning_time += now.waited - before.waited;
    context_.counters.planning_time += now.waited - before.waited;
    if (known.failure) std::rethrow_exception(std::exchange(known.failure, {}));
    if (!usable) return false;
    if (!stages_.planner.own_costs) known.made->reprice(*known.graph);
    if (known.made != old) log_plan(*known.made);
    return true;
  }

  void log_plan(const ReadyProgram& made) const {
    context_.log.info("planned: " + format_bytes(made.plan.baseline_peak) + " to " +
                      format_bytes(made.plan.peak) + ", " + std::to_string(made.recomputed()) +
                      " ops again, " +
                      (made.layout ? "an arena of " + format_bytes(made.layout->counted)
                                   : std::string("no arena")) +
                      ", in " + format_time(context_.last.planning_time));
  }

  bool fall_back(Known& known) {
    std::string why =
        "no plan for a budget of " + format_exactly(context_.last.budget) + ": " + what_it_needs();
    if (known.smallest)
      why += ", the smallest peak found is " + format_exactly(context_.last.base + *known.smallest);
    if (context_.options.on_fallback == OnFallback::error)
      throw Error(Errc::budget_unreachable, why + context_.afterwards());
    if (!std::exchange(known.key.told_of_fallback, true))
      context_.notice("this step runs inside the budget by moving storages out: " + why);
    known.made.reset();
    return false;
  }

  // ── programs ───────────────────────────────────────────────────────────────────────────────────

  std::shared_ptr<ReadyProgram> make(Known& known, Plan plan, const KnownSteps::Again& again) {
    known.key.told_of_fallback = false;
    auto made = ready(known, std::move(plan));
    if (made->arena_fits(headroom()) && made->faulting_share() <= worth_planning_lower) return made;
    if (!made->arena_fits(headroom())) made->layout.reset();
    return context_.options.budget.kind == Budget::Kind::extra_time
               ? made
               : pack_lower(known, std::move(made), again);
  }

  // The headroom divided by the known packing ratio, because packing leaves gaps.
  [[nodiscard]] static Bytes lower(const Known& known) {
    return Bytes{
        static_cast<std::int64_t>(static_cast<double>(known.headroom.count) / known.key.packing)};
  }

  // The packed arena exceeds the headroom, and giving pages back during the step is expensive or
  // impossible. The step is planned again for fewer bytes. The variant with the least extra time
  // runs, which may be the one without an arena.
  std::shared_ptr<ReadyProgram> pack_lower(Known& known, std::shared_ptr<ReadyProgram> best,
                                           const KnownSteps::Again& again) {
    constexpr int attempts = 2;
    const StepGraph& graph = *known.graph;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      const Bytes height = best->layout ? best->layout->height : packed_;
      context_.log.info("an arena of " + format_bytes(height) + " does not fit into " +
                        format_bytes(headroom()) + ": planned for less");
      known.key.packing =
          std::max(known.key.packing,
                   static_cast<double>(height.count) /
                       static_cast<double>(best->program->peak_above_base().count)) +
          0.005;
      Plan plan = again(lower(known));
      if (!plan.within_budget() || plan.overhead() >= best->extra_time(graph)) break;
      plan.budget = best->plan.budget;
      auto tried = ready(known, std::move(plan));
      if (tried->arena_fits(headroom()) && tried->extra_time(graph) < best->extra_time(graph))
        best = std::move(tried);
      if (best->layout && best->faulting_share() <= worth_planning_lower) break;
    }
    return best;
  }

  // The pipeline's rewriter rewrites, checks and compiles the plan. Then the arena is laid out.
  std::shared_ptr<ReadyProgram> ready(Known& known, Plan plan) {
    CapturedStep& step = *known.key.captured;
    const Rewriting rewriting = stages_.rewrite(step.graph(), plan.schedule);
    auto program = std::make_shared<ReadyProgram>();
    program->plan = std::move(plan);
    program->missed = known.key.missed;
    program->program = std::make_unique<LibTorchProgram>(stages_.compile(step, rewriting));
    if (stages_.plans_addresses) program->layout = lay_out(known, rewriting);
    return program;
  }

  std::unique_ptr<ArenaLayout> lay_out(const Known& known, const Rewriting& rewriting) {
    const Bytes enough = context_.options.budget.given()
                             ? std::max(headroom() - known.key.missed, Bytes{1})
                             : Bytes{0};
    ArenaLayout layout = layout_arena(known.key.captured->recording(), rewriting, known.key.trace,
                                      known.key.captured->result_count(), enough);
    packed_ = layout.height;
    return layout.planned > 0 ? std::make_unique<ArenaLayout>(std::move(layout)) : nullptr;
  }

  StepContext& context_;
  StepStages stages_;
  KnownSteps steps_;
  Bytes packed_{};  // the height of the last layout
};

}  // namespace reprise::training
