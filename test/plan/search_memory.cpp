// How much memory a search for a plan takes, and what of it stays.

#include <reprise_test/catch.hpp>

#include <reprise/plan/planner.hpp>
#include <reprise_test/counted_new.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::planning;

TEST_CASE("a search takes at most 2 KiB for each node, and keeps its schedule alone") {
  const StepGraph graph = reprise::testing::resnet_step({.blocks = 300});
  const auto nodes = static_cast<std::int64_t>(graph.node_count());
  REQUIRE(nodes > 6000);
  const Bytes own = simulate(graph, own_order(graph)).peak, floor = floor_bytes(graph);
  const reprise_test::CountedNew counted;
  const Plan plan = Planner{}.plan(
      graph,
      {.budget = floor + Bytes{(own - floor).count / 2}, .keep_order = true, .effort = 0.05});
  INFO("at most " << counted.peak() << " bytes, at the end " << counted.live() << ", " << nodes
                  << " nodes");
  CHECK(plan.schedule.size() > graph.node_count());
  CHECK(counted.peak() <= 2048 * nodes);
  CHECK(counted.live() <= 16 * nodes);
}

TEST_CASE("a graph is not copied where a cost model's times are its own") {
  // names and other members are most of a recorded step's graph
  GraphBuilder builder("named");
  const std::string extra = R"({"attributes":{"text":")" + std::string(4000, 'x') + R"("}})";
  constexpr std::int64_t nodes = 2000;
  for (std::int64_t i = 0; i < nodes; ++i) {
    const ValueId v = builder.add_value({.id = i, .bytes = Bytes{64}, .extra = extra});
    builder.add_node({.id = i, .op = "op", .time = {1}}, {}, {v});
  }
  const StepGraph graph = std::move(builder).build();
  const reprise_test::CountedNew counted;
  const Plan plan = Planner{}.plan(graph, {.budget = Bytes{64 * nodes}});
  CHECK(plan.within_budget());
  CHECK(counted.peak() < 1000 * nodes);
}
