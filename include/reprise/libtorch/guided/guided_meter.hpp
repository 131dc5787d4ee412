#pragma once
// A GuidedMeter measures the steps of a MemoryBudget. It fills the report of the last step and the
// counts of all steps.
//
//   GuidedMeter meter{limit};
//   meter.begin(live);                                 a step begins
//   meter.end(recording, counters, transfers, own, went_over);
//   meter.last().peak, meter.last().planned
//   meter.count(plans);                                after planning, so that its time is counted

#include <algorithm>
#include <chrono>
#include <string>

#include <reprise/base/clock.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/guided/budget_limit.hpp>
#include <reprise/libtorch/guided/guided_step.hpp>
#include <reprise/libtorch/guided/known_sequences.hpp>
#include <reprise/libtorch/options/reports.hpp>
#include <reprise/plan/replanner.hpp>

namespace reprise::guided {

class GuidedMeter {
 public:
  /// `limit` must outlive this.
  explicit GuidedMeter(const BudgetLimit& limit) : limit_(limit) {}

  [[nodiscard]] const GuidedStepReport& last() const { return last_; }
  [[nodiscard]] const MemoryBudgetCounters& counters() const { return counters_; }
  /// The start bytes of the last step that has ended.
  [[nodiscard]] Bytes base() const { return base_; }
  /// The sequence that the running step follows.
  [[nodiscard]] const KnownSequences::Choice& following() const { return following_; }

  /// `own`: bytes that the step itself has allocated already.
  void begin(Bytes own, const ReplanCounters& plans) {
    begin_measuring();
    following_ = {};
    waited_before_ = plans.waited;
    started_with_ = device_memory().live() - own - limit_.excluded();
  }
  /// From here on, the step follows this choice. An empty choice means that there is no plan: the
  /// plan that the step has left stays the one that was followed. `base`: the start bytes, with the
  /// excluded bytes.
  void follows(const KnownSequences::Choice& choice, Bytes base) {
    last_.predicted_peak = choice.stream ? base - limit_.excluded() + choice.above : Bytes{};
    if (choice.stream) following_ = choice;
  }

  // A prediction holds only for a step that did exactly what was planned.
  void end(const Recording& recording, const GuidedStepCounters& counters,
           const TransferStats& transfers, Bytes own_peak, bool went_over) {
    last_.base = base_ = recording.base - limit_.excluded();
    last_.peak = device_memory().peak() - limit_.excluded();
    last_.budget = limit_.now();
    const bool has_plan = following_.stream && following_.stream->plan;
    last_.planned = has_plan && (counters.followed || counters.carried_out);
    last_.fits = counters.followed && !has_plan;
    if (!(counters.followed && counters.predicted)) last_.predicted_peak = {};
    if (last_.planned) last_.predicted_extra_time = following_.extra;
    last_.elsewhere = std::max(last_.peak - (started_with_ + own_peak), Bytes{0});
    last_.over_budget = went_over || (last_.budget > Bytes{0} && last_.peak > last_.budget);
    last_.only_spills = counters.only_spills;
    last_.recomputed = counters.recomputed;
    last_.brought_back = counters.brought_back;
    last_.evicted = counters.evicted;
    last_.extra_time = counters.extra_time;
    for (const Call& call : recording.calls) last_.own_time += call.time;
    last_.eager_peak = recording.peak - limit_.excluded();
    last_.moved = transfers.bytes_out;
    last_.moving_time = transfers.time_out + transfers.time_in;
    last_.time = since_start();
    if (counters.followed) return;
    last_.divergence = counters.divergence;
    last_.diverged_at = counters.diverged_at;
  }
  void probed(Bytes peak) { last_.probed_peak = peak; }
  void floor(Bytes above_start) { last_.floor = last_.base + above_start; }

  void count(const ReplanCounters& plans) {
    if (last_.planned) ++counters_.planned_steps;
    else if (last_.fits) ++counters_.fitting_steps;
    else ++counters_.online_steps;
    counters_.recomputed += last_.recomputed;
    counters_.brought_back += last_.brought_back;
    counters_.moved += last_.moved;
    counters_.plans = plans.plans;
    counters_.refinements = plans.refinements;
    counters_.planning_time = plans.waited;
    last_.planning_time = plans.waited - waited_before_;
  }

  // ── steps that are only measured ───────────────────────────────────────────────────────────────

  void begin_measuring() {
    ++counters_.steps;
    last_ = {};
    last_.base = device_memory().live() - limit_.excluded();
    device_memory().reset_peak();
    start_ = Clock::now();
  }
  void end_measuring() {
    base_ = last_.base;
    last_.peak = last_.eager_peak = device_memory().peak() - limit_.excluded();
    last_.budget = limit_.now();
    last_.over_budget = last_.budget > Bytes{0} && last_.peak > last_.budget;
    last_.time = since_start();
    ++counters_.block_steps;
  }

  // ── notices ────────────────────────────────────────────────────────────────────────────────────

  [[nodiscard]] std::string overshoot() const {
    const bool others = last_.peak - last_.elsewhere <= last_.budget && last_.elsewhere > Bytes{0};
    if (others)
      return "a step went above its budget of " + format_bytes(last_.budget) +
             ": the allocator held " + format_bytes(last_.peak) + ", of which " +
             format_bytes(last_.elsewhere) +
             " belong to threads that are not part of the step. Leave room for them (exclude()), "
             "or let them join the step";
    return "a step took " + format_bytes(last_.peak) +
           ": what it cannot do without is more than the budget of " + format_bytes(last_.budget);
  }
  [[nodiscard]] std::string overshoot_with_blocks() const {
    return "a step took " + format_bytes(last_.peak) +
           " with its own checkpoints: that is more than the budget of " +
           format_bytes(last_.budget);
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] Microseconds since_start() const { return time_since(start_); }

  const BudgetLimit& limit_;
  GuidedStepReport last_;
  MemoryBudgetCounters counters_;
  KnownSequences::Choice following_;
  Bytes started_with_{};  // live bytes when the step began, without the step's own
  Bytes base_{};
  Microseconds waited_before_{};
  Clock::time_point start_{};
};

}  // namespace reprise::guided
