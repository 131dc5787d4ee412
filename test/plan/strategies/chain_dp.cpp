#include <reprise/plan/strategies/chain_dp.hpp>

#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;

TEST_CASE("chain-dp fits wherever anything fits on short chains") {
  for (std::size_t length : {4u, 5u, 6u}) {
    const StepGraph graph = testing::chain_step(length);
    const Bytes own = simulate(graph, own_order(graph)).peak;
    const auto least = least_feasible_peak(graph, {.keep_order = true}, floor_bytes(graph), own, 400'000);
    REQUIRE(least);
    for (Bytes budget = *least; budget < own; budget += Bytes{(own - *least).count / 3}) {
      CAPTURE(length, budget.count);
      const auto exact = Exhaustive{}.search(graph, {.budget = budget, .keep_order = true});
      REQUIRE(exact.verdict == Exhaustive::Verdict::optimal);
      const Simulation found = simulate(graph, ChainDp{}.schedule(graph, {.budget = budget, .keep_order = true}));
      CHECK(found.valid);
      CHECK(found.peak <= budget);
      CHECK(found.time.count >= total_time(graph, exact.schedule).count * (1 - 1e-9));
    }
  }
}

TEST_CASE("chain-dp leaves alone what is no chain") {
  testing::Rng rng{1};
  const StepGraph graph = testing::layered_graph(rng, {.nodes = 60});
  CHECK(ChainDp{}.schedule(graph, {.budget = floor_bytes(graph)}) == own_order(graph));
}
