#pragma once
// Functions for reachability, and for the recompute cone of a value.
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat ──grad──▶ g          x ──wide──▶ wide ──sum──▶ loss
//
// ```cpp
// ancestors(adapter, grad);              // norm, relu, flat
// descendants(adapter, wide);            // sum
// recompute_cone(adapter, h_flat, {});         // norm, relu, flat, from x
// recompute_cone(adapter, h_flat, {h_relu});   // flat, from h.relu
// // norm, relu, from x: relu_ would destroy the h that is kept, so it needs an h of its own
// recompute_cone(adapter, h_relu, {h});
// ```
//
// All of them use Boost.Graph's breadth-first search: along the edges of an adapter, or against
// them (reverse_graph) if only some edges count (filtered_graph). Functions with a Boost.Graph
// graph accept any model: GraphAdapter, adjacency_list, a view of one. graph/dependency_order.hpp
// computes an order in which all vertices can run.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <vector>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/graph_traits.hpp>
#include <boost/graph/reverse_graph.hpp>
#include <boost/pending/queue.hpp>
#include <boost/property_map/property_map.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

template <class Graph>
using vertex_of = typename boost::graph_traits<Graph>::vertex_descriptor;

/// A caller's predicate in the form that Boost.Graph's views need: copyable, assignable and
/// default-constructible. There is one type for all predicates, so the views and searches are
/// compiled once. The predicate must outlive it.
template <class Edge>
class EdgeFilter {
 public:
  EdgeFilter() = default;
  template <class Passes>
  explicit EdgeFilter(const Passes& passes)
      : passes_(&passes),
        call_([](const void* p, Edge e) -> bool { return (*static_cast<const Passes*>(p))(e); }) {}
  bool operator()(Edge e) const { return call_(passes_, e); }

 private:
  const void* passes_ = nullptr;
  bool (*call_)(const void*, Edge) = nullptr;
};

/// Breadth-first search, repeatedly on graphs of one size: the time of a search depends on the size
/// of its result, not of the graph.
template <class Vertex, class IndexMap>
class ReachSearch {
 public:
  ReachSearch(std::size_t vertices, IndexMap index)
      : index_(index), colors_(vertices, boost::white_color) {}

  /// All vertices on paths from `starts`, these included, each once. Valid until the next search.
  /// Needs IncidenceGraph.
  template <class Graph>
  const std::vector<Vertex>& from(const Graph& graph, std::span<const Vertex> starts) {
    for (const Vertex v : found_) colors_[get(index_, v)] = boost::white_color;
    found_.clear();
    const auto colors = boost::make_iterator_property_map(colors_.begin(), index_);
    for (const Vertex start : starts)
      if (get(colors, start) == boost::white_color)
        boost::breadth_first_visit(graph, start, open_, Collect{{}, &found_}, colors);
    return found_;
  }

 private:
  struct Collect : boost::default_bfs_visitor {
    std::vector<Vertex>* found;
    Collect(boost::default_bfs_visitor base, std::vector<Vertex>* list)
        : boost::default_bfs_visitor(base), found(list) {}
    template <class Graph>
    void discover_vertex(Vertex v, const Graph&) const {
      found->push_back(v);
    }
  };

  IndexMap index_;
  std::vector<boost::default_color_type> colors_;  // by vertex; not white: in found_
  std::vector<Vertex> found_;
  boost::queue<Vertex> open_;
};

/// All vertices on paths from `starts`, these included, by vertex_index. Needs IncidenceGraph.
template <class Graph>
[[nodiscard]] std::vector<bool> reachable(const Graph& graph,
                                          std::span<const vertex_of<Graph>> starts) {
  const auto index = get(boost::vertex_index, graph);
  ReachSearch<vertex_of<Graph>, decltype(index)> search{num_vertices(graph), index};
  std::vector<bool> reached(num_vertices(graph), false);
  for (const auto v : search.from(graph, starts)) reached[get(index, v)] = true;
  return reached;
}

/// Whether a path leads from one to the other; true if both are the same vertex.
template <class Graph>
[[nodiscard]] bool reaches(const Graph& graph, vertex_of<Graph> from, vertex_of<Graph> to) {
  return reachable(graph, std::span{&from, 1})[get(get(boost::vertex_index, graph), to)];
}

/// The nodes of a set, in the graph's own order.
[[nodiscard]] inline std::vector<NodeId> nodes_of(const std::vector<bool>& set) {
  std::vector<NodeId> list;
  for (std::size_t i = 0; i < set.size(); ++i)
    if (set[i]) list.push_back(NodeId{i});
  return list;
}

/// All nodes that must run after n, in the graph's own order.
template <class G>
[[nodiscard]] std::vector<NodeId> descendants(const GraphAdapter<G>& adapter, NodeId n) {
  std::vector<bool> found = reachable(adapter, std::span{&n, 1});
  found[n.index] = false;
  return nodes_of(found);
}

/// Searches against the direction of an adapter's edges: which nodes had to run before?
template <class G>
class ConeSearch {
 public:
  explicit ConeSearch(const GraphAdapter<G>& adapter)
      : adapter_(&adapter), search_(num_vertices(adapter), {}) {}

  /// All nodes from which a path of edges that `passes` accepts leads to one of `ends`. Includes
  /// `ends`; each node once, in no particular order. Valid until the next search.
  template <class Passes>
  const std::vector<NodeId>& leading_to(std::span<const NodeId> ends, const Passes& passes) {
    const boost::filtered_graph<GraphAdapter<G>, EdgeFilter<EdgeId>> passed{
        *adapter_, EdgeFilter<EdgeId>{passes}};
    return search_.from(boost::make_reverse_graph(passed), ends);
  }

  [[nodiscard]] const GraphAdapter<G>& adapter() const { return *adapter_; }

 private:
  const GraphAdapter<G>* adapter_;
  ReachSearch<NodeId, NodeIndexMap> search_;
};

/// All nodes from which a path of edges that `passes` accepts leads to n, n included.
template <class G, class Passes>
[[nodiscard]] std::vector<bool> leading_to(const GraphAdapter<G>& adapter, NodeId n,
                                           Passes passes) {
  std::vector<bool> found(num_vertices(adapter), false);
  ConeSearch<G> search{adapter};
  for (NodeId m : search.leading_to(std::span{&n, 1}, passes)) found[m.index] = true;
  return found;
}

/// All nodes that must run before n, in the graph's own order.
template <class G>
[[nodiscard]] std::vector<NodeId> ancestors(const GraphAdapter<G>& adapter, NodeId n) {
  std::vector<bool> found = leading_to(adapter, n, [](EdgeId) { return true; });
  found[n.index] = false;
  return nodes_of(found);
}

/// All nodes that must run to recompute a value.
struct RecomputeCone {
  std::vector<NodeId> nodes{};     ///< in the graph's own order, the value's producer last
  std::vector<ValueId> sources{};  ///< available values that they read
  /// values that they need and that no node can make: one of them destroys a value from before the
  /// step
  std::vector<ValueId> lost{};
  std::vector<NodeId> only_once{};  ///< nodes of the cone that are not recomputable

  [[nodiscard]] bool possible() const { return lost.empty() && only_once.empty(); }
};

/// Adds what the cone's nodes read, and which nodes and values make the cone impossible.
template <class G>
void inspect_cone(const G& graph, const std::vector<bool>& kept, RecomputeCone& cone) {
  const auto made_again = [&](ValueId v) {
    return std::binary_search(cone.nodes.begin(), cone.nodes.end(), producer(graph, v));
  };
  for (NodeId n : cone.nodes) {
    if (!may_run_again(graph, n)) cone.only_once.push_back(n);
    for (ValueId v : reads(graph, n)) {
      if (made_again(v)) continue;  // even if an older instance is kept, because the newest is read
      const bool there = (kept[v.index] || !producer(graph, v).valid()) && !destroys(graph, n, v);
      (there ? cone.sources : cone.lost).push_back(v);
    }
  }
  for (auto* list : {&cone.sources, &cone.lost}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
}

/// Whether recomputing the target of edge e needs the source of e as well: the edge has data that
/// is not kept, or that the reader will destroy. `kept(v)` says which values are available.
template <class G, class Kept>
[[nodiscard]] auto through_missing_data(const GraphAdapter<G>& adapter, Kept kept) {
  return [&adapter, kept](EdgeId e) {
    const Dependency& d = adapter.dependency(e);
    return d.is_data() && (!kept(d.value) || destroys(adapter.graph(), d.to, d.value));
  };
}

/// The nodes that must run to recompute `target`, if the values that `kept` marks and the values
/// from before the step are available. The function does not know about time: the caller or the
/// simulator knows whether a kept value has been overwritten by then.
template <class G>
[[nodiscard]] RecomputeCone recompute_cone(ConeSearch<G>& search, ValueId target,
                                           const std::vector<bool>& kept) {
  const G& graph = search.adapter().graph();
  const NodeId last = producer(graph, target);
  if (!last.valid()) return {.nodes = {}, .sources = {}, .lost = {target}, .only_once = {}};
  RecomputeCone cone;
  cone.nodes = search.leading_to(
      std::span{&last, 1},
      through_missing_data(search.adapter(), [&kept](ValueId v) { return kept[v.index]; }));
  std::sort(cone.nodes.begin(), cone.nodes.end());
  inspect_cone(graph, kept, cone);
  return cone;
}

template <class G>
[[nodiscard]] RecomputeCone recompute_cone(const GraphAdapter<G>& adapter, ValueId target,
                                           const std::vector<bool>& kept) {
  ConeSearch<G> search{adapter};
  return recompute_cone(search, target, kept);
}

/// As above, with the kept values in a list.
template <class G>
[[nodiscard]] RecomputeCone recompute_cone(const GraphAdapter<G>& adapter, ValueId target,
                                           std::span<const ValueId> kept) {
  std::vector<bool> is_kept(value_count(adapter.graph()), false);
  for (ValueId v : kept) is_kept[v.index] = true;
  return recompute_cone(adapter, target, is_kept);
}

template <class G>
[[nodiscard]] RecomputeCone recompute_cone(const GraphAdapter<G>& adapter, ValueId target,
                                           std::initializer_list<ValueId> kept) {
  return recompute_cone(adapter, target, std::span{kept.begin(), kept.size()});
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::recompute_cone;
using graphs::RecomputeCone;
}  // namespace reprise
