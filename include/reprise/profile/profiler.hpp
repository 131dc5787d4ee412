#pragma once
// Profiler<Timer, MemProbe> runs a step node by node and measures the cost of every node.
//
// ```cpp
// Profiler<SteadyTimer, ResidentProbe> profiler;
// Profile profile = profiler.run(captured, {.warmup = 1, .runs = 3});
// ```
//
//   run 0 (warm-up)   conv 310   relu 40   …      reset_stats(): dropped
//   run 1             conv 120   relu 31   …   ⎫
//   run 2             conv 118   relu 30   …   ⎬  aggregate_stats(): conv 120, relu 31, every sample kept
//   run 3             conv 123   relu 33   …   ⎭
//
// The profiler knows nothing of LibTorch. `make_runner(step, options)`, found through the step's
// type, returns a runner that runs the step once with an observer around each node. The runner's
// destructor restores the step's state.

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/profile/concepts.hpp>
#include <reprise/profile/mem_probes/null_probe.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

namespace reprise::profiling {

enum class ProfileMode : std::uint8_t {
  in_situ,   ///< the step as it is, node after node
  isolated,  ///< each distinct op once, on tensors made for it, reused for its repetitions
  both,      ///< in situ; the report also has the sum of the isolated times
};

struct ProfileOptions {
  std::size_t warmup = 1;
  std::size_t runs = 3;
  Aggregate aggregate = Aggregate::median;
  ProfileMode mode = ProfileMode::in_situ;
  /// also measure the time to spill and fetch each storage
  bool transfers = false;
  Bytes memory_limit{};  ///< limit of the live bytes meanwhile; 0 for no limit
  /// folder of the spill file; empty for the system's folder for temporary files
  std::string spill_folder{};
  /// asked before every node; stopping throws Errc::cancelled and restores the model
  std::stop_token stop{};
  /// after every node: number of finished nodes, of all; isolated ops count anew
  std::function<void(std::size_t done, std::size_t total)> progress{};
};

template <class T = SteadyTimer, class P = NullProbe>
class Profiler {
  static_assert(is_timer<T>() && is_mem_probe<P>());

 public:
  explicit Profiler(T timer = T{}, P probe = P{})
      : timer_(std::move(timer)), probe_(std::move(probe)) {}

  /// For code that runs a step anyway and measures it meanwhile.
  [[nodiscard]] T& timer() { return timer_; }
  [[nodiscard]] P& probe() { return probe_; }

  template <class Step>
  [[nodiscard]] Profile run(Step& step, const ProfileOptions& options = {}) {
    static_assert(is_profilable_step<Step>());
    if (options.runs == 0)
      throw Error(Errc::bad_argument, "runs: at least one run must be measured");
    auto runner = make_runner(step, options);
    const std::size_t nodes = runner.graph().node_count();
    const bool in_situ = options.mode != ProfileMode::isolated;
    done_ = 0;
    total_ = in_situ ? nodes * (options.warmup + options.runs) : 0;
    reset_stats();
    for (std::size_t r = 0; in_situ && r < options.warmup + options.runs; ++r) {
      if (r == options.warmup) reset_stats();
      run_once(runner, options);
    }
    Profile profile = aggregate_stats(runner.graph(), options);
    runner.complete(profile);
    for (std::size_t i = 0; i < profile.nodes.size(); ++i)
      profile.graph.set_time(NodeId{i}, profile.nodes[i].time);
    return profile;
  }

  /// Forgets all runs so far.
  void reset_stats() {
    samples_.clear();
    memory_.clear();
    run_times_.clear();
    peak_ = {};
  }

  /// The profile of the runs since the last reset.
  [[nodiscard]] Profile aggregate_stats(const StepGraph& graph,
                                        const ProfileOptions& options) const {
    Profile profile;
    profile.graph = graph;
    profile.warmup = options.warmup;
    profile.runs = run_times_.size();
    profile.aggregate = options.aggregate;
    profile.run_times = run_times_;
    profile.peak = peak_;
    profile.nodes.resize(graph.node_count());
    for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
      for (const auto& run : samples_) profile.nodes[i].samples.push_back(run[i]);
      profile.nodes[i].time = aggregate(profile.nodes[i].samples, options.aggregate);
      if (!memory_.empty()) profile.nodes[i].memory = memory_[i];
    }
    return profile;
  }

 private:
  template <class Runner>
  void run_once(Runner& runner, const ProfileOptions& options) {
    const std::size_t nodes = runner.graph().node_count();
    std::vector<MemorySample> memory(nodes);
    timer_.begin_run(nodes);
    probe_.begin_run();
    const auto start = std::chrono::steady_clock::now();
    runner.run(Around<Runner>{*this, options, memory});
    if constexpr (WaitingTimer<T>) timer_.wait();
    run_times_.push_back(
        {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
             .count()});
    const Bytes peak = probe_.end_run();
    if (peak > peak_) peak_ = peak;
    samples_.push_back(times_of(nodes));
    memory_ = std::move(memory);
  }

  [[nodiscard]] std::vector<Microseconds> times_of(std::size_t nodes) {
    std::vector<Microseconds> times = timer_.end_run();
    if (times.size() != nodes)
      throw Error(Errc::bad_argument, "the timer's end_run() gave " + std::to_string(times.size()) +
                                          " times for " + std::to_string(nodes) + " nodes");
    return times;
  }

  template <class Runner>
  struct Around {
    Profiler& profiler;
    const ProfileOptions& options;
    std::vector<MemorySample>& memory;

    void before(std::size_t occurrence) {
      if (options.stop.stop_requested())
        throw Error(Errc::cancelled, "profiling was cancelled; the model is as it was");
      profiler.probe_.begin_op();
      profiler.timer_.start(occurrence);
    }
    void after(std::size_t occurrence) {
      profiler.timer_.stop(occurrence);
      memory[occurrence] = profiler.probe_.end_op();
      if (options.progress) options.progress(++profiler.done_, profiler.total_);
    }
  };

  T timer_;
  P probe_;
  std::vector<std::vector<Microseconds>> samples_;  // by run, then by node
  std::vector<MemorySample> memory_;                // by node, of the last run
  std::vector<Microseconds> run_times_;
  Bytes peak_{};
  std::size_t done_ = 0, total_ = 0;
};

}  // namespace reprise::profiling

namespace reprise {
using profiling::ProfileMode;
using profiling::ProfileOptions;
using profiling::Profiler;
}  // namespace reprise
