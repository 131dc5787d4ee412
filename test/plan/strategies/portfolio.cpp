#include <reprise/plan/strategies/portfolio.hpp>

#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy.hpp>

TEST_CASE("a portfolio reports every strategy, and its best is no slower than any that fits") {
  const StepGraph graph = testing::chain_step(8);
  const Bytes budget{simulate(graph, own_order(graph)).peak.count * 7 / 10};
  const PlanRequest request{.budget = budget, .keep_order = true, .effort = 0.05};
  const PortfolioReport report = Portfolio{}.report(graph, request);
  std::vector<std::string> names;
  for (const auto& entry : report.entries) names.push_back(entry.strategy);
  CHECK(names == std::vector<std::string>{"anneal", "mu-two-exact", "chain-dp", "min-cut", "mu-two",
                                          "exhaustive"});
  const auto& best = report.entries[report.best];
  REQUIRE(best.valid);
  CHECK(best.peak <= budget);
  for (const auto& entry : report.entries) {
    CAPTURE(entry.strategy);
    if (entry.valid && entry.peak <= budget) CHECK(best.time <= entry.time);
  }
  CHECK(Portfolio{}.schedule(graph, request) == best.schedule);
}

TEST_CASE("the number of threads does not change the plan") {
  const StepGraph graph = testing::chain_step(24);
  const Bytes budget{simulate(graph, own_order(graph)).peak.count * 6 / 10};
  const auto plan = [&](unsigned threads) {
    // more threads try more seeds; the seeds that both try must give the same
    const auto report = Portfolio{}.report(
        graph, {.budget = budget, .keep_order = true, .threads = threads, .effort = 0.05});
    std::vector<Schedule> first;
    for (std::size_t i = 0; i < 5; ++i) first.push_back(report.entries[i].schedule);
    return first;
  };
  CHECK(plan(1) == plan(2));
}
