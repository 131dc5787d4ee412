#include <reprise/plan/pins.hpp>

#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy.hpp>

TEST_CASE("a schedule that runs a kept node again breaks a pin") {
  PlanRequest request;
  request.keep = {NodeId{1}};
  CHECK(breaks_pins(toy_graph(), toy_schedule(), request));
  CHECK_FALSE(breaks_pins(toy_graph(), own_order(toy_graph()), request));
  request.keep = {NodeId{3}};
  CHECK_FALSE(breaks_pins(toy_graph(), toy_schedule(), request));
}

TEST_CASE("a pinned node runs again before the last read of what it makes, where that fits") {
  const StepGraph graph = testing::chain_step(3);
  const Schedule own = own_order(graph);
  PlanRequest request{.budget = Bytes{1'000'000}};
  request.recompute = {NodeId{0}};
  const Schedule pinned = recompute_pinned(graph, own, request);
  CHECK(run_counts(graph, pinned) == std::vector<std::uint32_t>{2, 1, 1, 1, 1, 1});
  CHECK(keeps_order(graph, pinned));
  // b1, the last node, reads what f1 made
  CHECK(pinned == nodes({0, 1, 2, 3, 4, 0, 5}));
  request.budget = Bytes{1};
  CHECK(recompute_pinned(graph, own, request) == own);
}

TEST_CASE("what may not run again, or runs again already, is left as it is") {
  GraphBuilder b;
  const ValueId v = b.add_value({.id = 0, .bytes = 8_B}), w = b.add_value({.id = 1, .bytes = 8_B});
  b.add_node({.id = 0, .recomputable = false}, {}, {v});
  b.add_node({.id = 1}, {v}, {w});
  b.add_output(w);
  const StepGraph graph = std::move(b).build();
  PlanRequest request{.budget = 1000_B};
  request.recompute = {NodeId{0}};
  CHECK(recompute_pinned(graph, nodes({0, 1}), request) == nodes({0, 1}));
  request.recompute = {NodeId{0}, NodeId{1}, NodeId{2}};
  request.budget = Bytes{1'000'000};
  CHECK(recompute_pinned(toy_graph(), toy_schedule(), request) == toy_schedule());
}
