#include <reprise/libtorch/options/summaries.hpp>

#include <reprise_test/catch.hpp>

#include <string>

using namespace reprise;
using namespace reprise::literals;

namespace {
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
}  // namespace

TEST_CASE("a TrainStep's summary counts every step once, whatever became of it") {
  TrainStepCounters counters;
  counters.steps = 21;
  counters.captures = 2;
  counters.replays = 10;
  counters.rechecks = 3;
  counters.failed_rechecks = 1;
  counters.verified = 2;
  counters.fallbacks = 3;  // spilled: none of these is an eager run as well
  counters.plans = 2;
  counters.planning_time = {1.5e6};
  TrainStepReport last;
  last.budget = 4_GiB;
  last.peak = last.predicted_peak = 3_GiB;
  last.eager_peak = 6_GiB;
  last.floor = 1_GiB;
  last.reserved_peak = 3584_MiB;
  last.arena = 2_GiB;
  last.recomputed = 120;
  last.own_time = {100e3};
  last.predicted_extra_time = {7e3};
  last.time = {110e3};
  CHECK(last.predicted_overhead() == 0.07);
  CHECK(step_summary("net", counters, last, 5_GiB) ==
        "net: 21 steps: 2 captured, 10 replayed, 3 rechecked, 1 not the step that was captured, "
        "2 compared with eager, 3 by spilling; 2 plans made in " +
            format_time({1.5e6}) +
            "\n"
            "  budget      4.00 GiB\n"
            "  peak        3.00 GiB (predicted 3.00 GiB), without a budget 6.00 GiB, at least "
            "1.00 GiB\n"
            "  reserved    3.50 GiB, an arena of 2.00 GiB included\n"
            "  recomputed  120 ops in the last step, " +
            format_time({7e3}) + " predicted, of " + format_time({110e3}) +
            "\n"
            "  process     has grown by 5.00 GiB (resident, at most)\n");
}

TEST_CASE("a MemoryBudget's summary tells planned steps from steps that fit without a plan") {
  MemoryBudgetCounters counters;
  counters.steps = 10;
  counters.planned_steps = 4;
  counters.fitting_steps = 3;
  counters.online_steps = 2;
  counters.block_steps = 1;
  counters.plans = 1;
  GuidedStepReport last;
  last.budget = 4_GiB;
  last.peak = 3_GiB;
  last.eager_peak = 6_GiB;
  last.recomputed = 1;
  const std::string text = guided_summary("net", counters, last);
  CHECK(has(text,
            "net: 10 steps: 4 planned, 2 online, 3 that fit without a plan, 1 with checkpoints of "
            "their own; 1 plan made in "));
  CHECK(has(text, "  peak        3.00 GiB, without a budget 6.00 GiB\n"));  // no floor is known
  CHECK(has(text, "  recomputed  1 op in the last step"));
}

TEST_CASE("what was not predicted is not told as 0 bytes, by either summary") {
  TrainStepReport captured;
  captured.peak = 3_GiB;
  GuidedStepReport recomputed_off_plan;
  recomputed_off_plan.peak = 3_GiB;
  recomputed_off_plan.planned = true;
  CHECK_FALSE(has(step_summary("net", {}, captured), "predicted 0"));
  CHECK_FALSE(has(step_summary("net", {}, captured), "(predicted"));
  CHECK_FALSE(has(guided_summary("net", {}, recomputed_off_plan), "(predicted"));
  recomputed_off_plan.predicted_peak = 3_GiB;
  CHECK(has(guided_summary("net", {}, recomputed_off_plan), "(predicted 3.00 GiB)"));
}

TEST_CASE("a summary before the first step has no numbers that nobody knows") {
  CHECK(step_summary("net", {}, {}) == "net: 0 steps; 0 plans made in " + format_time({}) +
                                           "\n"
                                           "  budget      none yet\n"
                                           "  peak        0 B\n"
                                           "  reserved    0 B\n"
                                           "  recomputed  0 ops in the last step, " +
                                           format_time({}) + " predicted, of " + format_time({}) +
                                           "\n");
}
