#pragma once
// What a step does with its memory, read off the graph: where backward begins, how long each storage lives, when each activation is
// used, and what stands at the peak. All by the rule of the plan format, for the graph's own order.
//
//   node        norm   relu_  flat   wide   sum  | grad          x 4096 and mean 64 are persistent: 4160 B
//   h            +------+------+------+------+------+   8192     relu_ and flat live in h's storage
//   wide                               +-----+         16384
//   loss                                     +------>      4
//   g                                               +>  4096
//   live during 12608  12352  12352  28736  28740  16452         norm has 256 B of workspace; 28740 is the peak, at sum
//
//   StepAnalysis a = analyse(graph);
//   a.first_backward               grad
//   a.activations[0]               h: created by norm, last forward use flat, first and last backward use grad, backward reads h.relu
//   a.memory.peak, .peak_node      28740 B, sum
//   a.memory.peak_by_role[activation]      24576 B

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise {

/// The first node of phase backward; none where there is none.
[[nodiscard]] inline NodeId first_backward_node(const StepGraph& graph) {
  const auto nodes = graph.nodes();
  const auto it = std::find_if(nodes.begin(), nodes.end(), [](const Node& n) { return n.phase == Phase::backward; });
  return it == nodes.end() ? NodeId{} : NodeId{static_cast<std::size_t>(it - nodes.begin())};
}

/// From the node that makes a storage to the last one that uses anything in it.
struct StorageLifetime {
  NodeId first{};  ///< none: there at the start
  NodeId last{};   ///< none: there at the end
  [[nodiscard]] bool covers(NodeId n) const { return (!first.valid() || first <= n) && (!last.valid() || n <= last); }
  bool operator==(const StorageLifetime&) const = default;
};

/// By storage. Throws Errc::bad_schedule where the graph's own order cannot be run.
[[nodiscard]] inline std::vector<StorageLifetime> storage_lifetimes(const StepGraph& graph) {
  std::vector<StorageLifetime> lifetimes(graph.storage_count());
  const Schedule order = own_order(graph);
  for (const StorageInstance& s : resolve(graph, order).storages) {
    StorageLifetime& life = lifetimes[s.storage.index];
    if (s.made_by != no_index) life.first = order[s.made_by];
    if (s.last < order.size()) life.last = order[s.last];
  }
  return lifetimes;
}

/// When a storage is used. A view or an in-place write of what is in it is a use of it.
struct StorageUse {
  StorageId storage{};
  ValueId value{};  ///< the value that brought the bytes
  Bytes bytes{};
  NodeId created{};         ///< none for what is there at the start
  NodeId last_forward{};    ///< its creation included; none where no forward node touches it
  NodeId first_backward{};  ///< none where backward does not use it
  NodeId last_backward{};
  ValueId saved{};  ///< the version that backward reads first: the value itself, or what it was overwritten with; none
  bool operator==(const StorageUse&) const = default;
};

/// The version that a view shows: itself, for what is not a view.
[[nodiscard]] inline ValueId viewed(const StepGraph& graph, ValueId v) {
  while (graph.value(v).alias_of.valid()) v = graph.value(v).alias_of;
  return v;
}

/// By storage.
[[nodiscard]] inline std::vector<StorageUse> storage_uses(const StepGraph& graph) {
  std::vector<StorageUse> uses(graph.storage_count());
  for (std::size_t i = 0; i < graph.storage_count(); ++i) {
    const Storage& s = graph.storage(StorageId{i});
    uses[i] = {.storage = StorageId{i}, .value = s.owner, .bytes = s.bytes, .created = graph.value(s.owner).producer};
  }
  const auto use = [&](NodeId n, ValueId v, bool reads) {
    StorageUse& a = uses[graph.value(v).storage.index];
    if (graph.node(n).phase == Phase::forward) a.last_forward = n;
    if (graph.node(n).phase != Phase::backward) return;
    if (!a.first_backward.valid()) a.first_backward = n;
    if (!a.saved.valid() && reads) a.saved = viewed(graph, v);
    a.last_backward = n;
  };
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const NodeId n{i};
    for (ValueId v : graph.inputs(n)) use(n, v, true);
    for (ValueId v : graph.outputs(n)) {
      use(n, v, false);
      if (!graph.value(v).owns()) use(n, graph.value(v).target(), graph.value(graph.value(v).target()).producer != n);
    }
  }
  return uses;
}

/// Of every storage whose owner is an activation and not persistent, in the order of creation.
[[nodiscard]] inline std::vector<StorageUse> activation_uses(const StepGraph& graph) {
  std::vector<StorageUse> uses = storage_uses(graph);
  std::erase_if(uses,
                [&](const StorageUse& a) { return graph.storage(a.storage).persistent || graph.value(a.value).role != Role::activation; });
  const auto rank = [](const StorageUse& a) { return a.created.valid() ? a.created.index + std::int64_t{1} : 0; };
  std::stable_sort(uses.begin(), uses.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return uses;
}

/// Bytes over time, and what stands at the peak.
struct MemoryAnalysis {
  std::vector<Bytes> live_during{};  ///< by node: persistent storages and its workspace included
  std::vector<Bytes> live_after{};   ///< by node: after what is not used again was freed
  Bytes peak{};
  NodeId peak_node{};                            ///< the first node at which the peak is reached; none in a graph without nodes
  std::array<Bytes, role_count> peak_by_role{};  ///< by the role of the value that owns the bytes; with the workspace, the peak
  Bytes peak_workspace{};
  Bytes floor{};  ///< what no schedule can go below
  Microseconds time{};
};

/// Throws Errc::bad_schedule where the graph's own order cannot be run.
[[nodiscard]] inline MemoryAnalysis analyse_memory(const StepGraph& graph) {
  const Schedule order = own_order(graph);
  Simulation own = simulate(graph, order);
  if (!own.valid) throw Error(Errc::bad_schedule, own.violation->message);
  MemoryAnalysis m;
  m.live_during = std::move(own.live_during);
  m.live_after = std::move(own.live_after);
  m.peak = own.peak;
  m.time = own.time;
  m.floor = floor_bytes(graph);
  if (order.empty()) return m;
  m.peak_node = order[own.peak_step];
  m.peak_by_role = bytes_by_role(graph, order)[own.peak_step];
  m.peak_workspace = graph.node(m.peak_node).workspace;
  return m;
}

/// The storages that are alive while a node runs, largest first.
[[nodiscard]] inline std::vector<StorageId> alive_during(const StepGraph& graph, const std::vector<StorageLifetime>& lifetimes, NodeId n) {
  std::vector<StorageId> alive;
  for (std::size_t i = 0; i < lifetimes.size(); ++i)
    if (lifetimes[i].covers(n)) alive.push_back(StorageId{i});
  std::stable_sort(alive.begin(), alive.end(), [&](StorageId a, StorageId b) { return graph.storage(a).bytes > graph.storage(b).bytes; });
  return alive;
}

/// All of the above.
struct StepAnalysis {
  NodeId first_backward{};
  std::vector<StorageLifetime> lifetimes{};  ///< by storage
  std::vector<StorageUse> activations{};
  MemoryAnalysis memory{};
};

[[nodiscard]] inline StepAnalysis analyse(const StepGraph& graph) {
  return {.first_backward = first_backward_node(graph),
          .lifetimes = storage_lifetimes(graph),
          .activations = activation_uses(graph),
          .memory = analyse_memory(graph)};
}

}  // namespace reprise
