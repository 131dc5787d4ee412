#pragma once
// Who needs whom: reachability, and what it takes to compute a value again.
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat ──grad──▶ g          x ──wide──▶ wide ──sum──▶ loss
//
//   ancestors(adapter, grad)              norm, relu, flat
//   descendants(adapter, wide)            sum
//   recompute_cone(adapter, h_flat, {})         norm, relu, flat, from x
//   recompute_cone(adapter, h_flat, {h_relu})   flat, from h.relu
//   recompute_cone(adapter, h_relu, {h})        norm, relu, from x: relu_ would destroy the h that is kept, so it needs one of its own
//
// Functions that take a Boost.Graph graph work on any: GraphAdapter, adjacency_list, a filtered or reversed view. An order in which
// all of it can run is in graph/dependency_order.hpp, which costs Boost.Graph's algorithms to include.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include <boost/graph/graph_traits.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise {

template <class Graph>
using vertex_of = typename boost::graph_traits<Graph>::vertex_descriptor;

/// All vertices that a path leads to from one of `starts`, these included, by vertex_index. Needs IncidenceGraph.
template <class Graph>
[[nodiscard]] std::vector<bool> reachable(const Graph& graph, std::span<const vertex_of<Graph>> starts) {
  const auto index = get(boost::vertex_index, graph);
  std::vector<bool> found(num_vertices(graph), false);
  std::vector<vertex_of<Graph>> open;
  const auto visit = [&](vertex_of<Graph> v) {
    if (found[get(index, v)]) return;
    found[get(index, v)] = true;
    open.push_back(v);
  };
  for (const auto start : starts) visit(start);
  while (!open.empty()) {
    const auto v = open.back();
    open.pop_back();
    for (auto [edge, end] = out_edges(v, graph); edge != end; ++edge) visit(target(*edge, graph));
  }
  return found;
}

/// Whether a path leads from one to the other; true where they are the same.
template <class Graph>
[[nodiscard]] bool reaches(const Graph& graph, vertex_of<Graph> from, vertex_of<Graph> to) {
  return reachable(graph, std::span{&from, 1})[get(get(boost::vertex_index, graph), to)];
}

/// The nodes that a set names, in the graph's own order.
[[nodiscard]] inline std::vector<NodeId> nodes_of(const std::vector<bool>& set) {
  std::vector<NodeId> list;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (set[i]) list.push_back(NodeId{i});
  return list;
}

/// Everything that must run after n, in the graph's own order.
template <class G>
[[nodiscard]] std::vector<NodeId> descendants(const GraphAdapter<G>& adapter, NodeId n) {
  std::vector<bool> found = reachable(adapter, std::span{&n, 1});
  found[n.index] = false;
  return nodes_of(found);
}

/// All nodes from which a path of edges that `passes` accepts leads to n, n included.
template <class G, class Passes>
[[nodiscard]] std::vector<bool> leading_to(const GraphAdapter<G>& adapter, NodeId n, Passes passes) {
  std::vector<bool> found(num_vertices(adapter), false);
  std::vector<NodeId> open{n};
  found[n.index] = true;
  while (!open.empty()) {
    const NodeId to = open.back();
    open.pop_back();
    for (auto [edge, end] = in_edges(to, adapter); edge != end; ++edge) {
      const NodeId from = source(*edge, adapter);
      if (found[from.index] || !passes(*edge)) continue;
      found[from.index] = true;
      open.push_back(from);
    }
  }
  return found;
}

/// Everything that must run before n, in the graph's own order.
template <class G>
[[nodiscard]] std::vector<NodeId> ancestors(const GraphAdapter<G>& adapter, NodeId n) {
  std::vector<bool> found = leading_to(adapter, n, [](EdgeId) { return true; });
  found[n.index] = false;
  return nodes_of(found);
}

/// What must run to have a value again.
struct RecomputeCone {
  std::vector<NodeId> nodes{};      ///< in the graph's own order, the value's producer last
  std::vector<ValueId> sources{};   ///< values that they read and that are there
  std::vector<ValueId> lost{};      ///< values that they need and that nothing makes: one of them destroys what the step began with
  std::vector<NodeId> only_once{};  ///< those of the nodes that may not run again

  [[nodiscard]] bool possible() const { return lost.empty() && only_once.empty(); }
};

/// Fills in what the cone's nodes read, and which of them stand in the way.
template <class G>
void inspect_cone(const G& graph, const std::vector<bool>& kept, RecomputeCone& cone) {
  const auto made_again = [&](ValueId v) { return std::binary_search(cone.nodes.begin(), cone.nodes.end(), producer(graph, v)); };
  for (NodeId n : cone.nodes) {
    if (!may_run_again(graph, n)) cone.only_once.push_back(n);
    for (ValueId v : reads(graph, n)) {
      if (made_again(v)) continue;  // also where an older instance is kept: the newest is read
      const bool there = (kept[v.index] || !producer(graph, v).valid()) && !destroys(graph, n, v);
      (there ? cone.sources : cone.lost).push_back(v);
    }
  }
  for (auto* list : {&cone.sources, &cone.lost}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
}

/// What must run to have `target` again, where the values that `kept` marks and those that are there from the start can be read.
/// Time is not part of the question: whether something kept has been overwritten by then, the caller knows, or the simulator.
template <class G>
[[nodiscard]] RecomputeCone recompute_cone(const GraphAdapter<G>& adapter, ValueId target, const std::vector<bool>& kept) {
  const G& graph = adapter.graph();
  const NodeId last = producer(graph, target);
  if (!last.valid()) return {.nodes = {}, .sources = {}, .lost = {target}, .only_once = {}};
  // A recomputation goes on through data that is not kept, or that the reader will destroy.
  const auto not_at_hand = [&](EdgeId e) {
    const Dependency& d = adapter.dependency(e);
    return d.is_data() && (!kept[d.value.index] || destroys(graph, d.to, d.value));
  };
  RecomputeCone cone;
  cone.nodes = nodes_of(leading_to(adapter, last, not_at_hand));
  inspect_cone(graph, kept, cone);
  return cone;
}

/// As above, with the kept values in a list.
template <class G>
[[nodiscard]] RecomputeCone recompute_cone(const GraphAdapter<G>& adapter, ValueId target, std::span<const ValueId> kept) {
  std::vector<bool> is_kept(value_count(adapter.graph()), false);
  for (ValueId v : kept) is_kept[v.index] = true;
  return recompute_cone(adapter, target, is_kept);
}

template <class G>
[[nodiscard]] RecomputeCone recompute_cone(const GraphAdapter<G>& adapter, ValueId target, std::initializer_list<ValueId> kept) {
  return recompute_cone(adapter, target, std::span{kept.begin(), kept.size()});
}

}  // namespace reprise
