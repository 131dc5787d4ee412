#include <reprise/graph/adapter.hpp>

#include <array>
#include <set>

#include <boost/concept/assert.hpp>
#include <boost/graph/graph_concepts.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/graph/dependency_order.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::toy_graph;

namespace {

// The smallest model of DependencySource: nothing but the four functions, with the weakest types
// that they may have.
namespace archetype {
struct Graph {
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
};
struct Count {
  operator std::size_t() const { return 0; }
};
[[maybe_unused]] Count node_count(const Graph&) { return {}; }
[[maybe_unused]] Count value_count(const Graph&) { return {}; }
[[maybe_unused]] NodeId producer(const Graph&, ValueId) { return {}; }
[[maybe_unused]] std::array<ValueId, 0> reads(const Graph&, NodeId) { return {}; }
}  // namespace archetype

static_assert(DependencySource<archetype::Graph>);
static_assert(!DependencySource<int>);

// Does not compile where the adapter is not a model.
template <class G>
struct BoostConcepts {
  BOOST_CONCEPT_ASSERT((boost::VertexListGraphConcept<GraphAdapter<G>>));
  BOOST_CONCEPT_ASSERT((boost::BidirectionalGraphConcept<GraphAdapter<G>>));
  BOOST_CONCEPT_ASSERT((boost::EdgeListGraphConcept<GraphAdapter<G>>));
  BOOST_CONCEPT_ASSERT(
      (boost::ReadablePropertyGraphConcept<GraphAdapter<G>, NodeId, boost::vertex_index_t>));
};
static_assert(sizeof(BoostConcepts<StepGraph>) > 0);
static_assert(sizeof(BoostConcepts<archetype::Graph>) > 0);

// Edges as "from->to:value", values by index, order edges without one.
std::set<std::string> edge_names(const auto& adapter) {
  std::set<std::string> names;
  for (auto [e, end] = edges(adapter); e != end; ++e) {
    const Dependency& d = adapter.dependency(*e);
    names.insert(std::to_string(d.from.index) + "->" + std::to_string(d.to.index) +
                 (d.is_data() ? ":" + std::to_string(d.value.index) : ""));
  }
  return names;
}

using Names = std::set<std::string>;

}  // namespace

TEST_CASE("the toy's edges are the values that flow") {
  const StepGraph graph = toy_graph();
  const GraphAdapter adapter{graph};
  CHECK(num_vertices(adapter) == 6);
  CHECK(num_edges(adapter) == 4);
  CHECK(edge_names(adapter) == Names{"0->1:2", "1->2:3", "2->5:4", "3->4:5"});
}

TEST_CASE("in and out edges, degrees and ends agree") {
  const StepGraph graph = toy_graph();
  const GraphAdapter adapter{graph};
  const NodeId flat{2};
  CHECK(in_degree(flat, adapter) == 1);
  CHECK(out_degree(flat, adapter) == 1);
  CHECK(degree(flat, adapter) == 2);
  CHECK(source(*in_edges(flat, adapter).first, adapter) == NodeId{1});
  CHECK(target(*out_edges(flat, adapter).first, adapter) == NodeId{5});
  CHECK(out_degree(NodeId{5}, adapter) == 0);
  CHECK(in_degree(NodeId{0}, adapter) == 0);
}

TEST_CASE("an edge stands for each value that flows, and once for a value that is read twice") {
  GraphBuilder b;
  const ValueId u = b.add_value({.id = 0, .bytes = 8_B}), v = b.add_value({.id = 1, .bytes = 8_B}),
                w = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0}, {}, {u, v});
  b.add_node({.id = 1}, {u, v, u}, {w});
  const StepGraph graph = std::move(b).build();
  CHECK(edge_names(GraphAdapter{graph}) == Names{"0->1:0", "0->1:1"});
}

TEST_CASE(
    "a view that is not among the inputs is an edge all the same; one of the node's own outputs is "
    "not") {
  GraphBuilder b;
  const ValueId base = b.add_value({.id = 0, .bytes = 8_B});
  const ValueId view = b.add_value({.id = 1, .alias_of = base});
  const ValueId own = b.add_value({.id = 2, .alias_of = view});
  b.add_node({.id = 0}, {}, {base});
  b.add_node({.id = 1}, {}, {view, own});
  const StepGraph graph = std::move(b).build();
  CHECK(edge_names(GraphAdapter{graph}) == Names{"0->1:0"});
}

TEST_CASE("a write in place comes after the reads of what it destroys") {
  GraphBuilder b;
  const ValueId h = b.add_value({.id = 0, .bytes = 8_B}),
                view = b.add_value({.id = 1, .alias_of = h});
  const ValueId a = b.add_value({.id = 2, .bytes = 8_B}), c = b.add_value({.id = 3, .bytes = 8_B}),
                r = b.add_value({.id = 4, .overwrites = h});
  b.add_node({.id = 0, .name = "make"}, {}, {h});
  b.add_node({.id = 1, .name = "read"}, {h}, {a});
  b.add_node({.id = 2, .name = "view"}, {h}, {view});
  b.add_node({.id = 3, .name = "read the view"}, {view}, {c});
  b.add_node({.id = 4, .name = "relu_"}, {h}, {r});
  const StepGraph graph = std::move(b).build();
  CHECK(edge_names(GraphAdapter{graph}) ==
        Names{"0->1:0", "0->2:0", "2->3:1", "0->4:0", "1->4", "2->4", "3->4"});
  CHECK(edge_names(GraphAdapter{graph, Edges::data}) ==
        Names{"0->1:0", "0->2:0", "2->3:1", "0->4:0"});
}

TEST_CASE(
    "updates of a value keep their order, and reads stay between the updates they stood between") {
  GraphBuilder b;
  const ValueId state = b.add_value({.id = 0, .bytes = 8_B, .persistent = true});
  const ValueId a = b.add_value({.id = 1, .bytes = 8_B}), c = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0, .name = "read"}, {state}, {a});
  b.add_node({.id = 1, .name = "update"}, {}, {}, {state});
  b.add_node({.id = 2, .name = "read"}, {state}, {c});
  b.add_node({.id = 3, .name = "update"}, {}, {}, {state});
  const StepGraph graph = std::move(b).build();
  CHECK(edge_names(GraphAdapter{graph}) == Names{"0->1", "1->2", "1->3", "2->3"});
  CHECK(num_edges(GraphAdapter{graph, Edges::data}) == 0);
}

TEST_CASE("a parameter's step comes after its reads and before those that see the new one") {
  GraphBuilder b;
  const ValueId w =
      b.add_value({.id = 0, .bytes = 8_B, .role = Role::parameter, .persistent = true});
  const ValueId a = b.add_value({.id = 1, .bytes = 8_B}), c = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0, .name = "read"}, {w}, {a});
  b.add_node({.id = 1, .name = "step", .recomputable = false}, {a}, {w});
  b.add_node({.id = 2, .name = "read"}, {w}, {c});
  const StepGraph graph = std::move(b).build();
  // 0 -> 1 is said by the data edge
  CHECK(edge_names(GraphAdapter{graph}) == Names{"0->1:1", "1->2"});
}

// A graph of one's own that works is examples/policy_graph.cpp. This one is wrong.
namespace broken {
struct Graph {};
std::size_t node_count(const Graph&) { return 1; }
std::size_t value_count(const Graph&) { return 1; }
NodeId producer(const Graph&, ValueId) { return NodeId{0}; }
std::array<ValueId, 1> reads(const Graph&, NodeId) { return {ValueId{7}}; }
}  // namespace broken

TEST_CASE("ids out of range in a graph of one's own are refused") {
  const broken::Graph graph;
  CHECK(refusal([&] { GraphAdapter{graph}; }) == "bad graph: node 0 reads a value that is none");
}
