#pragma once
// What TrainStep and MemoryBudget tell of their steps: one report with what both measure, and what
// each has beside it.
//
//   step.last().peak, step.last().predicted_peak, step.last().arena            TrainStepReport
//   budget.last().peak, budget.last().predicted_peak, budget.last().extra_time  GuidedStepReport
//
// Bytes are the allocator's live bytes unless a name says otherwise; 0 where a number is not known.

#include <cstddef>
#include <cstdint>
#include <string>

#include <reprise/base/units.hpp>

namespace reprise::options {

/// One step, as both fronts measure it.
struct StepReport {
  Bytes base{};       ///< live when the step began
  Bytes budget{};     ///< what was allowed; 0 for no limit, or none that is known yet
  Bytes peak{};       ///< the most that was live
  Bytes elsewhere{};  ///< of this, what threads that are not part of the step took meanwhile
  /// what the plan says: equal to `peak` where the step did what was planned, and nothing else; 0
  /// where it did not
  Bytes predicted_peak{};
  Bytes eager_peak{};    ///< what the step would have taken without a budget
  Bytes floor{};         ///< what no schedule can go below
  Bytes probed_peak{};   ///< what the pipeline's memory probe says; by default the allocator's peak
  Bytes moved{};         ///< spilled to a file
  bool planned = false;  ///< a plan decided what is kept, to its end
  bool fits = false;     ///< the budget is large enough for all that the step takes: no plan
  bool over_budget = false;     ///< more was live than the budget allows, whoever took it
  std::int64_t recomputed = 0;  ///< ops that ran again
  /// what the step's own ops take: measured in a guided step, by the graph's times in a replay
  Microseconds own_time{};
  Microseconds predicted_extra_time{};  ///< what the plan's recomputation is expected to take
  Microseconds planning_time{};         ///< that this step has waited for plans
  Microseconds time{};                  ///< the whole step, planning included

  /// As a share of the step's own time: 0.07 for 7 % more.
  [[nodiscard]] double predicted_overhead() const {
    return own_time.count > 0 ? predicted_extra_time.count / own_time.count : 0;
  }
};

/// What both fronts count.
struct StepCounters {
  std::int64_t steps = 0;
  std::int64_t planned_steps = 0;  ///< in which a plan decided what is kept
  std::int64_t fitting_steps = 0;  ///< for which the budget was large enough without a plan
  std::int64_t plans = 0;          ///< searches for a plan
  std::int64_t refinements = 0;    ///< of these, those that were made because of better times
  Microseconds planning_time{};    ///< that steps have waited for plans
};

struct TrainStepReport : StepReport {
  bool replayed = false;  ///< run from its graph
  Bytes reserved_peak{};  ///< live bytes and the unused bytes of arenas: what the budget bounds
  /// what a step under the recorder was held to by spilling; 0 for a replay, and for none
  Bytes limit{};
  Bytes arena{};                  ///< the size of the arena
  std::int64_t arena_blocks = 0;  ///< allocations that got their planned address
  std::int64_t arena_misses = 0;  ///< allocations that did not
};

/// How often each way was taken: every step is one of the first six, or was verified.
struct TrainStepCounters : StepCounters {
  std::int64_t captures = 0;
  std::int64_t replays = 0;
  /// steps that ran under the recorder and were the same as the graph
  std::int64_t rechecks = 0;
  std::int64_t eager_runs = 0;  ///< steps without a graph, outside of any budget
  /// steps inside the budget only by spilling: no plan was found for them, or they have no graph
  std::int64_t fallbacks = 0;
  /// steps that ran under the recorder and were not the same as the graph
  std::int64_t failed_rechecks = 0;
  /// replays that were given up because a host value or shape differed; each was captured anew
  std::int64_t guard_failures = 0;
  std::int64_t workspace_changes = 0;  ///< nodes that took another workspace than predicted
  std::int64_t verified = 0;           ///< replays that were compared with eager, bit for bit
  std::int64_t differences = 0;        ///< of these, those that were not equal
};

struct GuidedStepReport : StepReport {
  bool only_spills = false;  ///< recomputation had reached its bound: storages were spilled
  /// storages that were evicted or spilled, and came back outside of any plan
  std::int64_t brought_back = 0;
  std::int64_t evicted = 0;    ///< storages that were given up online
  Microseconds extra_time{};   ///< spent on recomputing
  Microseconds moving_time{};  ///< spent on spilling and fetching
  std::string left_because{};  ///< where a plan was left on the way
  std::size_t left_at = 0;     ///< and at which node

  /// How many times what its own ops take: 1 where nothing was recomputed or spilled.
  [[nodiscard]] double slow_down() const {
    return own_time.count > 0 ? 1 + (extra_time.count + moving_time.count) / own_time.count : 1;
  }
};

/// How often each way was taken: every step is planned, fits, or is one of the first two.
struct GuidedCounters : StepCounters {
  std::int64_t online_steps = 0;  ///< an eviction policy decided, or would have
  /// steps that ran as they are, with the user's own checkpoints (blocks_where_unplanned)
  std::int64_t block_steps = 0;
  std::int64_t recomputed = 0, brought_back = 0;
  Bytes moved{};
};

/// A page about a step: libtorch/options/step_report.hpp.
struct StepPage;

}  // namespace reprise::options

namespace reprise {
using options::GuidedCounters;
using options::GuidedStepReport;
using options::StepCounters;
using options::StepReport;
using options::TrainStepCounters;
using options::TrainStepReport;
}  // namespace reprise
