#pragma once
// The reports and counters of TrainStep and MemoryBudget: one base with what both measure, and the
// members of each.
//
//   step.last().peak, step.last().predicted_peak, step.last().arena            TrainStepReport
//   budget.last().peak, budget.last().predicted_peak, budget.last().extra_time  GuidedStepReport
//
// Bytes are the allocator's live bytes unless a name says otherwise; 0 if a number is not known.

#include <cstddef>
#include <cstdint>
#include <string>

#include <reprise/base/units.hpp>

namespace reprise::options {

/// The report of one step, as both fronts measure it.
struct StepReport {
  Bytes base{};       ///< start bytes: live when the step began
  Bytes budget{};     ///< what was allowed; 0 for no limit, or a limit that is not known yet
  Bytes peak{};       ///< the maximum of the live bytes
  Bytes elsewhere{};  ///< part of the peak: from threads that are not part of the step
  /// the plan's prediction: equal to `peak` if the step did exactly what was planned; 0 if it did
  /// something else
  Bytes predicted_peak{};
  Bytes eager_peak{};    ///< what the step would have needed without a budget
  Bytes floor{};         ///< a lower bound on the peak of every schedule
  Bytes probed_peak{};   ///< by the pipeline's memory probe, which is by default the allocator's
  Bytes moved{};         ///< spilled to a file
  bool planned = false;  ///< the step followed a plan to its end
  bool fits = false;     ///< the budget is large enough without a plan
  bool over_budget = false;     ///< more was live than the budget allows, whoever allocated it
  std::int64_t recomputed = 0;  ///< ops that were recomputed
  /// time of the step's own ops: measured in a guided step, from the graph in a replay
  Microseconds own_time{};
  Microseconds predicted_extra_time{};  ///< predicted time of the plan's recomputation
  Microseconds planning_time{};         ///< time that this step waited for plans
  Microseconds time{};                  ///< the whole step, planning included

  /// As a share of the step's own time: 0.07 for 7 % more.
  [[nodiscard]] double predicted_overhead() const {
    return own_time.count > 0 ? predicted_extra_time.count / own_time.count : 0;
  }
};

/// Counters of both fronts.
struct StepCounters {
  std::int64_t steps = 0;
  std::int64_t planned_steps = 0;  ///< steps that followed a plan
  std::int64_t fitting_steps = 0;  ///< steps for which the budget was large enough without a plan
  std::int64_t plans = 0;          ///< searches for a plan
  std::int64_t refinements = 0;    ///< searches because of better times; part of `plans`
  Microseconds planning_time{};    ///< time that steps waited for plans
};

struct TrainStepReport : StepReport {
  bool replayed = false;  ///< run from its graph
  Bytes reserved_peak{};  ///< live bytes plus unused bytes of arenas: the budget bounds them
  /// the limit of a step under the recorder, kept by spilling; 0 for a replay, and for no limit
  Bytes limit{};
  Bytes arena{};                  ///< the size of the arena
  std::int64_t arena_blocks = 0;  ///< allocations that got their planned address
  std::int64_t arena_misses = 0;  ///< allocations that did not
};

/// How often each way was taken: every step is one of the first six, or was verified.
struct TrainStepCounters : StepCounters {
  std::int64_t captures = 0;
  std::int64_t replays = 0;
  /// steps that ran under the recorder and were equal to the graph
  std::int64_t rechecks = 0;
  std::int64_t eager_runs = 0;  ///< steps without a graph, outside of any budget
  /// steps inside the budget by spilling alone: no plan was found, or they have no graph
  std::int64_t fallbacks = 0;
  /// steps that ran under the recorder and were not equal to the graph
  std::int64_t failed_rechecks = 0;
  /// replays that stopped because a data-dependent value or shape differed; each was captured anew
  std::int64_t guard_failures = 0;
  std::int64_t workspace_changes = 0;  ///< nodes whose workspace differed from the prediction
  std::int64_t verified = 0;           ///< replays that were compared with eager, bit for bit
  std::int64_t differences = 0;        ///< verified replays that were not equal
};

struct GuidedStepReport : StepReport {
  bool only_spills = false;  ///< recomputation had reached its bound: storages were spilled
  /// storages that were evicted or spilled, and restored outside of any plan
  std::int64_t brought_back = 0;
  std::int64_t evicted = 0;     ///< storages that were evicted or spilled online
  Microseconds extra_time{};    ///< spent on recomputing
  Microseconds moving_time{};   ///< spent on spilling and fetching
  std::string divergence{};     ///< why the step diverged from its plan
  std::size_t diverged_at = 0;  ///< the node at which it diverged

  /// Step time divided by the time of its own ops: 1 if nothing was recomputed or spilled.
  [[nodiscard]] double slow_down() const {
    return own_time.count > 0 ? 1 + (extra_time.count + moving_time.count) / own_time.count : 1;
  }
};

/// Counts of steps by the way they ran: every step is planned, fits, or is one of the first two.
struct MemoryBudgetCounters : StepCounters {
  std::int64_t online_steps = 0;  ///< without a plan: an eviction policy decided, or would have
  /// steps that ran unchanged, with the user's own checkpoints (use_checkpoints_if_unplanned)
  std::int64_t block_steps = 0;
  std::int64_t recomputed = 0, brought_back = 0;
  Bytes moved{};
};

/// A page about a step: libtorch/options/step_report.hpp.
struct StepPage;

}  // namespace reprise::options

namespace reprise {
using options::GuidedStepReport;
using options::MemoryBudgetCounters;
using options::StepCounters;
using options::StepReport;
using options::TrainStepCounters;
using options::TrainStepReport;
}  // namespace reprise
