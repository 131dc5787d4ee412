#include <reprise/plan/search/recompute_search.hpp>

#include <reprise/graph/simulate.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;

TEST_CASE("the greedy search stays inside its work where the budget is hard to reach") {
  // Cones are long here and most drops fail: one look at the peak can cost as much as a whole
  // search is meant to.
  const StepGraph graph = testing::transformer_step({.layers = 12, .batch = 2});
  const ScheduleFacts facts{graph};
  const std::int64_t floor = floor_bytes(graph).count,
                     peak = simulate(graph, own_order(graph)).peak.count;
  RecomputeSearch search{
      facts, own_order(graph), {.budget = floor + (peak - floor) / 20, .keep_order = true}, 1};
  CHECK_FALSE(search.reach_budget(100'000));
  CHECK(search.work() >= 100'000);
  CHECK(search.work() < 150'000);
  CHECK(search.live().valid());
}

TEST_CASE("the greedy search reaches a budget that is easy to reach") {
  const StepGraph graph = testing::chain_step(40);
  const ScheduleFacts facts{graph};
  const std::int64_t peak = simulate(graph, own_order(graph)).peak.count;
  RecomputeSearch search{facts, own_order(graph), {.budget = peak * 6 / 10, .keep_order = true}, 1};
  REQUIRE(search.reach_budget(1'000'000));
  const Simulation found = simulate(graph, search.live().schedule());
  CHECK(found.valid);
  CHECK(found.peak.count <= peak * 6 / 10);
}
