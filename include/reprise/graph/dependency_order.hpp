#pragma once
// An order in which everything can run, by Boost.Graph's depth-first search.
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat ──grad──▶ g          x ──wide──▶ wide ──sum──▶ loss
//
// ```cpp
// dependency_order(adapter);   // all six nodes, each behind what it depends on
// ```

#include <algorithm>
#include <string>
#include <vector>

#include <boost/graph/depth_first_search.hpp>
#include <boost/property_map/property_map.hpp>

#include <reprise/base/error.hpp>
#include <reprise/graph/dependency.hpp>

namespace reprise::graphs {

/// Lists vertices as depth-first search finishes them, and refuses circles.
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

/// All vertices, each behind those from which an edge leads to it. Throws Errc::bad_graph where
/// there is a circle. Needs VertexListGraph, IncidenceGraph and a vertex_index.
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
