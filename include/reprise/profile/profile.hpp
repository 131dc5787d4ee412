#pragma once
// A Profile has the measurements of a step, by the ids of its graph.
//
//   profile.nodes[3]       {.samples = {120, 118, 123} us, .time = 120 us, .memory = {.before = 4 MiB, .peak = 9 MiB, …}}
//   profile.storages[7]    {.bytes = 3 MiB, .swap_out = 900 us, .swap_in = 400 us}
//   profile.graph          the graph with these times and workspaces: the input of a planner
//
// Warm-up runs are dropped, and every other sample is kept. A node's time is the samples' median
// (or mean, on request).

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::profiling {

/// How several samples become one number.
enum class Aggregate : std::uint8_t { median, mean };

/// A probe's readings around one op.
struct MemorySample {
  Bytes before{};  ///< when the op started
  Bytes peak{};    ///< the maximum while the op ran
  Bytes after{};   ///< when the op had finished, before anything was freed
};

struct NodeProfile {
  std::vector<Microseconds> samples{};  ///< one per run
  Microseconds time{};                  ///< their aggregate
  MemorySample memory{};                ///< of the last run
};

struct StorageProfile {
  Bytes bytes{};
  Microseconds swap_out{}, swap_in{};
  /// false: estimated from a given or measured rate, or not known (then 0)
  bool measured = false;
};

struct Profile {
  StepGraph graph{};                       ///< with the measured times and workspaces
  std::vector<NodeProfile> nodes{};        ///< by NodeId
  std::vector<StorageProfile> storages{};  ///< by StorageId
  std::size_t warmup = 0, runs = 0;
  Aggregate aggregate = Aggregate::median;
  std::vector<Microseconds> run_times{};  ///< wall time of each measured run
  Bytes base{};                           ///< the allocator's live bytes when the runs started
  Bytes peak{};                           ///< the maximum of the allocator's live bytes
  /// bytes per second between memory and the spill file
  double bandwidth_out = 0, bandwidth_in = 0;
  /// sum of the nodes' times, each measured in isolation; 0 if that was not requested
  Microseconds isolated_time{};
  std::size_t isolated_ops = 0;  ///< distinct ops that were run for it
  /// distinct ops that did not accept their tensors: they have the time of the capture
  std::size_t isolated_failed = 0;

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
  if (how == Aggregate::mean)
    return {std::accumulate(samples.begin(), samples.end(), Microseconds{}).count / n};
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1
             ? samples[middle]
             : Microseconds{(samples[middle - 1].count + samples[middle].count) / 2};
}

/// An entry for every node and storage, without samples.
[[nodiscard]] inline Profile empty_profile(StepGraph graph) {
  Profile p;
  p.graph = std::move(graph);
  p.nodes.resize(p.graph.node_count());
  p.storages.resize(p.graph.storage_count());
  for (std::size_t i = 0; i < p.storages.size(); ++i)
    p.storages[i].bytes = p.graph.storage(StorageId{i}).bytes;
  return p;
}

/// Bytes per microsecond.
struct TransferRate {
  double out = 0, in = 0;
};

/// Gives every storage without a transfer time the time for its size at this rate.
inline void estimate_transfers(Profile& p, TransferRate rate) {
  if (!(rate.out > 0 && rate.in > 0))
    throw Error(Errc::bad_argument, "a transfer rate must be greater than zero");
  for (StorageProfile& s : p.storages) {
    if (s.measured || s.swap_out.count > 0 || s.swap_in.count > 0) continue;
    s.swap_out = {static_cast<double>(s.bytes.count) / rate.out};
    s.swap_in = {static_cast<double>(s.bytes.count) / rate.in};
  }
}

/// A profile without running anything: the graph's times as the only sample, and the simulator's
/// bytes. Throws Errc::bad_graph if the graph's own order cannot be run.
[[nodiscard]] inline Profile unmeasured_profile(StepGraph graph) {
  check_runnable(graph);
  Profile p = empty_profile(std::move(graph));
  const Simulation own = simulate(p.graph, own_order(p.graph));
  Bytes before = p.graph.persistent_bytes();
  for (const Value& v : p.graph.values())
    if (v.initial) before += v.bytes;
  for (std::size_t i = 0; i < p.nodes.size(); ++i) {
    const Node& n = p.graph.node(NodeId{i});
    p.nodes[i] = {.samples = {n.time},
                  .time = n.time,
                  .memory = {before, own.live_during[i], own.live_during[i] - n.workspace}};
    before = own.live_after[i];
  }
  p.runs = 1;
  p.base = p.graph.persistent_bytes();
  p.peak = own.peak;
  return p;
}

}  // namespace reprise::profiling

namespace reprise {
using profiling::MemorySample;
using profiling::NodeProfile;
using profiling::Profile;
using profiling::StorageProfile;
using profiling::unmeasured_profile;
}  // namespace reprise
