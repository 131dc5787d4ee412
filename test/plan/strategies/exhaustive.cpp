#include <reprise/plan/strategies/exhaustive.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

#include <reprise/plan/planner.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;

TEST_CASE("no search beats the exhaustive one, and what it finds is valid and fits") {
  int cases = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Rng rng{seed};
    const StepGraph graph =
        random_graph(rng, {.nodes = 6 + rng.below(6), .views = 0.15, .overwrites = 0.15});
    const Simulation own = simulate(graph, own_order(graph));
    if (!own.valid) continue;
    const bool keep = seed % 2 == 0;
    const auto least =
        least_feasible_peak(graph, {.keep_order = keep}, floor_bytes(graph), own.peak, 200'000);
    if (!least || *least == own.peak) continue;
    for (int part : {0, 1, 2, 3}) {
      const Bytes budget{least->count + (own.peak.count - least->count) * part / 4};
      const PlanRequest request{.budget = budget, .keep_order = keep, .effort = 0.02};
      const auto exact = Exhaustive{}.search(graph, request);
      REQUIRE(exact.verdict == Exhaustive::Verdict::optimal);
      const Simulation s = simulate(graph, exact.schedule);
      REQUIRE(s.valid);
      CHECK(s.peak <= budget);
      if (keep) CHECK(keeps_order(graph, exact.schedule));
      const Schedule heuristic =
          Anneal{Anneal::Options{.exact_states = 0}}.schedule(graph, request);
      const Simulation h = simulate(graph, heuristic);
      REQUIRE(h.valid);
      if (h.peak <= budget) CHECK(h.time.count >= s.time.count - 1e-9);
      CHECK(simulate(graph, Anneal{}.schedule(graph, request)).time.count == Approx(s.time.count));
      ++cases;
    }
  }
  CHECK(cases > 60);
}
