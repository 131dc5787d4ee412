// When the first plan comes: small loops in the style of public C++ trainers, each inside a
// MemoryBudget at F + 50 % of (E - F), from its first step on.
//
//   first_plan [--only NAME] [--steps N] [--percent N] [--planner-off]
//
// For each loop: the step in which a plan was first followed and what the planner had taken of the
// processor by then, how many of the first 12 steps were planned (or fitted without a plan), how
// often plans were searched for and what that took, ops recomputed in the steps without a plan, and
// whether losses and parameters are those of eager's loop. LibTorch runs on one thread, so that
// what other threads of the process take is the planner's.

#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include <reprise/libtorch/memory_budget.hpp>

#include "first_plan/loops.hpp"

namespace {

using namespace reprise;
using namespace reprise::literals;
using first_plan::Loop;
using first_plan::Running;
using torch::Tensor;

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
/// Of the processor, by other threads than this one.
double seconds_of_others() {
  return seconds_of(CLOCK_PROCESS_CPUTIME_ID) - seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

struct Asked {
  std::string only{};
  int steps = 60, percent = 50;
  bool plans = true;
};

/// What a loop has made, to the bit.
struct Made {
  std::vector<double> losses{};
  std::string parameters{};
  bool operator==(const Made&) const = default;
};

std::string bits(const Tensor& tensor) {
  const Tensor flat = tensor.detach().contiguous();
  return {static_cast<const char*>(flat.const_data_ptr()), flat.nbytes()};
}

Running start(const Loop& loop) {
  torch::manual_seed(7);
  Running running = loop.start();
  torch::manual_seed(8);
  return running;
}

struct Bounds {
  Bytes eager{}, floor{};
  [[nodiscard]] Bytes at(int percent) const {
    return floor + Bytes{(eager - floor).count * percent / 100};
  }
};

Bounds bounds_of(const Loop& loop) {
  Running running = start(loop);
  MemoryBudget budget{1024_GiB, {.run = {.max_plans = 16}}};
  Bounds bounds;
  for (int i = 0; i < 3 * loop.sequences; ++i) {
    {
      auto step = budget.step();
      static_cast<void>(running.step(i));
    }
    bounds.eager = std::max(bounds.eager, budget.last().eager_peak);
    bounds.floor = std::max(bounds.floor, budget.last().floor);
  }
  return bounds;
}

struct Result {
  int first = -1;  ///< the step in which a plan was followed
  double first_seconds = 0, first_elapsed = 0;
  int planned_of_12 = 0;
  int last_unplanned = -1;
  double own = 0, unplanned_time = 0;
  std::int64_t recomputed_online = 0, online = 0;
  MemoryBudgetCounters counters{};
  double planner_seconds = 0, elapsed = 0;
  bool equal = false;
};

Result run(const Loop& loop, const Asked& asked) {
  Made eager, guided;
  {
    Running running = start(loop);
    for (int i = 0; i < asked.steps; ++i) eager.losses.push_back(running.step(i).item<double>());
    for (const Tensor& p : running.parameters) eager.parameters += bits(p);
  }
  const Bounds bounds = bounds_of(loop);
  Result result;
  Running running = start(loop);
  MemoryBudgetOptions options{.over_budget = OverBudget::go_on};
  if (!asked.plans) options.run.max_plans = 0;
  MemoryBudget budget{bounds.at(asked.percent), options};
  const double before = seconds_of_others();
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  for (int i = 0; i < asked.steps; ++i) {
    const double then = seconds_of_others() - before, clock = elapsed();
    {
      auto step = budget.step();
      guided.losses.push_back(running.step(i).item<double>());
    }
    const GuidedStepReport& last = budget.last();
    if (last.planned && result.first < 0) {
      result.first = i + 1;
      result.first_seconds = then;
      result.first_elapsed = clock;
    }
    if (i < 12 && (last.planned || last.fits)) ++result.planned_of_12;
    if (!last.planned && !last.fits) {
      result.last_unplanned = i + 1;
      result.recomputed_online += last.recomputed;
      ++result.online;
    }
  }
  result.elapsed = elapsed();
  result.planner_seconds = seconds_of_others() - before;
  result.counters = budget.counters();
  for (const Tensor& p : running.parameters) guided.parameters += bits(p);
  result.equal = eager == guided;
  return result;
}

Asked asked_for(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--planner-off")) asked.plans = false;
    if (i + 1 == argc) continue;
    if (is("--only")) asked.only = argv[i + 1];
    if (is("--steps")) asked.steps = std::stoi(argv[i + 1]);
    if (is("--percent")) asked.percent = std::stoi(argv[i + 1]);
  }
  return asked;
}

}  // namespace

int main(int argc, char** argv) {
  const Asked asked = asked_for(argc, argv);
  at::set_num_threads(1);
  std::printf(
      "| loop | first plan in step | after s of the planner | after s | planned of 12 | last step "
      "without | "
      "searches (refined) | planner s | all s | recomputed a step online | equal |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
  for (const Loop& loop : first_plan::loops()) {
    if (!asked.only.empty() && loop.name.find(asked.only) == std::string::npos) continue;
    const Result r = run(loop, asked);
    std::printf("| %s | %d | %.2f | %.2f | %d | %d | %lld (%lld) | %.1f | %.1f | %.0f | %s |\n",
                loop.name.c_str(), r.first, r.first_seconds, r.first_elapsed, r.planned_of_12,
                r.last_unplanned, static_cast<long long>(r.counters.plans),
                static_cast<long long>(r.counters.refinements), r.planner_seconds, r.elapsed,
                r.online > 0
                    ? static_cast<double>(r.recomputed_online) / static_cast<double>(r.online)
                    : 0.,
                r.equal ? "yes" : "NO");
    std::fflush(stdout);
  }
  return 0;
}
