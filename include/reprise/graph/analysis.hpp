#pragma once
// analyse() computes from the graph what a step does with its memory: the begin of backward, the
// lifetime of each storage, the uses of each activation, and the live bytes at the peak. Everything
// by the rule of the plan format, for the graph's own order.
//
//   node        norm   relu_  flat   wide   sum  | grad          x 4096 and mean 64 are persistent: 4160 B
//   h            +------+------+------+------+------+   8192     relu_ and flat are in h's storage
//   wide                               +-----+         16384
//   loss                                     +------>      4
//   g                                               +>  4096
//   live during 12608  12352  12352  28736  28740  16452         norm has 256 B of workspace; 28740 is the peak, at sum
//
// ```cpp
// StepAnalysis a = analyse(graph);
// a.first_backward;              // grad
// a.activations[0];              // h: created by norm; last forward use flat; backward uses: grad
// dead_range(a.activations[0]);  // after flat, before grad: wide and sum run, and no node uses h
// a.memory.peak;                 // 28740 B, at a.memory.peak_node: sum
// a.memory.peak_by_role[static_cast<std::size_t>(Role::activation)];  // 24576 B
// ```
//
// Liveness comes from GraphAdapter by one breadth-first search of Boost.Graph: a data edge is a use
// of its value by its target node. Edges do not show what a node makes, overwrites, or reads from
// before the step; the visitor asks the node.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/pending/queue.hpp>
#include <boost/property_map/property_map.hpp>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

/// The first node of phase backward; none if there is none.
[[nodiscard]] inline NodeId first_backward_node(const StepGraph& graph) {
  const auto nodes = graph.nodes();
  const auto it = std::ranges::find(nodes, Phase::backward, &Node::phase);
  return it == nodes.end() ? NodeId{} : NodeId{static_cast<std::size_t>(it - nodes.begin())};
}

/// From the node that allocates a storage to the last node that uses a value in it.
struct StorageLifetime {
  NodeId first{};  ///< none: initial
  NodeId last{};   ///< none: live at the end
  [[nodiscard]] bool covers(NodeId n) const {
    return (!first.valid() || first <= n) && (!last.valid() || n <= last);
  }
  bool operator==(const StorageLifetime&) const = default;
};

/// The uses of a storage. A view or an in-place write of its contents is a use of it.
struct StorageUse {
  StorageId storage{};
  ValueId value{};  ///< the storage's owner
  Bytes bytes{};
  NodeId created{};         ///< none for an initial storage
  NodeId first_forward{};   ///< its creation included; none if no forward node uses it
  NodeId last_forward{};    ///< the same node if only one forward node uses it
  NodeId first_backward{};  ///< none if backward does not use it
  NodeId last_backward{};
  /// the version that backward reads first: the value itself, or a later version; none without a
  /// read
  ValueId saved{};
  bool operator==(const StorageUse&) const = default;
};

/// The version that a view shows; the value itself if it is no view.
[[nodiscard]] inline ValueId viewed(const StepGraph& graph, ValueId v) {
  while (graph.value(v).alias_of.valid()) v = graph.value(v).alias_of;
  return v;
}

/// Between the last forward and the first backward use: the storage is live, and no node uses it.
struct DeadRange {
  NodeId after{}, before{};  ///< both none if forward or backward does not use the storage
  [[nodiscard]] bool empty() const { return !after.valid() || before.index <= after.index + 1; }
  [[nodiscard]] bool covers(NodeId n) const { return after.valid() && after < n && n < before; }
  bool operator==(const DeadRange&) const = default;
};

[[nodiscard]] inline DeadRange dead_range(const StorageUse& use) {
  if (!use.last_forward.valid() || !use.first_backward.valid()) return {};
  return {use.last_forward, use.first_backward};
}

/// A node reads a value, makes it, or overwrites it.
struct Use {
  NodeId node{};
  ValueId value{};
  bool reads = false;
};

/// Lists uses, as a visitor of Boost.Graph's breadth-first search.
struct UseVisitor : boost::default_bfs_visitor {
  std::vector<Use>* uses = nullptr;

  void discover_vertex(NodeId n, const GraphAdapter<StepGraph>& adapter) const {
    const StepGraph& graph = adapter.graph();
    for (ValueId v : graph.outputs(n)) uses->push_back({n, v, false});
    const auto given = graph.inputs(n);
    for (ValueId v : reads(graph, n))
      if (!producer(graph, v).valid())
        uses->push_back({n, v,
                         graph.value(v).producer != n ||
                             std::find(given.begin(), given.end(), v) != given.end()});
  }
  void examine_edge(EdgeId e, const GraphAdapter<StepGraph>& adapter) const {
    const Dependency& d = adapter.dependency(e);
    if (d.is_data()) uses->push_back({d.to, d.value, true});
  }
};

/// All uses of all values, in no particular order.
[[nodiscard]] inline std::vector<Use> all_uses(const GraphAdapter<StepGraph>& adapter) {
  std::vector<Use> uses;
  UseVisitor visitor;
  visitor.uses = &uses;
  std::vector<boost::default_color_type> colors(num_vertices(adapter));
  boost::queue<NodeId> open;
  const auto [begin, end] = vertices(adapter);
  boost::breadth_first_search(adapter, begin, end, open, visitor,
                              boost::make_iterator_property_map(colors.begin(), NodeIndexMap{}));
  return uses;
}

/// The first version of a storage that a node reads; none if it reads none.
[[nodiscard]] inline ValueId first_read(const StepGraph& graph, NodeId n, StorageId s) {
  for (ValueId v : graph.inputs(n))
    if (graph.value(v).storage == s) return viewed(graph, v);
  for (ValueId v : graph.outputs(n))
    if (const ValueId t = graph.value(v).target();
        t.valid() && graph.value(t).storage == s && graph.value(t).producer != n)
      return viewed(graph, t);
  return {};
}

/// By storage. `phase(n)` says whether a node belongs to the forward or to the backward pass.
template <class PhaseOf>
[[nodiscard]] std::vector<StorageUse> storage_uses(const GraphAdapter<StepGraph>& adapter,
                                                   PhaseOf phase) {
  const StepGraph& graph = adapter.graph();
  std::vector<StorageUse> uses(graph.storage_count());
  std::vector<NodeId> reader(graph.storage_count());  // the first of the backward pass
  for (StorageId id : graph.storage_ids()) {
    const Storage& s = graph.storage(id);
    uses[id.index] = {.storage = id,
                      .value = s.owner,
                      .bytes = s.bytes,
                      .created = graph.value(s.owner).producer};
  }
  // none is the largest id
  const auto first = [](NodeId& known, NodeId n) { known = std::min(known, n); };
  const auto last = [](NodeId& known, NodeId n) { known = known.valid() ? std::max(known, n) : n; };
  for (const auto& [n, v, reads] : all_uses(adapter)) {
    StorageUse& use = uses[graph.value(v).storage.index];
    if (phase(n) == Phase::forward) {
      first(use.first_forward, n);
      last(use.last_forward, n);
    } else if (phase(n) == Phase::backward) {
      first(use.first_backward, n);
      last(use.last_backward, n);
      if (reads) first(reader[use.storage.index], n);
    }
  }
  for (StorageUse& use : uses)
    if (const NodeId n = reader[use.storage.index]; n.valid())
      use.saved = first_read(graph, n, use.storage);
  return uses;
}

/// By storage, with the phases of the graph's nodes.
[[nodiscard]] inline std::vector<StorageUse> storage_uses(const StepGraph& graph) {
  return storage_uses(GraphAdapter{graph, Edges::data},
                      [&graph](NodeId n) { return graph.node(n).phase; });
}

/// For every storage whose owner is an activation and not persistent, in the order of creation.
[[nodiscard]] inline std::vector<StorageUse> activation_uses(const StepGraph& graph,
                                                             std::vector<StorageUse> uses) {
  std::erase_if(uses, [&](const StorageUse& a) {
    return graph.storage(a.storage).persistent || graph.value(a.value).role != Role::activation;
  });
  const auto rank = [](const StorageUse& a) {
    return a.created.valid() ? a.created.index + std::int64_t{1} : 0;
  };
  std::ranges::stable_sort(uses, {}, rank);
  return uses;
}

[[nodiscard]] inline std::vector<StorageUse> activation_uses(const StepGraph& graph) {
  return activation_uses(graph, storage_uses(graph));
}

/// By storage: an initial storage has no first node, an output of the step no last node. An initial
/// storage that is never used ends with the first node.
[[nodiscard]] inline std::vector<StorageLifetime> storage_lifetimes(const StepGraph& graph) {
  std::vector<StorageLifetime> lifetimes(graph.storage_count());
  for (const Use& use : all_uses(GraphAdapter{graph, Edges::data})) {
    NodeId& last = lifetimes[graph.value(use.value).storage.index].last;
    last = last.valid() ? std::max(last, use.node) : use.node;
  }
  for (StorageId id : graph.storage_ids()) {
    const Storage& s = graph.storage(id);
    StorageLifetime& life = lifetimes[id.index];
    if (s.persistent) life = {};
    else life.first = graph.value(s.owner).producer;
    if (!s.persistent && !life.last.valid() && graph.node_count() > 0)
      life.last = NodeId{std::size_t{0}};
  }
  for (ValueId v : graph.outputs()) lifetimes[graph.value(v).storage.index].last = {};
  return lifetimes;
}

/// Bytes over time, and the live bytes at the peak.
struct MemoryAnalysis {
  std::vector<Bytes> live_during{};  ///< by node: persistent storages and its workspace included
  std::vector<Bytes> live_after{};   ///< by node: after the storages without later use were freed
  Bytes peak{};
  /// the first node with the peak; none in a graph without nodes
  NodeId peak_node{};
  /// by the role of the storage's owner; the sum plus the workspace is the peak
  std::array<Bytes, role_count> peak_by_role{};
  Bytes peak_workspace{};
  Bytes floor{};  ///< a lower bound on the peak of every schedule
  Microseconds time{};
};

/// Throws Errc::bad_schedule if the graph's own order cannot be run.
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

/// The storages that are live while a node runs, the largest first.
[[nodiscard]] inline std::vector<StorageId> alive_during(
    const StepGraph& graph, const std::vector<StorageLifetime>& lifetimes, NodeId n) {
  const auto is_alive = [&](StorageId s) { return lifetimes[s.index].covers(n); };
  auto alive = graph.storage_ids() | ranges::views::filter(is_alive) | ranges::to<std::vector>();
  std::ranges::stable_sort(alive, std::greater{},
                           [&](StorageId s) { return graph.storage(s).bytes; });
  return alive;
}

/// The results of all functions above.
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

}  // namespace reprise::graphs

namespace reprise {
using graphs::analyse;
using graphs::analyse_memory;
using graphs::MemoryAnalysis;
using graphs::StepAnalysis;
}  // namespace reprise
