#pragma once
// The plan of a step for what its budget leaves: made once, and again where that has changed.
//
//   budget 4 GiB                       the base is 1.2 GiB when the step begins: room for 2.8 GiB
//   StepPlanning::fits(known)          known.program, known.plan and known.layout are for at most 2.8 GiB; false where nothing is
//
//   first call      planned quickly, with the times of the capture        │ at most 1.2 s; several seeds side by side, the best of them
//   third call      planned again, with the times of warm ops             │ at most 3.6 s; the first plan stays where it is better
//   the base grows  (Adam's state appears) planned again for what is left
//   nothing fits    in that time: planned once more, for as long as it takes
//   packing        the arena that the plan needs is higher than its peak: pages go back to the system while they are dead; where that costs
//                   more than it is worth, planned again for that much less, or run without an arena

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/replay/arena_layout.hpp>
#include <reprise/libtorch/replay/libtorch_backend.hpp>
#include <reprise/libtorch/train_step/known_steps.hpp>
#include <reprise/libtorch/train_step/step_ledger.hpp>
#include <reprise/plan/step_plans.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/rewrite/lint.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise {

/// What the first step of a budget that is a share may hold, before the share is known: what the
/// user says, else 80 % of free memory.
[[nodiscard]] inline Bytes limit_until_known(Bytes asked, Bytes base, Bytes free) {
  if (asked > Bytes{0}) return asked;
  return free > Bytes{0} ? base + Bytes{free.count / 5 * 4} : Bytes{0};
}

class StepPlanning {
 public:
  /// `plans_addresses`: whether programs get an arena. The ledger must outlive this.
  StepPlanning(StepLedger& ledger, bool plans_addresses)
      : ledger_(ledger), plans_addresses_(plans_addresses) {}

  /// of a plan that the next capture uses instead of making one; then empty
  std::filesystem::path file{};

  /// Makes sure that there is a program for what the budget leaves above the base. False where none
  /// was found.
  bool fits(KnownStep& known) {
    const StepGraph& graph = known.captured->graph();
    resolve(known);
    if (!known.program && !file.empty()) {
      use(known, given_plan(graph));
      known.from_file = true;  // not to be improved
    }
    if (!ledger_.options.budget.given()) {
      if (!known.program) use(known, plan_own_order(graph));
      return true;
    }
    refine(known);
    if (known.program && known.program->peak_above_base() <= room() && arena_fits(known) &&
        !worth_planning_again(known, room()))
      return true;
    if (known.unplannable && room() <= known.room) return fall_back(known);
    return plan_for(known, room());
  }

  /// What the step would take without a budget now, what no schedule can go below, and what the
  /// budget is in bytes. A share is a share of all that the allocator would hold: it counts the
  /// optimizer's state once that is there, and the arenas of other steps.
  void resolve(KnownStep& known) { resolve(known, *known.captured); }
  void resolve(KnownStep& known, const CapturedStep& captured) {
    const StepGraph& graph = captured.graph();
    if (graph.node_count() == 0) return;  // nothing that could be made a graph of: nothing is known
    const Recording& recording = captured.recording();
    StepMeasurement& last = ledger_.last;
    last.eager_peak = last.base + (recording.peak - recording.base);
    last.floor = last.base + (floor_bytes(graph) - graph.persistent_bytes());
    if (!ledger_.options.budget.given()) return;
    last.budget = ledger_.options.budget.resolve(last.eager_peak + ledger_.others,
                                                 last.floor + ledger_.others);
    if (ledger_.options.budget.kind != Budget::Kind::extra_time) known.budget = last.budget;
  }

  /// What the budget leaves above the base, and above the arenas of other steps.
  [[nodiscard]] Bytes room() const {
    return ledger_.last.budget - ledger_.last.base - ledger_.others;
  }

  /// For errors: what the budget would have to be. Of what resolve() has found.
  [[nodiscard]] std::string what_it_needs() const {
    const StepMeasurement& last = ledger_.last;
    std::string text = "the base is " + std::to_string(last.base.count) +
                       ", no schedule is below " + std::to_string(last.floor.count);
    if (last.eager_peak > Bytes{0})
      text += " (" + std::to_string(percent_up(last.floor, last.eager_peak)) +
              " % of what it takes without a budget)";
    if (ledger_.others > Bytes{0})
      text += ", arenas of other steps hold " + std::to_string(ledger_.others.count) +
              " beyond what is alive in them";
    return text;
  }

  /// The budget in bytes, as far as that is known before the step has been captured: a share of
  /// another step's peak is not this one's.
  [[nodiscard]] Bytes known_budget(const KnownStep& known) const {
    return ledger_.options.budget.kind == Budget::Kind::bytes ? ledger_.options.budget.bytes
                                                              : known.budget;
  }

  /// Whether the next replay is to be timed: what ops take when caches are warm is not what they
  /// took when the step was captured.
  [[nodiscard]] bool wants_times(const KnownStep& known) const {
    return ledger_.options.refine && ledger_.options.budget.given() && !known.from_file &&
           known.plan.overhead() > 0 && known.replays == timed_replay &&
           known.refinements < most_refinements;
  }

 private:
  static constexpr int most_refinements = 1;
  /// The replay that is timed: the one before it has touched the arena, and warmed the caches of
  /// primitives.
  static constexpr int timed_replay = 1;
  /// Of the usual effort, for a plan that will be made again with the times of warm ops.
  static constexpr double quick_effort = 0.3;
  /// Seconds for all planning of a call, unless the user's request has a limit of its own: quickly,
  /// and with the times of warm ops. They bound how much a plan is improved, never whether one is
  /// found.
  static constexpr double quick_seconds = 1.2, most_seconds = 3.6;
  /// Seeds that are tried where the plan is to stay; one where the user asks for little effort.
  static constexpr unsigned most_tries = 8;
  /// As a share of the step's time: what fresh pages cost eager.
  static constexpr double worth_of_arena = 0.1;
  /// Page faults that cost less than this share are not worth another plan.
  static constexpr double worth_planning_lower = 0.02;
  /// Microseconds: 1.2 a page of 4 KiB, which is what it is in eager's steps (ResNet-50, batch 16:
  /// a fifth of the step).
  static constexpr double fault_per_byte = 1.2 / 4096;

  [[nodiscard]] static std::int64_t percent_up(Bytes part, Bytes whole) {
    return static_cast<std::int64_t>(
        std::ceil(100 * static_cast<double>(part.count) / static_cast<double>(whole.count)));
  }

  Plan given_plan(const StepGraph& graph) {
    try {
      return plan_from_file(std::exchange(file, {}).string(), graph);
    } catch (const Error& e) {
      throw Error(e.code(), e.what() + ledger_.afterwards());
    }
  }

  // Other times make another plan worth its while; so does one that was made in a hurry.
  void refine(KnownStep& known) {
    if (known.measured.empty()) return;
    StepGraph& graph = known.captured->graph();
    const std::vector<Microseconds> measured = std::exchange(known.measured, {});
    if (!times_differ(graph, measured) && !known.quick) return;
    for (std::size_t i = 0; i < measured.size(); ++i) graph.set_time(NodeId{i}, measured[i]);
    ++known.refinements;
    ++ledger_.counters.refinements;
    known.stale = true;
    ledger_.log.info("ops take another time than when they were captured: planned again");
  }

  [[nodiscard]] bool arena_fits(const KnownStep& known) const {
    return !known.layout || known.layout->reserved() + known.missed <= room();
  }

  bool plan_for(KnownStep& known, Bytes room) {
    const StepGraph& graph = known.captured->graph();
    PlanRequest request = ledger_.options.planning;
    request.budget = graph.persistent_bytes() + room;
    known.room = room;
    if (room <= Bytes{0}) return fall_back(known);
    known.stale = false;
    known.quick =
        ledger_.options.refine && known.refinements < most_refinements && !ledger_.options.planner;
    if (known.quick) request.effort *= quick_effort;
    Carried old = take_usable(known);
    try {
      if (const std::optional<Plan> missed = look_for_plan(known, request, old.program != nullptr))
        return fall_back(known, ledger_.last.base + (missed->peak - graph.persistent_bytes()));
    } catch (...) {  // the planner's progress is told to code of the user's
      if (old.program) put_back(known, std::move(old));
      throw;
    }
    if (old.program && (!known.program || old.is_better_than(known))) {
      put_back(known, std::move(old));
      ledger_.log.info("the plan that there is stays: no better one was found");
      return true;
    }
    ledger_.log.info("planned: " + format_bytes(known.plan.baseline_peak) + " to " +
                     format_bytes(known.plan.peak) + ", " +
                     std::to_string(known.plan.schedule.size() - graph.node_count()) +
                     " ops again, " +
                     (known.layout ? "an arena of " + format_bytes(known.layout->counted)
                                   : std::string("no arena")) +
                     ", in " + format_time({1e6 * ledger_.last.plan_seconds}));
    return true;
  }

  // A program for a plan inside the budget, where one is found. Returns the best plan that is not,
  // where there is no other one to run.
  std::optional<Plan> look_for_plan(KnownStep& known, PlanRequest request, bool has_one) {
    Plan plan = plan_inside(known, request, seconds_left(known));
    ++ledger_.counters.plans;
    // haste must not make a budget unreachable
    if (!plan.within_budget() && hurried(known) && !has_one) {
      known.quick = false;
      request.effort = ledger_.options.planning.effort;
      plan = plan_inside(known, request, not_for_long(ledger_.options.planning).seconds);
    }
    if (!plan.within_budget() && !has_one) return plan;
    known.unplannable = false;
    if (!plan.within_budget()) return std::nullopt;
    use(known, std::move(plan));
    if (!arena_fits(known) || faulting_share(known) > worth_planning_lower)
      pack_lower(known, request);
    return std::nullopt;
  }

  /// A program with its plan and its addresses, while a better one is looked for.
  struct Carried {
    std::unique_ptr<LibTorchProgram> program{};
    std::unique_ptr<ArenaLayout> layout{};
    Plan plan{};

    [[nodiscard]] bool is_better_than(const KnownStep& known) const {
      return cost_of(plan, layout.get()) <= cost_of(known);
    }
  };

  /// Extra time of a plan as it runs, as a share of the step's: recomputation, and page faults.
  [[nodiscard]] static double cost_of(const Plan& plan, const ArenaLayout* layout) {
    return plan.overhead() + (layout == nullptr ? worth_of_arena : faulting_share(plan, *layout));
  }
  [[nodiscard]] static double cost_of(const KnownStep& known) {
    return cost_of(known.plan, known.layout.get());
  }
  /// What it costs to touch pages again that were given back.
  [[nodiscard]] static double faulting_share(const Plan& plan, const ArenaLayout& layout) {
    return plan.baseline_time.count > 0 ? static_cast<double>(layout.given_back.count) *
                                              fault_per_byte / plan.baseline_time.count
                                        : 0;
  }
  [[nodiscard]] static double faulting_share(const KnownStep& known) {
    return known.layout ? faulting_share(known.plan, *known.layout) : 0;
  }

  // What was planned before and still fits, priced with the times of now: where nothing better is
  // found, it stays. What is better a planner of the user's own knows alone, and where time is the
  // limit it is not the faster plan.
  Carried take_usable(KnownStep& known) const {
    if (ledger_.options.planner || ledger_.options.budget.kind == Budget::Kind::extra_time)
      return {};
    const bool fits =
        known.program && known.program->peak_above_base() <= room() && arena_fits(known);
    if (!fits) return {};
    Carried old{std::move(known.program), std::move(known.layout), std::move(known.plan)};
    const StepGraph& graph = known.captured->graph();
    old.plan.time = simulate(graph, old.plan.schedule).time;
    old.plan.baseline_time = simulate(graph, own_order(graph)).time;
    return old;
  }
  static void put_back(KnownStep& known, Carried old) {
    known.program = std::move(old.program);
    known.layout = std::move(old.layout);
    known.plan = std::move(old.plan);
  }

  // Whether a plan would have had more time, or more effort, if the step did not wait for it.
  [[nodiscard]] bool hurried(const KnownStep& known) const {
    return known.quick || (ledger_.options.planning.seconds <= 0 &&
                           ledger_.last.plan_seconds >= share_of_plan * most_seconds);
  }

  // Where packing is known to waste something, that much less is asked for at once, if it is to be
  // had. `seconds` 0: no limit.
  Plan plan_inside(const KnownStep& known, PlanRequest request, double seconds) {
    const StepGraph& graph = known.captured->graph();
    request.seconds = seconds;
    if (ledger_.options.budget.kind == Budget::Kind::extra_time)
      return timed(plan_within_time(graph, request, ledger_.options.budget.percent,
                                    [&](auto& g, auto& r) { return plan_by_option(g, r); }));
    const Bytes whole = request.budget;
    if (known.packing > 1) {
      const Bytes persistent = graph.persistent_bytes();
      request.budget =
          persistent + Bytes{static_cast<std::int64_t>(
                           static_cast<double>((whole - persistent).count) / known.packing)};
      Plan plan = timed(plan_by_tries(known, request));
      plan.budget = whole;
      if (plan.within_budget()) return plan;
      if (seconds > 0) request.seconds = seconds_left(known);
    }
    request.budget = whole;
    return timed(plan_by_tries(known, request));
  }

  [[nodiscard]] Plan plan_by_option(const StepGraph& graph, const PlanRequest& request) const {
    return ledger_.options.planner ? ledger_.options.planner(graph, request)
                                   : plan_with(ledger_.options.strategy, graph, request);
  }
  // The step waits for its plan, and so do its cores.
  [[nodiscard]] Plan plan_by_tries(const KnownStep& known, const PlanRequest& request) const {
    const auto cores = std::clamp(static_cast<unsigned>(at::get_num_threads()), 1u, most_tries);
    // in a hurry, or where no end is set
    const bool one_round = known.quick || request.seconds <= 0;
    const std::string_view strategy =
        ledger_.options.planner ? std::string_view{} : ledger_.options.strategy;
    const Tries tries =
        tries_of(strategy, ledger_.options.planning, {one_round ? cores : most_tries, cores});
    return plan_best_of(known.captured->graph(), request, tries,
                        [&](auto& g, auto& r) { return plan_by_option(g, r); });
  }
  // Packing may ask for another plan: some time is left for that.
  static constexpr double share_of_plan = 0.75;
  [[nodiscard]] double seconds_left(const KnownStep& known) const {
    if (ledger_.options.planning.seconds > 0) return ledger_.options.planning.seconds;
    return std::max(0.1, share_of_plan * ((known.quick ? quick_seconds : most_seconds) -
                                          ledger_.last.plan_seconds));
  }
  Plan timed(Plan plan) {
    ledger_.last.plan_seconds += plan.seconds;
    return plan;
  }

  // Packing has wasted more than the budget leaves, and giving pages back in between costs much or
  // cannot be done: planned again for that much less. What costs least runs; without an arena where
  // that is so.
  void pack_lower(KnownStep& known, const PlanRequest& request) {
    constexpr int attempts = 2;
    if (!arena_fits(known)) known.layout.reset();
    Carried best{std::move(known.program), std::move(known.layout), std::move(known.plan)};
    const auto better = [&] {
      return (!known.layout || arena_fits(known)) &&
             cost_of(known) < cost_of(best.plan, best.layout.get());
    };
    for (int attempt = 0;
         attempt < attempts && ledger_.options.budget.kind != Budget::Kind::extra_time; ++attempt) {
      const double height =
          static_cast<double>((best.layout ? best.layout->height : packed_).count);
      ledger_.log.info("an arena of " + format_bytes(Bytes{static_cast<std::int64_t>(height)}) +
                       " does not fit into " + format_bytes(room()) + ": planned for less");
      known.packing =
          std::max(known.packing,
                   height / static_cast<double>(best.program->peak_above_base().count)) +
          0.005;
      Plan lower = plan_inside(known, request, seconds_left(known));
      if (!lower.within_budget() || lower.overhead() >= cost_of(best.plan, best.layout.get()))
        break;
      use(known, std::move(lower));
      if (better())
        best = {std::move(known.program), std::move(known.layout), std::move(known.plan)};
      if (best.layout && faulting_share(best.plan, *best.layout) <= worth_planning_lower) break;
    }
    put_back(known, std::move(best));
  }

  // `smallest`: the lowest peak that was found, where one was looked for.
  bool fall_back(KnownStep& known, std::optional<Bytes> smallest = std::nullopt) {
    const std::string why =
        "no schedule within the budget of " + format_bytes(ledger_.last.budget) + " (" +
        std::to_string(ledger_.last.budget.count) + " bytes) was found: " + what_it_needs() +
        (smallest ? ", the smallest peak found is " + std::to_string(smallest->count) : "");
    if (ledger_.options.on_fallback == OnFallback::error)
      throw Error(Errc::budget_unreachable, why + ledger_.afterwards());
    if (!known.unplannable)
      ledger_.notice("this step runs inside the budget by moving storages out: " + why);
    known.unplannable = true;
    known.forget_program();
    return false;
  }

  // The base may shrink as well: what was planned for far less room pays for recomputation that is
  // no longer needed.
  [[nodiscard]] static bool worth_planning_again(const KnownStep& known, Bytes room) {
    if (known.stale) return true;
    return known.plan.overhead() > 0 && known.room > Bytes{0} &&
           room.count > known.room.count + known.room.count / 20;
  }

  void use(KnownStep& known, Plan plan) {
    CapturedStep& captured = *known.captured;
    const Rewriting rewriting = rewrite(captured.graph(), plan.schedule);
    lint(captured.graph(), rewriting);
    known.program =
        std::make_unique<LibTorchProgram>(LibTorchBackend{}.compile(captured, rewriting));
    known.plan = std::move(plan);
    known.from_file = false;
    known.replays = 0;
    known.measured.clear();
    if (plans_addresses_) lay_out(known, rewriting);
  }

  void lay_out(KnownStep& known, const Rewriting& rewriting) {
    const Bytes enough =
        ledger_.options.budget.given() ? std::max(room() - known.missed, Bytes{1}) : Bytes{0};
    ArenaLayout layout = layout_arena(known.captured->recording(), rewriting, known.trace,
                                      known.captured->result_count(), enough);
    packed_ = layout.height;
    known.layout = layout.planned > 0 ? std::make_unique<ArenaLayout>(std::move(layout)) : nullptr;
  }

  StepLedger& ledger_;
  bool plans_addresses_;
  Bytes packed_{};  // the height of the last layout
};

}  // namespace reprise
