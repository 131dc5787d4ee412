#pragma once
// What a MemoryBudget is asked for.
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

/// What to do where one op alone needs more than the budget.
enum class OverBudget : std::uint8_t {
  error_at_first,  ///< an error in the first step, a notice in later ones
  error,
  go_on,  ///< a notice, and above the budget
};

/// What to do where steps that cannot be planned for the budget cost more than `slow_down` says.
enum class WhenSlow : std::uint8_t {
  stay,      ///< inside the budget, slowly: a budget is a promise
  go_above,  ///< to the smallest budget that a plan is found for
  fail,      ///< the next step() throws Errc::budget_unreachable
};

struct MemoryBudgetOptions {
  /// A planner of the user's own has to keep the order: the ops are the user's, as they come.
  RunOptions run{};
  /// steps go on online meanwhile; false: the step that ends waits for its plan
  bool plan_in_background = true;
  OverBudget over_budget = OverBudget::error_at_first;
  /// A step without a plan that takes more than so many times what its own ops take is slow: a
  /// notice says so once, with what would do.
  double slow_down = 3;
  WhenSlow when_slow = WhenSlow::stay;
  /// Where no plan is found, or nothing comes again that could be planned: false, steps stay inside
  /// the budget online; true, they run as they are, and the modules that the user has given to
  /// checkpoint() are what is recomputed. Their memory is then what these make it.
  bool blocks_where_unplanned = false;
  /// On Linux, what is evicted keeps its address too, as what is spilled does anyway: raw pointers
  /// from earlier in the step, or taken now, read what eager would give. Only of tensors of 12 KiB
  /// and more; see docs/memory_budget.md for what it costs.
  bool raw_pointers = false;
  /// Told of each step when it is done.
  std::function<void(const GuidedStepReport&)> on_step{};
};

}  // namespace reprise::options

namespace reprise {
using options::MemoryBudgetOptions;
using options::OverBudget;
using options::WhenSlow;
}  // namespace reprise
