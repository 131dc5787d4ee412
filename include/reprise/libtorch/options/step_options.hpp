#pragma once
// What a TrainStep is asked for.
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

/// What happens where no plan fits the budget, or a step cannot be captured.
enum class OnFallback : std::uint8_t {
  notice,  ///< the step runs inside the budget by spilling, and is told of once
  error,   ///< Errc::budget_unreachable or capture_failed
};

struct TrainStepOptions {
  Budget budget{};
  RunOptions run{};
  OnFallback on_fallback = OnFallback::notice;
  /// The calls 2, 3, 4, 8, 16, … after a capture, and then every 100th, run under the recorder,
  /// their own result used, and are compared with the graph: that is how host state in the loss
  /// function is found out. Between these a replay trusts it.
  bool recheck = true;
  /// Told of each step when it is done.
  std::function<void(const TrainStepReport&)> on_step{};
};

}  // namespace reprise::options

namespace reprise {
using options::OnFallback;
using options::TrainStepOptions;
}  // namespace reprise
