#pragma once
// TrainStepOptions are the options of a TrainStep.
//
//   TrainStepOptions options{.budget = Budget::savable(50),
//                            .run = {.verify_every = 100},
//                            .on_step = [&](const TrainStepReport& s) { log(s.peak); }};
//
// MemoryBudgetOptions (memory_budget_options.hpp) is its sibling: `.run` and `.on_step` are the
// same there.

#include <cstdint>
#include <functional>

#include <reprise/libtorch/options/budget.hpp>
#include <reprise/libtorch/options/reports.hpp>
#include <reprise/libtorch/options/run_options.hpp>

namespace reprise::options {

/// The reaction if no plan fits the budget, or if a step cannot be captured.
enum class OnFallback : std::uint8_t {
  notice,  ///< the step runs inside the budget by spilling; a notice says so once
  error,   ///< Errc::budget_unreachable or capture_failed
};

struct TrainStepOptions {
  Budget budget{};
  RunOptions run{};
  OnFallback on_fallback = OnFallback::notice;
  /// The calls 2, 3, 4, 8, 16, … after a capture, and then every 100th call, run under the
  /// recorder. TrainStep uses their results and compares them with the graph. This finds state of
  /// user code that a replay cannot see. Between these calls, a replay trusts the graph.
  bool recheck = true;
  /// Called after each step.
  std::function<void(const TrainStepReport&)> on_step{};
};

}  // namespace reprise::options

namespace reprise {
using options::OnFallback;
using options::TrainStepOptions;
}  // namespace reprise
