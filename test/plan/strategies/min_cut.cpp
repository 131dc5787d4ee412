#include <reprise/plan/strategies/min_cut.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;

TEST_CASE("min-cut recomputes what is cheap for its bytes and keeps what is dear") {
  // A chain whose third op is a hundred times dearer than the others: nothing needs it again at a
  // mild budget.
  std::vector<double> times(12, 10);
  times[2] = 1000;
  const StepGraph graph = testing::chain_step(12, times);
  const Bytes own = simulate(graph, own_order(graph)).peak;
  const Schedule schedule =
      MinCut{}.schedule(graph, {.budget = Size{{}, 85, true}.resolve(own), .keep_order = true});
  const Simulation found = simulate(graph, schedule);
  REQUIRE(found.valid);
  CHECK(found.peak < own);
  CHECK(recomputations(graph, schedule) > 0);
  CHECK(run_counts(graph, schedule)[2] == 1);
}

TEST_CASE("min-cut recomputes less where the budget allows more") {
  const StepGraph graph = testing::resnet_step({.blocks = 6});
  const Bytes own = simulate(graph, own_order(graph)).peak, floor = floor_bytes(graph);
  const auto extra = [&](int percent) {
    const PlanRequest request{.budget = floor + Bytes{(own - floor).count * percent / 100},
                              .keep_order = true};
    return simulate(graph, MinCut{}.schedule(graph, request)).time.count;
  };
  CHECK(extra(90) <= extra(70));
  CHECK(extra(70) <= extra(50));
  CHECK(extra(90) < extra(50));
}
