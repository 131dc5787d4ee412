#include <reprise/graph/simulate.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/schedules.hpp>
#include <reprise_test/toy_graph.hpp>

#include <reprise/graph/builder.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::literals;
using reprise_test::nodes;
using reprise_test::toy_graph;

TEST_CASE("the plan format's example costs what its page says") {
  const StepGraph graph = toy_graph();
  const Simulation own = simulate(graph, own_order(graph));
  CHECK(own.valid);
  CHECK(own.peak == 28740_B);
  CHECK(own.peak_step == 4);
  CHECK(own.time.count == 188.5);
  const Simulation plan = simulate(graph, nodes({0, 1, 2, 3, 4, 0, 1, 2, 5}));
  CHECK(plan.peak == 20548_B);
  CHECK(plan.time.count == 319.0);
  CHECK(floor_bytes(graph) == 20548_B);
}

TEST_CASE("an overwritten value must be made again before it is read") {
  const StepGraph graph = toy_graph();
  const Simulation s = simulate(graph, nodes({0, 1, 1, 2, 3, 4, 5}));
  REQUIRE_FALSE(s.valid);
  CHECK(s.violation->rule == Rule::missing_input);
  CHECK(s.violation->step == 2);
  CHECK(s.violation->message.find("value 2 (h)") != std::string::npos);
}

TEST_CASE("every node has to run") {
  const StepGraph graph = toy_graph();
  const Simulation s = simulate(graph, nodes({0, 1, 2, 3, 4}));
  REQUIRE_FALSE(s.valid);
  CHECK(s.violation->rule == Rule::never_runs);
  CHECK(s.violation->node == NodeId{5});
  CHECK(simulate(graph, nodes({9})).violation->rule == Rule::unknown_node);
}

TEST_CASE("a view keeps its base alive") {
  GraphBuilder b;
  const ValueId base = b.add_value({.id = 0, .bytes = 100_B});
  const ValueId view = b.add_value({.id = 1, .alias_of = base});
  const ValueId big = b.add_value({.id = 2, .bytes = 10_B});
  const ValueId end = b.add_value({.id = 3, .bytes = 1_B});
  b.add_node({.id = 0}, {}, {base});
  b.add_node({.id = 1}, {}, {view});  // reads its base whether or not it says so
  b.add_node({.id = 2}, {}, {big});
  b.add_node({.id = 3}, {view}, {end});
  b.add_output(end);
  const StepGraph graph = std::move(b).build();
  const Simulation s = simulate(graph, own_order(graph));
  CHECK(s.live_during == std::vector<Bytes>{100_B, 100_B, 110_B, 101_B});
  CHECK(s.live_after == std::vector<Bytes>{100_B, 100_B, 100_B, 1_B});
  CHECK(simulate(graph, nodes({1, 0, 2, 3})).violation->rule == Rule::missing_target);
}

TEST_CASE("what is recomputed while the old instance is in use counts twice") {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 100_B});
  const ValueId view = b.add_value({.id = 1, .alias_of = a});
  const ValueId end = b.add_value({.id = 2, .bytes = 1_B});
  b.add_node({.id = 0}, {}, {a});
  b.add_node({.id = 1}, {a}, {view});
  b.add_node({.id = 2}, {a, view}, {end});
  b.add_output(end);
  const StepGraph graph = std::move(b).build();
  CHECK(simulate(graph, nodes({0, 1, 2})).peak == 101_B);
  CHECK(simulate(graph, nodes({0, 1, 0, 2})).peak == 201_B);
}

TEST_CASE("updates keep their order and readers their place between them") {
  GraphBuilder b;
  const ValueId state = b.add_value({.id = 0, .bytes = 8_B, .persistent = true});
  const ValueId r = b.add_value({.id = 1, .bytes = 1_B});
  b.add_node({.id = 0}, {}, {}, {state});
  b.add_node({.id = 1}, {state}, {r});
  b.add_node({.id = 2}, {}, {}, {state});
  b.add_output(r);
  const StepGraph graph = std::move(b).build();
  CHECK(simulate(graph, nodes({0, 1, 2})).valid);
  CHECK(simulate(graph, nodes({0, 1, 2, 0})).valid);  // a recomputation updates nothing
  CHECK(simulate(graph, nodes({1, 0, 2})).violation->rule == Rule::update_order);
  CHECK(simulate(graph, nodes({2, 0, 1})).violation->rule == Rule::update_order);
  CHECK(simulate(graph, nodes({0, 1, 2, 1})).violation->rule == Rule::update_order);
}

TEST_CASE("what may run only once runs only once") {
  GraphBuilder b;
  const ValueId r = b.add_value({.id = 1, .bytes = 1_B});
  b.add_node({.id = 0, .recomputable = false}, {}, {r});
  b.add_output(r);
  const StepGraph graph = std::move(b).build();
  CHECK(simulate(graph, nodes({0, 0})).violation->rule == Rule::runs_again);
}

TEST_CASE(
    "an initial value counts from the start to its last use, unused ones during the first step") {
  GraphBuilder b;
  const ValueId used = b.add_value({.id = 0, .bytes = 10_B, .initial = true});
  b.add_value({.id = 1, .bytes = 5_B, .initial = true});
  const ValueId r = b.add_value({.id = 2, .bytes = 1_B});
  const ValueId q = b.add_value({.id = 3, .bytes = 2_B});
  b.add_node({.id = 0}, {}, {q});
  b.add_node({.id = 1}, {used, q}, {r});
  b.add_output(r);
  const StepGraph graph = std::move(b).build();
  CHECK(simulate(graph, own_order(graph)).live_during == std::vector<Bytes>{17_B, 13_B});
}

TEST_CASE("a resolution names the instance that each use reads") {
  const StepGraph graph = toy_graph();
  const Schedule plan = nodes({0, 1, 2, 3, 4, 0, 1, 2, 5});
  const Resolution r = resolve(graph, plan);
  const ValueInstance& read = r.values[r.inputs[8][1]];
  CHECK(read.value == ValueId{4});
  CHECK(read.made_by == 7);
  const StorageInstance& storage = r.storages[read.storage];
  CHECK(storage.first == 5);
  CHECK(storage.last == 8);
  CHECK(r.values[r.targets[6][0]].made_by == 5);
  CHECK(r.values[r.step_outputs[0]].made_by == 4);
  CHECK_THROWS_AS(resolve(graph, nodes({0})), Error);
}

TEST_CASE("bytes by role add up to what is live, without workspace") {
  const StepGraph graph = toy_graph();
  const auto roles = bytes_by_role(graph, own_order(graph));
  const Simulation s = simulate(graph, own_order(graph));
  REQUIRE(roles.size() == s.live_during.size());
  CHECK(roles[0][static_cast<std::size_t>(Role::activation)] == 8192_B);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    Bytes sum = graph.node(NodeId{i}).workspace;
    for (Bytes b : roles[i]) sum += b;
    CHECK(sum == s.live_during[i]);
  }
}

TEST_CASE("check_runnable refuses a graph whose own order reads what does not exist yet") {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 1_B});
  const ValueId c = b.add_value({.id = 1, .bytes = 1_B});
  b.add_node({.id = 0}, {c}, {a});
  b.add_node({.id = 1}, {}, {c});
  const StepGraph graph = std::move(b).build();
  CHECK_THROWS_AS(check_runnable(graph), Error);
}
