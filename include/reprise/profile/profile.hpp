#pragma once
// A Profile is what was measured of a step, on the ids of its graph.
//
//   profile.nodes[3]       {.samples = {120, 118, 123} us, .time = 120 us, .active_before = 4 MiB, .active_peak = 9 MiB, …}
//   profile.storages[7]    {.bytes = 3 MiB, .swap_out = 900 us, .swap_in = 400 us}
//   profile.graph          the graph with these times and workspaces in it: what a planner is given
//
// Warm-up runs are dropped, every other sample is kept, and a node's time is their median (or mean, on request).

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <reprise/graph/step_graph.hpp>

namespace reprise {

/// How several samples become one number.
enum class Aggregate : std::uint8_t { median, mean };

/// What a probe saw around one op.
struct MemorySample {
  Bytes before{};  ///< held when it started
  Bytes peak{};    ///< held at most while it ran
  Bytes after{};   ///< held when it had finished, before anything was freed
};

struct NodeProfile {
  std::vector<Microseconds> samples{};  ///< one a run
  Microseconds time{};                  ///< their aggregate
  MemorySample memory{};                ///< of the last run
};

struct StorageProfile {
  Bytes bytes{};
  Microseconds swap_out{}, swap_in{};  ///< measured where it was moved, else from the bandwidth measured
  bool measured = false;
};

struct Profile {
  StepGraph graph{};                     ///< with the measured times and workspaces
  std::vector<NodeProfile> nodes{};      ///< by NodeId
  std::vector<StorageProfile> storages{};  ///< by StorageId
  std::size_t warmup = 0, runs = 0;
  Aggregate aggregate = Aggregate::median;
  std::vector<Microseconds> run_times{};  ///< wall time of each measured run
  Bytes base{};                           ///< what the allocator held when the runs started
  Bytes peak{};                           ///< what it held at most
  double bandwidth_out = 0, bandwidth_in = 0;  ///< bytes a second between memory and where storages are moved to
  Microseconds isolated_time{};   ///< sum over the nodes measured each on its own; 0 where that was not asked for
  std::size_t isolated_ops = 0;   ///< distinct ops that were run for it

  operator const StepGraph&() const { return graph; }

  /// Sum of the nodes' times.
  [[nodiscard]] Microseconds total_time() const {
    Microseconds sum{};
    for (const NodeProfile& node : nodes) sum += node.time;
    return sum;
  }
};

/// The median of an even number of samples is the mean of the middle two.
[[nodiscard]] inline Microseconds aggregate(std::vector<Microseconds> samples, Aggregate how) {
  if (samples.empty()) return {};
  const auto n = static_cast<double>(samples.size());
  if (how == Aggregate::mean) return {std::accumulate(samples.begin(), samples.end(), Microseconds{}).count / n};
  std::ranges::sort(samples);
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : Microseconds{(samples[middle - 1].count + samples[middle].count) / 2};
}

}  // namespace reprise
