#include <reprise/plan/strategies/anneal.hpp>

#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy.hpp>

TEST_CASE("a small graph is solved exactly: the toy's plan") {
  const StepGraph graph = toy_graph();
  const Simulation s =
      simulate(graph, Anneal{}.schedule(graph, {.budget = 20548_B, .keep_order = true}));
  CHECK(s.valid);
  CHECK(s.peak == 20548_B);
  CHECK(s.time.count == 319);
}

TEST_CASE("without the exact search and the other strategies, annealing alone fits a chain") {
  const StepGraph graph = testing::chain_step(30);
  const Bytes budget{simulate(graph, own_order(graph)).peak.count * 6 / 10};
  Anneal::Options alone;
  alone.exact_states = 0;
  alone.other_strategies = false;
  const Schedule found =
      Anneal{alone}.schedule(graph, {.budget = budget, .keep_order = true, .effort = 0.1});
  const Simulation s = simulate(graph, found);
  CHECK(s.valid);
  CHECK(s.peak <= budget);
  CHECK(keeps_order(graph, found));
}

TEST_CASE("nodes that are kept run once") {
  const StepGraph graph = testing::chain_step(30);
  const Bytes budget{simulate(graph, own_order(graph)).peak.count * 7 / 10};
  PlanRequest request{.budget = budget, .keep_order = true, .effort = 0.1};
  request.keep = {NodeId{3}, NodeId{10}};
  const auto runs = run_counts(graph, Anneal{}.schedule(graph, request));
  CHECK(runs[3] == 1);
  CHECK(runs[10] == 1);
}
