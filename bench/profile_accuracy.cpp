// How close the profiler's sum of node times is to an eager step, and what profiling costs,
// interleaved in one run.
//
//   profile_accuracy [--quick] [--only NAME] [--rounds N] [--threads N] [--cpu-time] [--json FILE]
//
// In each round one eager step and one profiled run of the same model take turns. The sum of the
// node times leaves out what lies between the ops: autograd's own work, the dispatcher, and the
// allocator's. Page faults are counted beside it, since they fall inside the ops of both: freshly
// mapped memory costs the same in a replay as in eager.
//
// On a machine that others use too, wall times of two threads that wait for each other say nothing.
// --cpu-time compares the time that one thread worked instead, with a timer made for that: see
// docs/policies/timer.md.

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <reprise/libtorch.hpp>

#include "models/task.hpp"
#include "support/cli.hpp"
#include "support/output.hpp"
#include "support/progress.hpp"
#include "support/statistics.hpp"

namespace {

using examples::quantile;

struct Case {
  std::string name{};
  std::string what{};
  std::int64_t batch = 0, size = 0;
};

struct Result {
  std::vector<double> eager_us{}, sum_ratio{}, run_ratio{};
  std::vector<double> eager_faults{}, run_faults{};
  std::size_t nodes = 0;
  bool bytes_exact = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{{"resnet50", "ResNet-50, batch 8", 8, 0},
                                     {"bert", "BERT-base, batch 4 x 128", 4, 128}};
  return all;
}

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

using reprise::Microseconds;

Microseconds now(clockid_t clock) {
  std::timespec time{};
  ::clock_gettime(clock, &time);
  return {static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3};
}

/// Times ops by any of the system's clocks, and the whole run by the same one.
class ClockTimer {
 public:
  ClockTimer(clockid_t clock, Microseconds& run) : clock_(clock), run_(&run) {}
  void begin_run(std::size_t occurrences) {
    times_.assign(occurrences, {});
    *run_ = now(clock_);
  }
  void start(std::size_t) { started_ = now(clock_); }
  void stop(std::size_t i) { times_[i] = now(clock_) - started_; }
  void wait() { *run_ = now(clock_) - *run_; }
  std::vector<Microseconds> end_run() { return times_; }

 private:
  clockid_t clock_;
  Microseconds* run_;
  std::vector<Microseconds> times_;
  Microseconds started_{};
};

/// What the allocator held at most above its base in a profiled run is what the graph says.
bool bytes_are_exact(const reprise::Profile& profile) {
  const reprise::Simulation own =
      reprise::simulate(profile.graph, reprise::own_order(profile.graph));
  return profile.peak - profile.base == own.peak - profile.graph.persistent_bytes();
}

Result measure(const Case& test, std::int64_t rounds, clockid_t clock) {
  const models::Task task = models::make(test.name, models::Config::full, test.batch, 1, test.size);
  const auto batch = task.make_batch(0);
  reprise::CapturedStep captured = reprise::capture(task.module, task.loss, batch);
  Microseconds run{};
  reprise::Profiler<ClockTimer, reprise::AllocatorProbe> profiler{ClockTimer{clock, run}};
  Result result;
  result.nodes = captured.graph().node_count();
  examples::Progress progress(test.name, rounds + 1);
  for (std::int64_t i = 0; i <= rounds; ++i, progress.advance()) {
    task.module->zero_grad();
    long faults = page_faults();
    const Microseconds start = now(clock);
    task.loss(batch).backward();
    const double eager = (now(clock) - start).count;
    const long eager_faults = page_faults() - faults;
    task.module->zero_grad();
    faults = page_faults();
    const reprise::Profile profile = profiler.run(captured, {.warmup = 0, .runs = 1});
    if (i == 0) continue;  // warm-up
    result.eager_us.push_back(eager);
    result.eager_faults.push_back(static_cast<double>(eager_faults));
    result.run_faults.push_back(static_cast<double>(page_faults() - faults));
    result.sum_ratio.push_back(profile.total_time().count / eager);
    result.run_ratio.push_back(run.count / eager);
    result.bytes_exact = bytes_are_exact(profile);
  }
  return result;
}

int bench(int argc, char** argv) {
  bool quick = false, cpu_time = false;
  std::int64_t rounds = 0, threads = 0;
  std::string only, json;
  examples::Flags flags("profile_accuracy",
                        "Sum of node times and cost of profiling over an eager step, interleaved.");
  flags.add("--quick", "few rounds: is it in the right place?", quick);
  flags.add("--only", "NAME", "one case: resnet50 or bert", only);
  flags.add("--rounds", "N", "0: as many as it needs", rounds);
  flags.add("--threads", "N", "0: as LibTorch decides", threads, 0, 4096);
  flags.add("--cpu-time",
            "how long one thread works, not how long it takes: for a machine that is shared",
            cpu_time);
  flags.add("--json", "FILE", "write the results to a file", json);
  if (!flags.parse(argc, argv)) return examples::done;
  if (!only.empty() &&
      std::ranges::none_of(cases(), [&](const Case& each) { return each.name == only; }))
    throw reprise::Error(reprise::Errc::bad_argument,
                         "--only " + only + ": must be resnet50 or bert; see --help");
  if (!json.empty()) examples::check_writable("--json", json);
  if (cpu_time) {
    if (threads > 1)
      throw reprise::Error(reprise::Errc::bad_argument,
                           "--cpu-time is of one thread: leave out --threads");
    threads = 1;  // several would count the time that they spin, waiting for each other
  }
  if (threads > 0) torch::set_num_threads(static_cast<int>(threads));

  std::printf("%-28s%7s%12s%12s%18s%14s%18s%8s\n", "", "nodes", "eager step", "sum/eager",
              "middle half", "run/eager", "faults eager/run", "bytes");
  auto results = nlohmann::ordered_json::array();
  bool exact = true;
  for (const Case& test : cases()) {
    if (!only.empty() && test.name != only) continue;
    const Result r = measure(test,
                             rounds > 0 ? rounds
                             : quick    ? 3
                                        : 11,
                             cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC);
    const double sum = quantile(r.sum_ratio, 0.5), run = quantile(r.run_ratio, 0.5);
    std::printf(
        "%-28s%7zu%12s%12.3f     %.3f to %.3f%14.3f%9.0f/%-8.0f%8s   aims: 0.95 to 1.05 %s, run at "
        "most 1.2 %s\n",
        test.what.c_str(), r.nodes, reprise::format_time({quantile(r.eager_us, 0.5)}).c_str(), sum,
        quantile(r.sum_ratio, 0.25), quantile(r.sum_ratio, 0.75), run,
        quantile(r.eager_faults, 0.5), quantile(r.run_faults, 0.5),
        r.bytes_exact ? "exact" : "differ", sum >= 0.95 && sum <= 1.05 ? "met" : "missed",
        run <= 1.2 ? "met" : "missed");
    std::fflush(stdout);
    results.push_back({{"case", test.name},
                       {"nodes", r.nodes},
                       {"eager_us", quantile(r.eager_us, 0.5)},
                       {"sum_over_eager", sum},
                       {"run_over_eager", run},
                       {"eager_page_faults", quantile(r.eager_faults, 0.5)},
                       {"run_page_faults", quantile(r.run_faults, 0.5)},
                       {"bytes_exact", r.bytes_exact}});
    exact = exact && r.bytes_exact;
  }
  if (!json.empty()) {
    std::ofstream file(json);
    file << results.dump(2) << '\n';
    if (!file.flush()) throw reprise::Error(reprise::Errc::io, json + ": cannot be written");
  }
  return exact ? examples::done : examples::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("profile_accuracy", [&] { return bench(argc, argv); });
}
