#include <reprise/plan/strategies.hpp>

#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy.hpp>

TEMPLATE_TEST_CASE(
    "every strategy proposes what can be run, and keeps the order when it is told to", "", Anneal,
    ChainDp, Exhaustive, MinCut, MuTwo, MuTwoExact, Portfolio) {
  const bool keep_order = GENERATE(true, false);
  const std::size_t length = GENERATE(2u, 5u, 8u);
  CAPTURE(keep_order, length);
  const StepGraph graph = testing::chain_step(length);
  const Bytes peak = simulate(graph, own_order(graph)).peak;
  const TestType strategy;
  CHECK(std::ranges::count(strategy_names, strategy.name()) == 1);
  const Schedule proposed = strategy.schedule(
      graph, {.budget = Bytes{peak.count * 7 / 10}, .keep_order = keep_order, .effort = 0.05});
  const Simulation s = simulate(graph, proposed);
  CHECK(s.valid);
  CHECK(s.peak <= peak);
  if (keep_order) CHECK(keeps_order(graph, proposed));
}

TEMPLATE_TEST_CASE("every strategy gives the same plan for the same seed", "", Anneal, ChainDp,
                   MinCut, MuTwo, MuTwoExact, Portfolio) {
  const StepGraph graph = testing::resnet_step({.blocks = 2});
  const Bytes floor = floor_bytes(graph), peak = simulate(graph, own_order(graph)).peak;
  const PlanRequest request{
      .budget = floor + Bytes{(peak - floor).count / 2}, .seed = 3, .effort = 0.05};
  CHECK(TestType{}.schedule(graph, request) == TestType{}.schedule(graph, request));
}

TEST_CASE("a strategy that nobody knows is refused with those that there are") {
  CHECK(
      refusal([] { check_strategy("best"); }) ==
      "bad argument: strategy 'best': unknown; there are mu-two, mu-two-exact, min-cut, chain-dp, "
      "anneal, exhaustive, portfolio");
  CHECK(refusal([] { check_strategy("anneal"); }) == "accepted");
}
