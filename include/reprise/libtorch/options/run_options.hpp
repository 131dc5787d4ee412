#pragma once
// RunOptions are the options that TrainStep and MemoryBudget share: the member `.run` of both.
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
  /// One of strategy_names, instead of the pipeline's own strategy; empty for the pipeline's own.
  std::string strategy{};
  /// Any other way to plan, chosen at run time: [](auto& g, auto& r) { return Planner<ByteCost,
  /// MinCut>{}.plan(g, r); }. If plans are made in the background, it is called on another thread,
  /// and perhaps by advise() at the same time.
  PlanFunction planner{};
  /// Seed, effort, seconds, …; Reprise sets its budget. A step that waits for its plan waits for at
  /// most 5 seconds of processor time, unless this request has its own limit.
  PlanRequest planning{};
  /// Number of steps whose plans are kept; the least recently used step is removed first. With 0, a
  /// MemoryBudget plans nothing: every step is online.
  std::size_t max_plans = 16;
  /// Plan once more if the times of ops differ from the first step's.
  bool refine = true;
  /// Compare with eager, bit for bit, in every n-th step; 0: never. For a user who doubts a result:
  /// the comparison is slow. A TrainStep also runs that step eagerly, outside of the budget, and
  /// uses eager's results. A MemoryBudget compares every recomputation with its first run, and
  /// throws at a difference.
  std::int64_t verify_every = 0;
  /// For a share: the limit of the first step, before the share is known; 0: 80 % of free memory.
  Bytes limit_until_known{};
  /// The folder of the spill file; empty for the system's folder for temporary files.
  std::filesystem::path spill_folder{};
  LogLevel log_level = log_level_of_environment();
  /// Receives the log; by default, stderr does.
  Log::Sink on_log{};
  /// Receives only the notices, at any log level: steps that cost more time or memory than was
  /// asked for.
  std::function<void(const std::string&)> on_notice{};
};

/// The limit of the first step if the budget is a share that is not known yet: the user's number,
/// else 80 % of free memory above the live bytes.
[[nodiscard]] inline Bytes limit_until_known(Bytes asked, Bytes live, Bytes free) {
  if (asked > Bytes{0}) return asked;
  return free > Bytes{0} ? live + Bytes{free.count / 5 * 4} : Bytes{0};
}

}  // namespace reprise::options

namespace reprise {
using options::RunOptions;
}  // namespace reprise
