#pragma once
// What a TrainStep is asked for, and what it tells of itself.
//
//   TrainStepOptions options{.budget = Budget::savable(50), .verify = 100, .on_step = [&](const StepMeasurement& s) { log(s.peak); }};

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <reprise/base/log.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/options/budget.hpp>
#include <reprise/plan/request.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise {

/// How often each way was taken.
struct StepCounters {
  std::int64_t captures = 0;
  std::int64_t replays = 0;
  std::int64_t eager_runs = 0;
  /// replays that were given up because a host value or shape differed; each was captured anew
  std::int64_t guard_failures = 0;
  /// nodes that took another workspace than predicted; the prediction follows
  std::int64_t workspace_changes = 0;
  std::int64_t plans = 0;  ///< schedules that were made
  /// steps that ran under the recorder and were the same as the graph
  std::int64_t rechecks = 0;
  /// plans made again because ops take another time than when they were captured
  std::int64_t refinements = 0;
  std::int64_t verified = 0;     ///< replays that were compared with eager, bit for bit
  std::int64_t differences = 0;  ///< of these, those that were not equal
  /// steps inside the budget only by moving storages out: no plan was found for them
  std::int64_t fallbacks = 0;
};

/// What the last call took.
struct StepMeasurement {
  Bytes base{};  ///< what the allocator held when the step began
  Bytes peak{};  ///< what it held at most
  /// the same, but arenas count as a whole: what the budget bounds
  Bytes reserved_peak{};
  /// of this, what threads that are not part of the step took meanwhile
  Bytes elsewhere{};
  bool over_budget = false;  ///< it held more than it was allowed to, and a notice says so
  /// what the graph says; of a captured or eager step: its own peak
  Bytes predicted_peak{};
  /// what the step would take without a budget; 0 where that is not known
  Bytes eager_peak{};
  Bytes floor{};   ///< what no schedule can go below
  Bytes budget{};  ///< 0 for none
  /// what a step under the recorder was held to by moving out; 0 for a replay, and for none
  Bytes limit{};
  Bytes arena{};  ///< the size of the arena
  /// what the memory probe of the step says; by default the allocator's peak
  Bytes probed_peak{};
  std::int64_t arena_blocks = 0;  ///< allocations that got their planned address
  /// those that did not match the plan, and came from the allocator
  std::int64_t arena_misses = 0;
  Bytes moved{};                    ///< moved out to stay inside it
  std::size_t recomputed = 0;       ///< ops that ran again
  double extra_time_predicted = 0;  ///< as a share of the step's own time
  double plan_seconds = 0;          ///< spent on planning in this call
  double seconds = 0;               ///< the whole call, planning included
  bool replayed = false;
};

/// What happens where no plan fits the budget, or a step cannot be captured.
enum class OnFallback : std::uint8_t {
  notice,  ///< the step runs inside the budget by moving storages out, and is told of once
  error,   ///< Errc::budget_unreachable or capture_failed
};

struct TrainStepOptions {
  std::string name = "step";
  Budget budget{};
  std::string strategy = "anneal";  ///< one of strategy_names
  /// Any other way to plan, with any cost model: [](auto& g, auto& r) { return Planner<ByteCost,
  /// MinCut>{}.plan(g, r); }
  PlanFunction planner{};
  /// Seed, effort, keep_order, …; its budget is set here. Where it has no limit in seconds, the
  /// first plan of a step has one of 1.2 and a later one of 3.6.
  PlanRequest planning{};
  OnFallback on_fallback = OnFallback::notice;
  /// Calls 2, 3, 4, 8, 16, … and then every 100th run under the recorder, their own result used,
  /// and are compared with the graph: that is how host state in the loss function is found out.
  /// Between these a replay trusts it.
  bool recheck = true;
  /// of a share: what the first step may hold, before the share is known; 0: 80 % of free memory
  Bytes limit_until_known{};
  /// where storages are moved to; empty for the system's folder for temporary files
  std::filesystem::path spill_folder{};
  /// signatures that are kept; the one used longest ago goes first
  std::size_t max_plans = 16;
  /// Plan once more where ops take another time than when they were captured.
  bool refine = true;
  /// Every n-th replay also runs eagerly and is compared bit for bit; what eager made is used. 0:
  /// never. Not inside the budget.
  std::int64_t verify = 0;
  /// Told of each step when it is done.
  std::function<void(const StepMeasurement&)> on_step{};
  LogLevel log_level = log_level_of_environment();
  /// Where the log goes; by default to stderr.
  Log::Sink on_log{};
  /// Gets the notices alone, whatever the level: why a step runs eagerly or was captured anew.
  std::function<void(const std::string&)> on_notice{};
};

}  // namespace reprise
