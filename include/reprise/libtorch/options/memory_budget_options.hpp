#pragma once
// What a MemoryBudget is asked for, and what it tells of each step.
//
//   MemoryBudgetOptions options{.name = "gpt", .over_budget = OverBudget::go_on};

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>

#include <reprise/base/log.hpp>
#include <reprise/base/units.hpp>
#include <reprise/plan/request.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise {

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
  std::string name = "step";
  std::string strategy = "anneal";  ///< one of strategy_names
  /// Any other way to plan, with any cost model: [](auto& g, auto& r) { return Planner<ByteCost,
  /// MinCut>{}.plan(g, r); }. Where plans are made in the background it is called on another
  /// thread, and by advise() perhaps at the same time. It has to keep the order: the ops are the
  /// user's, as they come.
  PlanFunction planner{};
  /// Effort, seed, seconds; its budget and order are set here. Where the step waits for its plan,
  /// and for advice, a limit in seconds that is not given is one of 5.
  PlanRequest planning{};
  /// steps go on online meanwhile; false: the step that ends waits for its plan
  bool plan_in_background = true;
  /// streams that are kept, the least recently seen is forgotten; 0: every step is online
  std::size_t max_plans = 8;
  /// plan once more where ops take another time than in the first step
  bool refine = true;
  OverBudget over_budget = OverBudget::error_at_first;
  /// A step without a plan that takes more than so many times what its own ops take is slow: a
  /// notice says so once, with what would do.
  double slow_down = 3;
  WhenSlow when_slow = WhenSlow::stay;
  /// Where no plan is found, or nothing comes again that could be planned: false, steps stay inside
  /// the budget online; true, they run as they are, and the blocks that the user has given to
  /// checkpoint() are what is computed again. Their memory is then what these make it.
  bool blocks_where_unplanned = false;
  /// On Linux, what is evicted keeps its address too, as what is spilled does anyway: raw pointers
  /// from earlier in the step, or taken now, read what eager would give. Only of tensors of 12 KiB
  /// and more; see docs/memory_budget.md for what it costs.
  bool raw_pointers = false;
  /// compare everything that runs again with what it was, and throw where it differs: slow, for the
  /// doubtful
  bool verify = false;
  /// for a share: the limit of the first step; 0 for 80 % of free memory
  Bytes limit_until_known{};
  std::filesystem::path spill_folder{};  ///< for what can neither be kept nor made again
  LogLevel log_level = log_level_of_environment();
  Log::Sink on_log{};  ///< where the log goes; by default to stderr
  /// Gets the notices alone, whatever the level: a plan that is not found, a budget that is passed.
  std::function<void(const std::string&)> on_notice{};
};

/// One step, measured.
struct GuidedStepReport {
  Bytes base{};       ///< what the allocator held when the step began
  Bytes budget{};     ///< what it was allowed to hold; 0 for no limit
  Bytes peak{};       ///< what it held at most
  Bytes elsewhere{};  ///< of this, what threads that are not part of the step took meanwhile
  /// what the plan says, equal to `peak` where it was followed to the end; 0 where a step went from
  /// one plan to another
  Bytes predicted_peak{};
  Bytes eager_peak{};    ///< what the step would have taken without a budget
  Bytes floor{};         ///< what no schedule can go below; 0 where the stream was not looked at
  bool planned = false;  ///< a plan was carried out; else online
  bool over_budget = false;     ///< the allocator held more than the budget, whoever took it
  bool only_spills = false;     ///< recomputation had reached its bound: storages were spilled
  std::int64_t recomputed = 0;  ///< ops that ran again
  /// storages that were dropped or moved out, and came back outside of any plan
  std::int64_t brought_back = 0;
  std::int64_t evicted = 0;    ///< storages that were given up online
  Bytes moved{};               ///< moved out to a file
  Microseconds own_time{};     ///< spent on the step's own ops
  Microseconds extra_time{};   ///< spent on running ops again
  Microseconds moving_time{};  ///< spent on moving storages out and in
  Microseconds time{};         ///< from the beginning of the scope to its end
  std::string left_because{};  ///< where a plan was left on the way
  std::size_t left_at = 0;     ///< and at which node

  /// How many times what its own ops take: 1 where nothing ran again or was moved.
  [[nodiscard]] double slow_down() const {
    return own_time.count > 0 ? 1 + (extra_time.count + moving_time.count) / own_time.count : 1;
  }
};

struct GuidedCounters {
  std::int64_t steps = 0, planned_steps = 0, online_steps = 0;
  /// that ran as they are, with the user's own checkpoints (blocks_where_unplanned)
  std::int64_t block_steps = 0;
  std::int64_t plans = 0;  ///< that were begun
  std::int64_t recomputed = 0, brought_back = 0;
  Bytes moved{};
  double plan_seconds = 0;  ///< that steps have waited for plans
};

[[nodiscard]] inline std::string guided_summary(const std::string& name,
                                                const GuidedCounters& counters,
                                                const GuidedStepReport& last) {
  std::ostringstream out;
  out << name << ": " << counters.steps << " steps, " << counters.planned_steps << " planned, "
      << counters.online_steps << " online, ";
  if (counters.block_steps > 0) out << counters.block_steps << " with checkpoints of their own, ";
  out << counters.plans << " plans made\n"
      << "  budget      " << (last.budget > Bytes{0} ? format_bytes(last.budget) : "none yet")
      << '\n'
      << "  peak        " << format_bytes(last.peak);
  if (last.planned) out << " (predicted " << format_bytes(last.predicted_peak) << ")";
  out << ", without a budget " << format_bytes(last.eager_peak) << ", at least "
      << format_bytes(last.floor) << '\n'
      << "  ran again   " << last.recomputed << " ops in the last step, "
      << format_time(last.extra_time) << " of " << format_time(last.time) << "\n  moved out   "
      << format_bytes(counters.moved) << " in all\n";
  return out.str();
}

}  // namespace reprise
