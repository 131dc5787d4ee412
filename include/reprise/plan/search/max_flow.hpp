#pragma once
// FlowNetwork finds the narrowest cut of a network, by maximum flow.
//
//          3          2
//     s ──────▶ a ──────▶ t          s, a, b, t are vertices 0, 1, 2, 3
//     │         │ 9       ▲
//     │ 1       ▼         │
//     └───────▶ b ────────┘
//                    5
//
// ```cpp
// FlowNetwork net{4};
// net.join(0, 1, 3), net.join(1, 3, 2), net.join(0, 2, 1), net.join(2, 3, 5), net.join(1, 2, 9);
// *net.send(0, 3);        // 4: everything that leaves s, 3 + 1
// net.reached_from(0);    // s alone: both of its edges are full, and they are the cut
// ```
//
// Boost.Graph computes the flow (Boykov and Kolmogorov); the network models its graph concepts,
// with the edges in one array. The set that can be reached from the source in the end does not
// depend on the flow: it is the smallest source side of a minimum cut. Nothing recurses, so a
// network may be as deep as a step is long.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/graph_traits.hpp>
#include <boost/iterator/counting_iterator.hpp>
#include <boost/property_map/property_map.hpp>

#include <reprise/graph/dependency.hpp>

namespace reprise::planning {

/// Models Boost.Graph's VertexListGraph, EdgeListGraph and IncidenceGraph. Vertices and edges are
/// numbers; the reverse of edge e is edge e ^ 1.
class FlowNetwork {
 public:
  explicit FlowNetwork(std::size_t vertices) : first_(vertices, none) {}

  /// Adds an edge and its reverse, which has no capacity at first.
  void join(std::size_t from, std::size_t to, std::int64_t width) {
    add(from, to, width);
    add(to, from, 0);
  }

  /// Computes the maximum flow and returns it; empty if the search was stopped.
  std::optional<std::int64_t> send(std::size_t source, std::size_t sink,
                                   const std::function<bool()>& stop = {}) {
    if (width_.empty()) return 0;
    std::vector<std::size_t> leads_here(first_.size()), steps(first_.size());
    std::vector<boost::default_color_type> colors(first_.size());
    const Index index{};
    const auto by = [&index](auto& list) {
      return boost::make_iterator_property_map(list.begin(), index);
    };
    std::vector<std::size_t> way_back(to_.size());
    for (std::size_t e = 0; e < to_.size(); ++e) way_back[e] = e ^ 1;
    std::size_t looks = 0;
    try {
      return boost::boykov_kolmogorov_max_flow(*this, by(width_), Left{&left_, &stop, &looks},
                                               by(way_back), by(leads_here), by(colors), by(steps),
                                               index, source, sink);
    } catch (const Left::Stopped&) {
      return std::nullopt;
    }
  }

  /// By vertex: whether more flow could reach it.
  [[nodiscard]] std::vector<bool> reached_from(std::size_t source) const {
    const auto lets_through = [this](std::size_t e) { return left_[e] > 0; };
    const boost::filtered_graph<FlowNetwork, EdgeFilter<std::size_t>> open{
        *this, EdgeFilter<std::size_t>{lets_through}};
    ReachSearch<std::size_t, Index> search{first_.size(), {}};
    std::vector<bool> reached(first_.size(), false);
    for (std::size_t v : search.from(open, std::span{&source, 1})) reached[v] = true;
    return reached;
  }

  // The members that boost::graph_traits needs.
  using vertex_descriptor = std::size_t;
  using edge_descriptor = std::size_t;
  using directed_category = boost::directed_tag;
  using edge_parallel_category = boost::allow_parallel_edge_tag;
  struct traversal_category : boost::incidence_graph_tag,
                              boost::vertex_list_graph_tag,
                              boost::edge_list_graph_tag {};
  using vertices_size_type = std::size_t;
  using edges_size_type = std::size_t;
  using degree_size_type = std::size_t;
  using vertex_iterator = boost::counting_iterator<std::size_t>;
  using edge_iterator = boost::counting_iterator<std::size_t>;
  using adjacency_iterator = void;
  using in_edge_iterator = void;
  static std::size_t null_vertex() { return none; }

  /// The edges that leave a vertex, the newest first.
  class out_edge_iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::size_t*;
    using reference = std::size_t;

    out_edge_iterator() = default;
    out_edge_iterator(const FlowNetwork& net, std::size_t e) : net_(&net), e_(e) {}
    std::size_t operator*() const { return e_; }
    out_edge_iterator& operator++() {
      e_ = net_->next_[e_];
      return *this;
    }
    out_edge_iterator operator++(int) {
      const out_edge_iterator old = *this;
      ++*this;
      return old;
    }
    bool operator==(const out_edge_iterator& other) const { return e_ == other.e_; }

   private:
    const FlowNetwork* net_ = nullptr;
    std::size_t e_ = none;
  };

  friend std::size_t num_vertices(const FlowNetwork& net) { return net.first_.size(); }
  friend std::size_t num_edges(const FlowNetwork& net) { return net.to_.size(); }
  friend std::pair<vertex_iterator, vertex_iterator> vertices(const FlowNetwork& net) {
    return {vertex_iterator{0}, vertex_iterator{net.first_.size()}};
  }
  friend std::pair<edge_iterator, edge_iterator> edges(const FlowNetwork& net) {
    return {edge_iterator{0}, edge_iterator{net.to_.size()}};
  }
  friend std::pair<out_edge_iterator, out_edge_iterator> out_edges(std::size_t v,
                                                                   const FlowNetwork& net) {
    return {{net, net.first_[v]}, {net, none}};
  }
  friend std::size_t out_degree(std::size_t v, const FlowNetwork& net) {
    const auto [begin, end] = out_edges(v, net);
    return static_cast<std::size_t>(std::distance(begin, end));
  }
  friend std::size_t source(std::size_t e, const FlowNetwork& net) { return net.to_[e ^ 1]; }
  friend std::size_t target(std::size_t e, const FlowNetwork& net) { return net.to_[e]; }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  using Index = boost::typed_identity_property_map<std::size_t>;

  /// The remaining capacity of an edge, as a Boost property map. An exception is the only way to
  /// end Boost's algorithm early.
  struct Left {
    struct Stopped {};
    using key_type = std::size_t;
    using value_type = std::int64_t;
    using reference = std::int64_t;
    using category = boost::read_write_property_map_tag;
    std::vector<std::int64_t>* left;
    const std::function<bool()>* stop;
    std::size_t* looks;

    friend std::int64_t get(const Left& map, std::size_t e) {
      if (*map.stop && ++*map.looks % 4096 == 0 && (*map.stop)()) throw Stopped{};
      return (*map.left)[e];
    }
    friend void put(const Left& map, std::size_t e, std::int64_t now) { (*map.left)[e] = now; }
  };

  void add(std::size_t from, std::size_t to, std::int64_t width) {
    next_.push_back(first_[from]);
    first_[from] = to_.size();
    to_.push_back(to);
    width_.push_back(width);
    left_.push_back(width);
  }

  std::vector<std::size_t> first_;  // edge, by vertex
  // by edge; next_: the next edge that leaves the same vertex
  std::vector<std::size_t> to_{}, next_{};
  std::vector<std::int64_t> width_{}, left_{};  // by edge; left_: remaining capacity
};

}  // namespace reprise::planning
