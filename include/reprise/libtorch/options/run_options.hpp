#pragma once
// What TrainStep and MemoryBudget are both asked for: the member `.run` of either's options.
//
//   TrainStep step{model, loss_fn, {.budget = 4_GiB, .run = {.name = "gpt", .verify_every = 100}}};
//   MemoryBudget budget{4_GiB, {.run = {.name = "gpt", .verify_every = 100}}};

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <reprise/base/log.hpp>
#include <reprise/base/units.hpp>
#include <reprise/plan/request.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise::options {

struct RunOptions {
  std::string name = "step";
  /// One of strategy_names, in the place of the pipeline's own; empty for that.
  std::string strategy{};
  /// Any other way to plan that is chosen when the program runs: [](auto& g, auto& r) { return
  /// Planner<ByteCost, MinCut>{}.plan(g, r); }. Where plans are made in the background it is called
  /// on another thread, and by advise() perhaps at the same time.
  PlanFunction planner{};
  /// Seed, effort, seconds, …; its budget is set here. A step that waits for its plan waits for 5
  /// seconds of processor time at most, unless this has a limit of its own.
  PlanRequest planning{};
  /// Steps whose plans are kept; the one used longest ago goes first. A MemoryBudget with 0 plans
  /// nothing: every step is online.
  std::size_t max_plans = 16;
  /// Plan once more where ops take another time than in the first step.
  bool refine = true;
  /// Compare with eager, bit for bit, in every n-th step; 0: never. Slow, for the doubtful. A
  /// TrainStep runs that step eagerly as well, outside of the budget, and uses eager's results. A
  /// MemoryBudget compares everything that it recomputes with its first run, and throws where it
  /// differs.
  std::int64_t verify_every = 0;
  /// Of a share: what the first step may hold, before the share is known; 0: 80 % of free memory.
  Bytes limit_until_known{};
  /// Where storages are spilled to; empty for the system's folder for temporary files.
  std::filesystem::path spill_folder{};
  LogLevel log_level = log_level_of_environment();
  /// Where the log goes; by default to stderr.
  Log::Sink on_log{};
  /// Gets the notices alone, whatever the level: what costs more, or holds more, than was asked
  /// for.
  std::function<void(const std::string&)> on_notice{};
};

/// What the first step of a budget that is a share may hold, before the share is known: what the
/// user says, else 80 % of free memory above what is live.
[[nodiscard]] inline Bytes limit_until_known(Bytes asked, Bytes live, Bytes free) {
  if (asked > Bytes{0}) return asked;
  return free > Bytes{0} ? live + Bytes{free.count / 5 * 4} : Bytes{0};
}

}  // namespace reprise::options

namespace reprise {
using options::RunOptions;
}  // namespace reprise
