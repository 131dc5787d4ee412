#pragma once
// activation_metrics() computes the metrics of the mu-TWO scheduler for every activation of a
// profile.
//
//   forward    x ──fc1──▶ h1 ──relu1──▶ r1 ──fc2──▶ h2 ──relu2──▶ r2 ──fc3──▶ y ──loss──▶ l          activations of 400 B
//   us            30          5             20         4             10         2
//   backward   d_loss 2,  d_fc3 9 + 8,  d_relu2 3,  then d_fc2 reads r1,  d_relu1 reads r1,  d_fc1 reads x
//
//   of r1              created relu1, last_forward fc2, first_backward d_fc2, last_backward d_relu1
//   inactive_time      38 us, from the end of fc2 to the start of d_fc2: a transfer could run during this time
//   recompute_nodes    fc1, relu1: backward does not use h1, so h1 is not available; x is
//   recompute_sources  x and fc1's weight
//   recomp_time        35 us
//   recomp_memory      800 B: h1 and r1 are live at the same time
//   recompute_ratio    400 B / 35 us = 11.4: the larger, the better it is to recompute
//   swap_time          out and in
//
// Each recomputation is measured with all other activations kept: everything else that backward
// reads is available, and nothing else. Times are as measured, without lower bounds. An activation
// whose recomputation costs nothing has an infinite ratio, one that cannot be recomputed a ratio of
// 0.

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/concat.hpp>
#include <range/v3/view/partial_sum.hpp>
#include <range/v3/view/single.hpp>
#include <range/v3/view/transform.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/graph/builder.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/profile/profile.hpp>

namespace reprise::profiling {

struct ActivationMetrics {
  StorageUse use{};  ///< bytes, creation, last_forward, first_backward, last_backward
  /// from the end of the last forward use to the start of the first backward use
  Microseconds inactive_time{};
  bool recomputable = false;
  /// in running order; empty if it cannot be recomputed
  std::vector<NodeId> recompute_nodes{};
  std::vector<ValueId> recompute_sources{};  ///< values that they read
  Microseconds recomp_time{};
  /// maximum of the additional live bytes during recomputation: intermediates, workspace, the
  /// result
  Bytes recomp_memory{};
  double recompute_ratio = 0;  ///< bytes per microsecond
  Microseconds swap_time{};    ///< out and in; 0 if not known
  bool operator==(const ActivationMetrics&) const = default;
};

/// By value: whether it is available to backward if nothing is evicted. For each storage that
/// backward uses, these are the version that backward reads first, and every view of this version.
[[nodiscard]] inline std::vector<bool> kept_for_backward(const StepGraph& graph,
                                                         std::span<const StorageUse> uses) {
  std::vector<bool> kept(graph.value_count(), false);
  for (ValueId v : graph.value_ids()) {
    const ValueId saved = uses[graph.value(v).storage.index].saved;
    kept[v.index] = saved.valid() && viewed(graph, v) == saved;
  }
  return kept;
}

/// The nodes of a cone as a graph of their own: sources are available and cost nothing, `result` is
/// the output.
[[nodiscard]] inline StepGraph cone_graph(const StepGraph& graph, const RecomputeCone& cone,
                                          ValueId result) {
  GraphBuilder b;
  std::unordered_map<ValueId, ValueId> renamed;
  for (ValueId v : cone.sources)
    renamed[v] = b.add_value({.id = graph.value(v).id, .persistent = true});
  std::size_t next = renamed.size();
  for (NodeId n : cone.nodes)
    for (ValueId v : graph.outputs(n)) renamed[v] = ValueId{next++};
  const auto rename = [&](std::span<const ValueId> list) {
    std::vector<ValueId> out;
    for (ValueId v : list) out.push_back(renamed.at(v));
    return out;
  };
  for (NodeId n : cone.nodes) {
    for (ValueId v : graph.outputs(n)) {
      Value made = graph.value(v);
      if (made.alias_of.valid()) made.alias_of = renamed.at(made.alias_of);
      if (made.overwrites.valid()) made.overwrites = renamed.at(made.overwrites);
      b.add_value(std::move(made));
    }
    b.add_node(
        {.id = graph.node(n).id, .time = graph.node(n).time, .workspace = graph.node(n).workspace},
        rename(graph.inputs(n)), rename(graph.outputs(n)));
  }
  b.add_output(renamed.at(result));
  return std::move(b).build();
}

/// Bytes per microsecond: 0 without bytes, infinite without time.
[[nodiscard]] inline double recompute_ratio(Bytes bytes, Microseconds time) {
  if (bytes == Bytes{0}) return 0;
  return time.count == 0 ? std::numeric_limits<double>::infinity()
                         : static_cast<double>(bytes.count) / time.count;
}

/// Adds the cost of recomputing `result`. `kept` says which values are available.
inline void measure_recomputation(ConeSearch<StepGraph>& cones, ValueId result,
                                  const std::vector<bool>& kept, ActivationMetrics& m) {
  RecomputeCone cone = recompute_cone(cones, result, kept);
  m.recomputable = cone.possible();
  if (!m.recomputable) return;
  const StepGraph alone = cone_graph(cones.adapter().graph(), cone, result);
  const Simulation run = simulate(alone, own_order(alone));
  m.recomp_time = run.time;
  m.recomp_memory = run.peak;
  m.recompute_ratio = recompute_ratio(m.use.bytes, m.recomp_time);
  m.recompute_nodes = std::move(cone.nodes);
  m.recompute_sources = std::move(cone.sources);
}

/// The start of each node in the graph's own order, in microseconds, and the end of the last node.
[[nodiscard]] inline std::vector<double> start_times(const StepGraph& graph) {
  const auto time = [](const Node& n) { return n.time.count; };
  return ranges::views::concat(ranges::views::single(0.0),
                               graph.nodes() | ranges::views::transform(time)) |
         ranges::views::partial_sum | ranges::to<std::vector>();
}

/// From the end of the node before a dead range to the start of the node after it; 0 without a dead
/// range.
[[nodiscard]] inline Microseconds time_of(std::span<const double> starts, const DeadRange& range) {
  if (!range.after.valid() || range.before <= range.after) return {};
  return {starts[range.before.index] - starts[range.after.index + 1]};
}

/// One entry per activation, in the order of creation. An activation that backward does not use has
/// no inactive time; its recomputation makes the storage's owner.
[[nodiscard]] inline std::vector<ActivationMetrics> activation_metrics(const Profile& profile) {
  const StepGraph& graph = profile.graph;
  const GraphAdapter adapter{graph, Edges::data};
  ConeSearch<StepGraph> cones{adapter};
  const std::vector<StorageUse> uses =
      storage_uses(adapter, [&graph](NodeId n) { return graph.node(n).phase; });
  std::vector<bool> kept = kept_for_backward(graph, uses);
  std::vector<std::vector<ValueId>> inside(graph.storage_count());  // kept values, by storage
  for (ValueId v : graph.value_ids())
    if (kept[v.index]) inside[graph.value(v).storage.index].push_back(v);
  const std::vector<double> starts = start_times(graph);

  std::vector<ActivationMetrics> all;
  for (const StorageUse& use : activation_uses(graph, uses)) {
    ActivationMetrics m;
    m.use = use;
    m.inactive_time = time_of(starts, dead_range(use));
    for (ValueId v : inside[use.storage.index]) kept[v.index] = false;
    measure_recomputation(cones, use.saved.valid() ? use.saved : use.value, kept, m);
    for (ValueId v : inside[use.storage.index]) kept[v.index] = true;
    m.swap_time =
        profile.storages[use.storage.index].swap_out + profile.storages[use.storage.index].swap_in;
    all.push_back(std::move(m));
  }
  return all;
}

}  // namespace reprise::profiling

namespace reprise {
using profiling::activation_metrics;
using profiling::ActivationMetrics;
}  // namespace reprise
