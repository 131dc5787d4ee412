#include <reprise/plan/strategies/chain_dp.hpp>

#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::planning;

TEST_CASE("chain-dp finds the optimum of short chains") {
  for (std::size_t length : {4u, 5u, 6u, 7u}) {
    const StepGraph graph = testing::chain_step(length);
    const Bytes own = simulate(graph, own_order(graph)).peak;
    const auto least =
        least_feasible_peak(graph, {.keep_order = true}, floor_bytes(graph), own, 400'000);
    REQUIRE(least);
    for (Bytes budget = *least; budget < own; budget += Bytes{50}) {
      CAPTURE(length, budget.count);
      const auto exact = Exhaustive{}.search(graph, {.budget = budget, .keep_order = true});
      REQUIRE(exact.verdict == Exhaustive::Verdict::optimal);
      const Simulation found =
          simulate(graph, ChainDp{}.schedule(graph, {.budget = budget, .keep_order = true}));
      CHECK(found.valid);
      CHECK(found.peak <= budget);
      CHECK(found.time.count == total_time(graph, exact.schedule).count);
    }
  }
}

TEST_CASE("chain-dp finds the optimum of three in four short chains of unequal nodes") {
  int cases = 0, optimal = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    testing::Rng rng{seed};
    std::vector<double> times;
    std::vector<std::int64_t> sizes;
    for (int k = 0; k < 6; ++k) {
      times.push_back(1 + static_cast<double>(rng.below(30)));
      sizes.push_back(50 + static_cast<std::int64_t>(rng.below(200)));
    }
    const StepGraph graph = testing::chain_step(6, times, sizes);
    const Bytes own = simulate(graph, own_order(graph)).peak;
    const auto least =
        least_feasible_peak(graph, {.keep_order = true}, floor_bytes(graph), own, 400'000);
    REQUIRE(least);
    for (int part = 0; part < 4; ++part) {
      const Bytes budget{least->count + (own.count - least->count) * part / 4};
      const auto exact = Exhaustive{}.search(graph, {.budget = budget, .keep_order = true});
      if (exact.verdict != Exhaustive::Verdict::optimal) continue;
      const Simulation found =
          simulate(graph, ChainDp{}.schedule(graph, {.budget = budget, .keep_order = true}));
      CHECK(found.valid);
      ++cases;
      optimal += found.peak <= budget &&
                         found.time.count <= total_time(graph, exact.schedule).count * (1 + 1e-9)
                     ? 1
                     : 0;
    }
  }
  INFO(optimal << " of " << cases);
  CHECK(cases >= 150);
  CHECK(optimal * 4 >= cases * 3);
}

TEST_CASE("chain-dp keeps parts of blocks: better than all or nothing") {
  const StepGraph graph = testing::resnet_step({.blocks = 12});
  const Bytes own = simulate(graph, own_order(graph)).peak;
  const PlanRequest request{.budget = Bytes{own.count * 7 / 10}, .keep_order = true};
  const Simulation parts = simulate(graph, ChainDp{}.schedule(graph, request));
  const Simulation whole =
      simulate(graph, ChainDp{ChainDp::Options{.ways = 1}}.schedule(graph, request));
  REQUIRE(parts.peak <= request.budget);
  CHECK((whole.peak > request.budget || parts.time < whole.time));
}

TEST_CASE("chain-dp leaves alone what is no chain") {
  testing::Rng rng{1};
  const StepGraph graph = testing::layered_graph(rng, {.nodes = 60});
  CHECK(ChainDp{}.schedule(graph, {.budget = floor_bytes(graph)}) == own_order(graph));
}
