#pragma once
// MemoryBudgetOptions are the options of a MemoryBudget.
//
//   MemoryBudgetOptions options{.run = {.name = "gpt", .verify_every = 1},
//                               .over_budget = OverBudget::go_on,
//                               .on_step = [&](const GuidedStepReport& s) { log(s.peak); }};
//
// TrainStepOptions (step_options.hpp) is its sibling: `.run` and `.on_step` are the same there.

#include <cstdint>
#include <functional>

#include <reprise/libtorch/options/reports.hpp>
#include <reprise/libtorch/options/run_options.hpp>

namespace reprise::options {

/// The reaction if one op alone needs more than the budget.
enum class OverBudget : std::uint8_t {
  error_at_first,  ///< an error in the first step, a notice in later ones
  error,
  go_on,  ///< a notice, and the step exceeds the budget
};

/// The reaction if steps without a plan cost more than `slow_down` allows.
enum class WhenSlow : std::uint8_t {
  stay,      ///< the steps stay inside the budget and are slow: a budget is a promise
  go_above,  ///< uses the smallest budget for which a plan is found
  fail,      ///< the next step() throws Errc::budget_unreachable
};

struct MemoryBudgetOptions {
  /// A planner of the user's must keep the order of the ops, because the user's code runs them.
  RunOptions run{};
  /// true: steps go on online meanwhile; false: the step that ends waits for its plan
  bool plan_in_background = true;
  OverBudget over_budget = OverBudget::error_at_first;
  /// A step without a plan is slow if it takes more than `slow_down` times the time of its own ops.
  /// A notice says so once, with a sufficient budget.
  double slow_down = 3;
  WhenSlow when_slow = WhenSlow::stay;
  /// The reaction if no plan is found or no op sequence repeats. false: steps stay inside the
  /// budget online. true: steps run unchanged, and only the modules that the user has given to
  /// checkpoint() are recomputed. These modules alone then decide how much memory a step needs.
  bool use_checkpoints_if_unplanned = false;
  /// On Linux, evicted storages keep their addresses too, as spilled storages do. Raw
  /// pointers from earlier in the step, or taken now, then read the bytes that eager would. Only
  /// for tensors of 12 KiB and more; docs/memory_budget.md has the cost.
  bool raw_pointers = false;
  /// Called after each step.
  std::function<void(const GuidedStepReport&)> on_step{};
};

}  // namespace reprise::options

namespace reprise {
using options::MemoryBudgetOptions;
using options::OverBudget;
using options::WhenSlow;
}  // namespace reprise
