#include <reprise/graph/dependency.hpp>
#include <reprise/graph/dependency_order.hpp>

#include <algorithm>

#include <boost/graph/adjacency_list.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::toy_graph;

namespace {

const NodeId norm{0}, relu{1}, flat{2}, wide{3}, sum{4}, grad{5};
const ValueId x{0}, mean{1}, h{2}, h_relu{3}, h_flat{4};

using Nodes = std::vector<NodeId>;
using Values = std::vector<ValueId>;

// A topological order drawn at random: one of the nodes whose predecessors are done, again and
// again.
Schedule random_order(const GraphAdapter<StepGraph>& adapter, testing::Rng& rng) {
  std::vector<std::size_t> missing(num_vertices(adapter));
  Nodes ready;
  for (std::size_t i = 0; i < missing.size(); ++i)
    if ((missing[i] = in_degree(NodeId{i}, adapter)) == 0) ready.push_back(NodeId{i});
  Schedule order;
  while (!ready.empty()) {
    std::swap(ready[rng.below(ready.size())], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (auto [e, end] = out_edges(order.back(), adapter); e != end; ++e)
      if (--missing[target(*e, adapter).index] == 0) ready.push_back(target(*e, adapter));
  }
  return order;
}

// Whether the value has not been overwritten when the graph's own order has run.
bool exists_at_end(const StepGraph& graph, ValueId v) {
  const Value& value = graph.value(v);
  for (const Value& w : graph.values()) {
    if (!w.overwrites.valid() || w.storage != value.storage) continue;
    // a persistent value may be written again by the node that overwrites it
    const auto made = graph.outputs(w.producer);
    if (value.persistent && w.overwrites != v &&
        std::find(made.begin(), made.end(), v) != made.end())
      continue;
    if (w.overwrites == v || !value.producer.valid() || value.persistent ||
        value.producer < w.producer)
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("the header's example, on the toy") {
  const StepGraph graph = toy_graph();
  const GraphAdapter adapter{graph};
  CHECK(dependency_order(adapter).size() == 6);
  CHECK(ancestors(adapter, grad) == Nodes{norm, relu, flat});
  CHECK(descendants(adapter, wide) == Nodes{sum});
  CHECK(recompute_cone(adapter, h_flat, {}).nodes == Nodes{norm, relu, flat});
  CHECK(recompute_cone(adapter, h_flat, {}).sources == Values{x});
  CHECK(recompute_cone(adapter, h_flat, {h_relu}).nodes == Nodes{flat});
  CHECK(recompute_cone(adapter, h_flat, {h_relu}).sources == Values{h_relu});
  CHECK(recompute_cone(adapter, h_relu, {h}).nodes == Nodes{norm, relu});
  CHECK(recompute_cone(adapter, h_relu, {h}).sources == Values{x});
  CHECK(recompute_cone(adapter, h_relu, {h}).possible());
}

TEST_CASE("reachability follows edges in their direction") {
  const StepGraph graph = toy_graph();
  const GraphAdapter adapter{graph};
  CHECK(reaches(adapter, norm, grad));
  CHECK_FALSE(reaches(adapter, grad, norm));
  CHECK_FALSE(reaches(adapter, norm, sum));
  CHECK(reaches(adapter, norm, norm));
  CHECK(descendants(adapter, grad).empty());
  CHECK(ancestors(adapter, norm).empty());
}

TEST_CASE("a circle is refused by the nodes that close it") {
  boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS> graph(3);
  add_edge(0, 1, graph);
  add_edge(1, 2, graph);
  CHECK(dependency_order(graph) == std::vector<std::size_t>{0, 1, 2});
  add_edge(2, 1, graph);
  CHECK(refusal([&] { static_cast<void>(dependency_order(graph)); }) ==
        "bad graph: dependencies run in a circle through nodes 2 and 1");
}

TEST_CASE("a chain of a hundred thousand nodes is ordered without recursion") {
  GraphBuilder b;
  ValueId last = b.add_value({.id = -1, .bytes = 8_B, .persistent = true});
  for (int i = 0; i < 100'000; ++i) {
    const ValueId next = b.add_value({.id = i, .bytes = 8_B});
    b.add_node({.id = i}, {last}, {next});
    last = next;
  }
  const StepGraph graph = std::move(b).build();
  const GraphAdapter adapter{graph};
  CHECK(dependency_order(adapter) == own_order(graph));
  CHECK(recompute_cone(adapter, last, {}).nodes.size() == 100'000);
}

TEST_CASE("what may run only once, or is gone for good, stands in the way of a recomputation") {
  GraphBuilder b;
  const ValueId start = b.add_value({.id = 0, .bytes = 8_B, .initial = true});
  const ValueId got = b.add_value({.id = 1, .bytes = 8_B}),
                a = b.add_value({.id = 2, .bytes = 8_B}),
                c = b.add_value({.id = 3, .overwrites = start});
  b.add_node({.id = 0, .name = "receive", .recomputable = false}, {start}, {got});
  b.add_node({.id = 1}, {got}, {a});
  b.add_node({.id = 2, .name = "relu_"}, {}, {c});
  const StepGraph graph = std::move(b).build();
  const GraphAdapter adapter{graph};

  const RecomputeCone again = recompute_cone(adapter, a, {});
  CHECK_FALSE(again.possible());
  CHECK(again.only_once == Nodes{NodeId{0}});
  CHECK(recompute_cone(adapter, a, {got}).possible());

  const RecomputeCone gone = recompute_cone(adapter, c, {start});
  CHECK_FALSE(gone.possible());
  CHECK(gone.lost == Values{start});
  CHECK(recompute_cone(adapter, start, {}).lost == Values{start});
}

TEST_CASE("a cone does not go through what a node updates, nor through order edges") {
  const StepGraph graph = toy_graph();
  const GraphAdapter adapter{graph};
  const RecomputeCone cone = recompute_cone(adapter, h, {});
  CHECK(cone.nodes == Nodes{norm});
  CHECK(cone.sources == Values{x});  // not mean
  CHECK(recompute_cone(adapter, mean, {}).lost == Values{mean});
}

TEST_CASE("every topological order of data and order edges can be run") {
  std::size_t runnable = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    testing::Rng rng{seed};
    const StepGraph graph = testing::random_graph(rng, {.nodes = 5 + rng.below(20)});
    if (!simulate(graph, own_order(graph)).valid) continue;
    const GraphAdapter adapter{graph};
    ++runnable;
    INFO("seed " << seed);
    const Simulation sorted = simulate(graph, dependency_order(adapter));
    INFO((sorted.valid ? "" : sorted.violation->message));
    REQUIRE(sorted.valid);
    for (int i = 0; i < 5; ++i) {
      const Simulation drawn = simulate(graph, random_order(adapter, rng));
      INFO((drawn.valid ? "" : drawn.violation->message));
      REQUIRE(drawn.valid);
    }
  }
  CHECK(runnable > 250);
}

TEST_CASE("data edges alone allow orders that cannot be run") {
  std::size_t invalid = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    testing::Rng rng{seed};
    const StepGraph graph = testing::random_graph(rng, {.nodes = 15});
    if (!simulate(graph, own_order(graph)).valid) continue;
    if (!simulate(graph, random_order(GraphAdapter{graph, Edges::data}, rng)).valid) ++invalid;
  }
  CHECK(invalid > 10);
}

TEST_CASE("a cone that is possible can be run at the end of the step, whatever is kept") {
  std::size_t run = 0, overwritten = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    testing::Rng rng{seed};
    const StepGraph graph = testing::random_graph(rng, {.nodes = 5 + rng.below(15), .updates = 0});
    if (!simulate(graph, own_order(graph)).valid) continue;
    const GraphAdapter adapter{graph};
    const ValueId v{rng.below(graph.value_count())};
    Values kept;
    for (std::size_t i = 0; i < graph.value_count(); ++i)
      if (exists_at_end(graph, ValueId{i}) && ValueId{i} != v && rng.chance(0.5))
        kept.push_back(ValueId{i});
    const RecomputeCone cone = recompute_cone(adapter, v, kept);
    if (!cone.possible()) continue;
    Schedule schedule = own_order(graph);
    schedule.insert(schedule.end(), cone.nodes.begin(), cone.nodes.end());
    const Simulation simulation = simulate(graph, schedule);
    INFO("seed " << seed << ", value " << v.index << ": "
                 << (simulation.valid ? "" : simulation.violation->message));
    // What the step began with may have been overwritten since; everything else the cone must get
    // right.
    const bool there = std::all_of(cone.sources.begin(), cone.sources.end(),
                                   [&](ValueId s) { return exists_at_end(graph, s); });
    REQUIRE(simulation.valid == there);
    ++(there ? run : overwritten);
  }
  CHECK(run > 200);
  CHECK(overwritten > 0);
}
