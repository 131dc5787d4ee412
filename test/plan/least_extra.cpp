#include <reprise/plan/least_extra.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::planning;
using namespace reprise::testing;

TEST_CASE("the cheapest share of makers that frees what is over bounds the extra time") {
  GraphBuilder b{"two idle"};
  const ValueId a = b.add_value({.id = 0, .bytes = Bytes{80}}),
                c = b.add_value({.id = 1, .bytes = Bytes{40}});
  const ValueId big = b.add_value({.id = 2, .bytes = Bytes{100}}),
                out = b.add_value({.id = 3, .bytes = Bytes{1}});
  b.add_node({.id = 0, .time = {10}}, {}, {a});
  b.add_node({.id = 1, .time = {20}}, {}, {c});
  b.add_node({.id = 2, .time = {5}}, {}, {big});
  b.add_node({.id = 3, .time = {5}}, {a, c}, {out});
  b.add_output(out);
  const StepGraph graph = std::move(b).build();
  const Simulation own = simulate(graph, own_order(graph));
  REQUIRE(own.peak == Bytes{220});
  PlanRequest request{.budget = Bytes{121}, .keep_order = true};
  const ExtraTimeBound relaxed = least_extra_time(graph, request, own, 0);
  CHECK(relaxed.least.count == Approx(10 + 20 * 19.0 / 40));
  CHECK_FALSE(relaxed.exact);
  const ExtraTimeBound exact = least_extra_time(graph, request, own);
  CHECK(exact.exact);
  CHECK(exact.least.count == Approx(30));
}

TEST_CASE("the relaxation is never above the optimum") {
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    Rng rng{seed};
    const StepGraph graph = random_graph(rng, {.nodes = 9});
    const Simulation own = simulate(graph, own_order(graph));
    if (!own.valid) continue;
    for (int percent : {90, 75, 60}) {
      PlanRequest request{.budget = Bytes{own.peak.count * percent / 100}, .keep_order = true};
      if (request.budget <= Bytes{0}) continue;
      const auto best = Exhaustive{50'000}.search(graph, request);
      if (best.verdict != Exhaustive::Verdict::optimal) continue;
      ++compared;
      const double extra = total_time(graph, best.schedule).count - own.time.count;
      CHECK(least_extra_time(graph, request, own, 0).least.count <= extra + 1e-9);
    }
  }
  CHECK(compared > 20);
}
