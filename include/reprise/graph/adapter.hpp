#pragma once
// GraphAdapter shows a step to Boost.Graph: nodes are vertices, and an edge a -> b says that a must
// run before b.
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat ──grad──▶ g          x ──wide──▶ wide ──sum──▶ loss
//
// ```cpp
// GraphAdapter adapter{graph};   // norm -> relu through h, relu -> flat through h.relu, …
// num_vertices(adapter);         // 6
// num_edges(adapter);            // 4
// adapter.dependency(e).value;   // the value that flows; none for an order edge
// ```
//
// A data edge leads from a value's producer to each of its readers, views and in-place writes
// included. An order edge keeps a write after the reads of the contents that it destroys. It also
// keeps a read after the write that came before it in the capture (a buffer that is updated, a
// parameter that an optimizer steps). Every topological order of both kinds can be run.
// GraphAdapter{graph, Edges::data} leaves order edges out.
//
// Any type can replace StepGraph. It needs the four functions of DependencySource, found by
// argument-dependent lookup, and may have three more. docs/policies/graph.md has a complete
// example.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/graph/graph_traits.hpp>
#include <boost/graph/properties.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/ids.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

/// `before` must run before `after`, without passing data.
struct OrderConstraint {
  NodeId before{}, after{};
  auto operator<=>(const OrderConstraint&) const = default;
};

/// The functions that GraphAdapter requires of a graph. Nodes and values are numbered from 0.
///   1. node_count(g)     number of nodes
///   2. value_count(g)    number of values
///   3. producer(g, v)    the node that makes value v; NodeId::none() for a value from before the step
///   4. reads(g, n)       a range of the values that node n needs
/// It may also have
///   5. order_constraints(g)   a range of OrderConstraint; without it, there are no order edges
///   6. overwrites(g, n, v)    whether running n destroys v; without it, nothing is destroyed
///   7. recomputable(g, n)     whether n may run more than once; without it, every node may
template <class G>
concept DependencySource = requires(const G& g, NodeId n, ValueId v) {
  { node_count(g) } -> std::convertible_to<std::size_t>;
  { value_count(g) } -> std::convertible_to<std::size_t>;
  { producer(g, v) } -> std::convertible_to<NodeId>;
  { reads(g, n) } -> std::ranges::input_range;
  requires std::convertible_to<std::ranges::range_value_t<decltype(reads(g, n))>, ValueId>;
};

/// Requirement 6, if the graph meets it.
template <DependencySource G>
[[nodiscard]] bool destroys(const G& graph, NodeId n, ValueId v) {
  if constexpr (requires { overwrites(graph, n, v); }) return overwrites(graph, n, v);
  else return false;
}

/// Requirement 7, if the graph meets it.
template <DependencySource G>
[[nodiscard]] bool may_run_again(const G& graph, NodeId n) {
  if constexpr (requires { recomputable(graph, n); }) return recomputable(graph, n);
  else return true;
}

// --- A StepGraph is one --------------------------------------------------------------------------

[[nodiscard]] inline std::size_t node_count(const StepGraph& graph) { return graph.node_count(); }
[[nodiscard]] inline std::size_t value_count(const StepGraph& graph) { return graph.value_count(); }

/// None for persistent values: they exist, whichever node writes them.
[[nodiscard]] inline NodeId producer(const StepGraph& graph, ValueId v) {
  const Value& value = graph.value(v);
  return value.persistent ? NodeId{} : value.producer;
}

/// Inputs, and the values that the outputs are views of or overwrite; each once.
[[nodiscard]] inline std::vector<ValueId> reads(const StepGraph& graph, NodeId n) {
  std::vector<ValueId> list(graph.inputs(n).begin(), graph.inputs(n).end());
  for (ValueId v : graph.outputs(n)) {
    const ValueId target = graph.value(v).target();
    if (target.valid() && producer(graph, target) != n) list.push_back(target);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

[[nodiscard]] inline bool overwrites(const StepGraph& graph, NodeId n, ValueId v) {
  const auto made = graph.outputs(n);
  return std::any_of(made.begin(), made.end(),
                     [&](ValueId w) { return graph.value(w).overwrites == v; });
}

[[nodiscard]] inline bool recomputable(const StepGraph& graph, NodeId n) {
  return graph.node(n).recomputable;
}

/// A node that writes a storage comes after the nodes that read or wrote the storage before, in the
/// graph's own order. A node that reads the storage comes after its last write. (Data edges say so
/// already, except for persistent values.) Values of one storage are not distinguished: a write
/// through one value is visible through all.
[[nodiscard]] inline std::vector<OrderConstraint> order_constraints(const StepGraph& graph) {
  std::vector<OrderConstraint> constraints;
  std::vector<NodeId> writer(graph.storage_count());
  std::vector<std::vector<NodeId>> readers(graph.storage_count());  // since the last write
  const auto constrain = [&](NodeId before, NodeId after) {
    if (before.valid() && before != after) constraints.push_back({before, after});
  };
  const auto write = [&](StorageId s, NodeId n) {
    for (NodeId reader : readers[s.index]) constrain(reader, n);
    if (graph.storage(s).persistent) constrain(writer[s.index], n);
    readers[s.index].clear();
    writer[s.index] = n;
  };
  for (NodeId n : graph.node_ids()) {
    for (ValueId v : reads(graph, n)) {
      const StorageId s = graph.value(v).storage;
      if (graph.storage(s).persistent) constrain(writer[s.index], n);
      readers[s.index].push_back(n);
    }
    for (ValueId v : graph.updates(n)) write(graph.value(v).storage, n);
    for (ValueId v : graph.outputs(n))
      if (graph.value(v).persistent || graph.value(v).overwrites.valid())
        write(graph.value(v).storage, n);
  }
  return constraints;
}

static_assert(DependencySource<StepGraph>);

// --- The view ------------------------------------------------------------------------------------

using EdgeId = Id<struct EdgeTag>;

/// One edge.
struct Dependency {
  NodeId from{}, to{};
  ValueId value{};  ///< the value that flows; none for an order edge

  [[nodiscard]] bool is_data() const { return value.valid(); }
  auto operator<=>(const Dependency&) const = default;
};

/// The edges of an adapter.
enum class Edges : std::uint8_t { data, data_and_order };

/// Iterates over ids: 0, 1, 2, ...
template <class IdType>
class IdIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = IdType;
  using difference_type = std::ptrdiff_t;
  using pointer = const IdType*;
  using reference = IdType;

  IdIterator() = default;
  explicit IdIterator(std::size_t i) : id_(i) {}
  IdType operator*() const { return id_; }
  const IdType* operator->() const { return &id_; }
  IdIterator& operator++() {
    ++id_.index;
    return *this;
  }
  IdIterator operator++(int) {
    IdIterator old = *this;
    ++id_.index;
    return old;
  }
  bool operator==(const IdIterator&) const = default;

 private:
  IdType id_{std::size_t{0}};
};

/// A vertex's index in arrays: Boost.Graph's vertex_index.
struct NodeIndexMap {
  using key_type = NodeId;
  using value_type = std::size_t;
  using reference = std::size_t;
  using category = boost::readable_property_map_tag;
  friend std::size_t get(NodeIndexMap, NodeId n) { return n.index; }
  std::size_t operator[](NodeId n) const { return n.index; }
};

/// Models Boost.Graph's VertexListGraph, BidirectionalGraph and EdgeListGraph. The edges are
/// computed once; the graph must outlive the adapter.
template <class G>
class GraphAdapter {
  static_assert(DependencySource<G>,
                "GraphAdapter<G> needs node_count(g), value_count(g), producer(g, v) and reads(g, "
                "n) for G: see DependencySource and "
                "docs/policies/graph.md");

 public:
  // The members that boost::graph_traits needs.
  using vertex_descriptor = NodeId;
  using edge_descriptor = EdgeId;
  using directed_category = boost::bidirectional_tag;
  using edge_parallel_category = boost::allow_parallel_edge_tag;
  struct traversal_category : boost::bidirectional_graph_tag,
                              boost::vertex_list_graph_tag,
                              boost::edge_list_graph_tag {};
  using vertices_size_type = std::size_t;
  using edges_size_type = std::size_t;
  using degree_size_type = std::size_t;
  using vertex_iterator = IdIterator<NodeId>;
  using edge_iterator = IdIterator<EdgeId>;
  using out_edge_iterator = IdIterator<EdgeId>;
  using in_edge_iterator = const EdgeId*;
  using adjacency_iterator = void;
  static NodeId null_vertex() { return NodeId::none(); }

  explicit GraphAdapter(const G& graph, Edges edges = Edges::data_and_order)
      : graph_(&graph), nodes_(node_count(graph)) {
    add_data_edges();
    std::sort(edges_.begin(), edges_.end());
    if constexpr (requires { order_constraints(graph); })
      if (edges == Edges::data_and_order) add_order_edges();
    index_edges();
  }
  explicit GraphAdapter(G&&, Edges = Edges::data_and_order) = delete;

  [[nodiscard]] const G& graph() const { return *graph_; }
  [[nodiscard]] const Dependency& dependency(EdgeId e) const { return edges_[e.index]; }

  friend std::size_t num_vertices(const GraphAdapter& a) { return a.nodes_; }
  friend std::size_t num_edges(const GraphAdapter& a) { return a.edges_.size(); }
  friend std::pair<vertex_iterator, vertex_iterator> vertices(const GraphAdapter& a) {
    return ids<NodeId>(0, a.nodes_);
  }
  friend std::pair<edge_iterator, edge_iterator> edges(const GraphAdapter& a) {
    return ids<EdgeId>(0, a.edges_.size());
  }
  friend NodeId source(EdgeId e, const GraphAdapter& a) { return a.edges_[e.index].from; }
  friend NodeId target(EdgeId e, const GraphAdapter& a) { return a.edges_[e.index].to; }
  friend std::pair<out_edge_iterator, out_edge_iterator> out_edges(NodeId n,
                                                                   const GraphAdapter& a) {
    return ids<EdgeId>(a.out_starts_[n.index], a.out_starts_[n.index + 1]);
  }
  friend std::pair<in_edge_iterator, in_edge_iterator> in_edges(NodeId n, const GraphAdapter& a) {
    return {a.in_edges_.data() + a.in_starts_[n.index],
            a.in_edges_.data() + a.in_starts_[n.index + 1]};
  }
  friend std::size_t out_degree(NodeId n, const GraphAdapter& a) {
    return a.out_starts_[n.index + 1] - a.out_starts_[n.index];
  }
  friend std::size_t in_degree(NodeId n, const GraphAdapter& a) {
    return a.in_starts_[n.index + 1] - a.in_starts_[n.index];
  }
  friend std::size_t degree(NodeId n, const GraphAdapter& a) {
    return in_degree(n, a) + out_degree(n, a);
  }
  friend NodeIndexMap get(boost::vertex_index_t, const GraphAdapter&) { return {}; }
  friend std::size_t get(boost::vertex_index_t, const GraphAdapter&, NodeId n) { return n.index; }

 private:
  template <class IdType>
  static std::pair<IdIterator<IdType>, IdIterator<IdType>> ids(std::size_t begin, std::size_t end) {
    return {IdIterator<IdType>{begin}, IdIterator<IdType>{end}};
  }

  void add_data_edges() {
    for (std::size_t i = 0; i < nodes_; ++i)
      for (ValueId v : reads(*graph_, NodeId{i})) add_data_edge(NodeId{i}, v);
  }
  void add_data_edge(NodeId reader, ValueId v) {
    if (v.index >= value_count(*graph_))
      throw Error(Errc::bad_graph,
                  "node " + std::to_string(reader.index) + " reads a value that is none");
    const NodeId maker = producer(*graph_, v);
    if (!maker.valid() || maker == reader) return;
    check(maker, "the producer of value " + std::to_string(v.index));
    edges_.push_back({maker, reader, v});
  }
  // Leaves out the order edges that data edges imply. Sorts `edges_` before and after.
  void add_order_edges() {
    const std::size_t data = edges_.size();
    for (const OrderConstraint& c : order_constraints(*graph_)) {
      check(c.before, "an order constraint");
      check(c.after, "an order constraint");
      const auto end = edges_.begin() + static_cast<std::ptrdiff_t>(data);
      const auto first = std::lower_bound(edges_.begin(), end,
                                          Dependency{c.before, c.after, ValueId{std::size_t{0}}});
      const bool said = first != end && first->from == c.before && first->to == c.after;
      if (!said && c.before != c.after) edges_.push_back({c.before, c.after, {}});
    }
    std::sort(edges_.begin(), edges_.end());
    edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
  }
  void check(NodeId n, const std::string& what) const {
    if (n.index >= nodes_)
      throw Error(Errc::bad_graph, what + " names node " + std::to_string(n.index) + " of " +
                                       std::to_string(nodes_));
  }

  void index_edges() {
    out_starts_.assign(nodes_ + 1, 0);
    in_starts_.assign(nodes_ + 1, 0);
    for (const Dependency& d : edges_) {
      ++out_starts_[d.from.index + 1];
      ++in_starts_[d.to.index + 1];
    }
    for (std::size_t i = 0; i < nodes_; ++i) {
      out_starts_[i + 1] += out_starts_[i];
      in_starts_[i + 1] += in_starts_[i];
    }
    std::vector<std::size_t> next(in_starts_.begin(), in_starts_.end() - 1);
    in_edges_.resize(edges_.size());
    for (std::size_t e = 0; e < edges_.size(); ++e)
      in_edges_[next[edges_[e].to.index]++] = EdgeId{e};
  }

  const G* graph_;
  std::size_t nodes_;
  std::vector<Dependency> edges_;  // by source, then target, then value
  std::vector<std::size_t> out_starts_, in_starts_;
  std::vector<EdgeId> in_edges_;  // by target
};

}  // namespace reprise::graphs

template <class G>
struct boost::property_map<reprise::graphs::GraphAdapter<G>, boost::vertex_index_t> {
  using type = reprise::graphs::NodeIndexMap;
  using const_type = reprise::graphs::NodeIndexMap;
};

namespace reprise {
using graphs::DependencySource;
using graphs::GraphAdapter;
}  // namespace reprise
