#pragma once
// step_summary() and guided_summary() say in a few lines what a TrainStep or a MemoryBudget has
// done.
//
//   step_summary("resnet50", counters, last)
//     resnet50: 100 steps: 1 captured, 95 replayed, 4 rechecked; 3 plans made in 2.9 s
//       budget      3.10 GiB
//       peak        2.90 GiB (predicted 2.90 GiB), without a budget 5.70 GiB, at least 1.00 GiB
//       reserved    3.10 GiB, an arena of 2.40 GiB included
//       recomputed  120 ops in the last step, 30.5 ms predicted, of 500.0 ms
//
//   guided_summary("gpt", counters, last)
//     gpt: 100 steps: 97 planned, 3 online; 1 plan made in 1.9 s
//       …

#include <cstdint>
#include <sstream>
#include <string>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/options/reports.hpp>

namespace reprise::options {

/// "95 replayed, 4 rechecked": counts of 0 are left out.
class Listing {
 public:
  void add(std::int64_t count, const char* what) {
    if (count > 0) text_ += (text_.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

inline std::string count_of(std::int64_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

inline std::string summary_head(const std::string& name, const StepCounters& counters,
                                const Listing& ways) {
  return name + ": " + count_of(counters.steps, "step", "steps") +
         (ways.text().empty() ? "" : ": " + ways.text()) + "; " +
         count_of(counters.plans, "plan", "plans") + " made in " +
         format_time(counters.planning_time) + "\n";
}

/// Numbers that both fronts measure in the last step. A number that is not known is left out.
inline std::string summary_of(const StepReport& last) {
  std::string out = "  budget      " +
                    (last.budget > Bytes{0} ? format_bytes(last.budget) : std::string("none yet")) +
                    "\n  peak        " + format_bytes(last.peak);
  if (last.predicted_peak > Bytes{0})
    out += " (predicted " + format_bytes(last.predicted_peak) + ")";
  if (last.eager_peak > Bytes{0}) out += ", without a budget " + format_bytes(last.eager_peak);
  if (last.floor > Bytes{0}) out += ", at least " + format_bytes(last.floor);
  return out + "\n";
}

/// `resident`: growth of the process's resident memory; 0 leaves it out.
[[nodiscard]] inline std::string step_summary(const std::string& name,
                                              const TrainStepCounters& counters,
                                              const TrainStepReport& last, Bytes resident = {}) {
  Listing ways;
  ways.add(counters.captures, "captured");
  ways.add(counters.replays, "replayed");
  ways.add(counters.rechecks, "rechecked");
  ways.add(counters.failed_rechecks, "not the step that was captured");
  ways.add(counters.verified, "compared with eager");
  ways.add(counters.eager_runs, "without a graph");
  ways.add(counters.fallbacks, "by spilling");
  std::ostringstream out;
  out << summary_head(name, counters, ways) << summary_of(last);
  out << "  reserved    " << format_bytes(last.reserved_peak);
  if (last.arena > Bytes{0}) out << ", an arena of " << format_bytes(last.arena) << " included";
  if (last.arena_misses > 0)
    out << "; " << count_of(last.arena_misses, "allocation", "allocations")
        << " did not match the arena's plan";
  out << "\n  recomputed  " << count_of(last.recomputed, "op", "ops") << " in the last step, "
      << format_time(last.predicted_extra_time) << " predicted, of " << format_time(last.time)
      << '\n';
  if (resident > Bytes{0})
    out << "  process     has grown by " << format_bytes(resident) << " (resident, at most)\n";
  if (counters.differences > 0)
    out << "  unequal     " << counters.differences << " of the compared replays\n";
  return out.str();
}

[[nodiscard]] inline std::string guided_summary(const std::string& name,
                                                const MemoryBudgetCounters& counters,
                                                const GuidedStepReport& last) {
  Listing ways;
  ways.add(counters.planned_steps, "planned");
  ways.add(counters.online_steps, "online");
  ways.add(counters.fitting_steps, "that fit without a plan");
  ways.add(counters.block_steps, "with checkpoints of their own");
  std::ostringstream out;
  out << summary_head(name, counters, ways) << summary_of(last);
  out << "  recomputed  " << count_of(last.recomputed, "op", "ops") << " in the last step, "
      << format_time(last.extra_time) << " of " << format_time(last.time) << "\n  spilled     "
      << format_bytes(counters.moved) << " in all\n";
  return out.str();
}

}  // namespace reprise::options

namespace reprise {
using options::guided_summary;
using options::step_summary;
}  // namespace reprise
