#pragma once
// Who needs whom: dependency order, reachability, and what it takes to compute a value again. Boost.Graph's algorithms, wrapped once.
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat ──grad──▶ g          x ──wide──▶ wide ──sum──▶ loss
//
//   dependency_order(adapter)             all six nodes, each behind what it depends on
//   ancestors(adapter, grad)              norm, relu, flat
//   descendants(adapter, wide)            sum
//   recompute_cone(adapter, h_flat, {})         norm, relu, flat, from x
//   recompute_cone(adapter, h_flat, {h_relu})   flat, from h.relu
//   recompute_cone(adapter, h_relu, {h})        norm, relu, from x: relu_ would destroy the h that is kept, so it needs one of its own
//
// Functions that take a Boost.Graph graph work on any: GraphAdapter, adjacency_list, a filtered or reversed view.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include <boost/graph/depth_first_search.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/graph_traits.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <boost/property_map/property_map.hpp>

#include <reprise/error.hpp>
#include <reprise/graph/adapter.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise {

template <class Graph>
using vertex_of = typename boost::graph_traits<Graph>::vertex_descriptor;

/// Lists vertices as depth-first search finishes them, and refuses circles.
template <class Graph>
struct FinishOrder : boost::dfs_visitor<> {
  std::vector<vertex_of<Graph>>* finished = nullptr;

  void finish_vertex(vertex_of<Graph> v, const Graph&) { finished->push_back(v); }
  template <class Edge>
  void back_edge(Edge e, const Graph& graph) {
    const auto index = get(boost::vertex_index, graph);
    throw Error(Errc::bad_graph, "dependencies run in a circle through nodes " + std::to_string(get(index, source(e, graph))) + " and " +
                                     std::to_string(get(index, target(e, graph))));
  }
};

/// All vertices, each behind those from which an edge leads to it. Throws Errc::bad_graph where there is a circle.
/// Needs VertexListGraph, IncidenceGraph and a vertex_index.
template <class Graph>
[[nodiscard]] std::vector<vertex_of<Graph>> dependency_order(const Graph& graph) {
  std::vector<vertex_of<Graph>> order;
  order.reserve(num_vertices(graph));
  FinishOrder<Graph> visitor;
  visitor.finished = &order;
  std::vector<boost::default_color_type> colors(num_vertices(graph));
  boost::depth_first_search(graph, visitor, boost::make_iterator_property_map(colors.begin(), get(boost::vertex_index, graph)));
  std::reverse(order.begin(), order.end());
  return order;
}

/// All vertices that a path leads to from one of `starts`, these included, by vertex_index. Needs IncidenceGraph.
template <class Graph>
[[nodiscard]] std::vector<bool> reachable(const Graph& graph, std::span<const vertex_of<Graph>> starts) {
  std::vector<boost::default_color_type> colors(num_vertices(graph), boost::white_color);
  const auto index = get(boost::vertex_index, graph);
  const auto color = boost::make_iterator_property_map(colors.begin(), index);
  for (const auto start : starts)
    if (colors[get(index, start)] == boost::white_color) boost::depth_first_visit(graph, start, boost::dfs_visitor<>{}, color);
  std::vector<bool> found(colors.size());
  std::transform(colors.begin(), colors.end(), found.begin(), [](auto c) { return c != boost::white_color; });
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

/// Everything that must run before n, in the graph's own order.
template <class G>
[[nodiscard]] std::vector<NodeId> ancestors(const GraphAdapter<G>& adapter, NodeId n) {
  std::vector<bool> found = reachable(boost::make_reverse_graph(adapter), std::span{&n, 1});
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

/// Passes the edges through which a recomputation goes on: data that is not kept, or that the reader will destroy.
template <class G>
class NotAtHand {
 public:
  NotAtHand() = default;
  NotAtHand(const GraphAdapter<G>& adapter, const std::vector<bool>& kept) : adapter_(&adapter), kept_(&kept) {}
  bool operator()(EdgeId e) const {
    const Dependency& d = adapter_->dependency(e);
    return d.is_data() && (!(*kept_)[d.value.index] || destroys(adapter_->graph(), d.to, d.value));
  }

 private:
  const GraphAdapter<G>* adapter_ = nullptr;
  const std::vector<bool>* kept_ = nullptr;
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
  const boost::filtered_graph<GraphAdapter<G>, NotAtHand<G>> needed{adapter, NotAtHand<G>{adapter, kept}};
  RecomputeCone cone;
  cone.nodes = nodes_of(reachable(boost::make_reverse_graph(needed), std::span{&last, 1}));
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
