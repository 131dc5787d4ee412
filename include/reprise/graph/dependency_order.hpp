#pragma once
// dependency_order() returns an order in which all vertices can run, by Boost.Graph's depth-first
// search.
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat ──grad──▶ g          x ──wide──▶ wide ──sum──▶ loss
//
// ```cpp
// dependency_order(adapter);   // all six nodes, each after the nodes on which it depends
// ```

#include <algorithm>
#include <string>
#include <vector>

#include <boost/graph/depth_first_search.hpp>
#include <boost/property_map/property_map.hpp>

#include <reprise/base/error.hpp>
#include <reprise/graph/dependency.hpp>

namespace reprise::graphs {

/// Lists vertices in the order in which depth-first search finishes them, and refuses cycles.
template <class Graph>
struct FinishOrder : boost::dfs_visitor<> {
  std::vector<vertex_of<Graph>>* finished = nullptr;

  void finish_vertex(vertex_of<Graph> v, const Graph&) { finished->push_back(v); }
  template <class Edge>
  void back_edge(Edge e, const Graph& graph) {
    const auto index = get(boost::vertex_index, graph);
    throw Error(Errc::bad_graph, "dependencies run in a circle through nodes " +
                                     std::to_string(get(index, source(e, graph))) + " and " +
                                     std::to_string(get(index, target(e, graph))));
  }
};

/// All vertices, each after the vertices with an edge to it. Throws Errc::bad_graph if the graph
/// has a cycle. Needs VertexListGraph, IncidenceGraph and a vertex_index.
template <class Graph>
[[nodiscard]] std::vector<vertex_of<Graph>> dependency_order(const Graph& graph) {
  std::vector<vertex_of<Graph>> order;
  order.reserve(num_vertices(graph));
  FinishOrder<Graph> visitor;
  visitor.finished = &order;
  std::vector<boost::default_color_type> colors(num_vertices(graph));
  boost::depth_first_search(
      graph, visitor,
      boost::make_iterator_property_map(colors.begin(), get(boost::vertex_index, graph)));
  std::reverse(order.begin(), order.end());
  return order;
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::dependency_order;
}  // namespace reprise
