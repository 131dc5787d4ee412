#include <reprise/plan/search/penalised_search.hpp>

#include <reprise/graph/simulate.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;

namespace {

struct Found {
  Schedule schedule{};
  std::int64_t budget = 0;
};

Found search(const StepGraph& graph, bool keep_order, std::uint64_t seed) {
  const ScheduleFacts facts{graph};
  SearchRules rules;
  rules.budget = simulate(graph, own_order(graph)).peak.count * 9 / 10;
  rules.keep_order = keep_order;
  PenalisedSearch s{facts, own_order(graph), rules, seed};
  s.run(100'000, 3, PenalisedSearch::first_price(facts, rules.budget));
  REQUIRE(s.found());
  return {s.best(), rules.budget};
}

}  // namespace

TEST_CASE("a search through schedules that do not fit gives back one that does") {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    Rng rng{seed};
    const StepGraph graph = layered_graph(rng, {.nodes = 250});
    const Found kept = search(graph, true, seed), free = search(graph, false, seed);
    const Simulation a = simulate(graph, kept.schedule), b = simulate(graph, free.schedule);
    REQUIRE(a.valid);
    REQUIRE(b.valid);
    CHECK(a.peak.count <= kept.budget);
    CHECK(b.peak.count <= free.budget);
    CHECK(keeps_order(graph, kept.schedule));
  }
}

TEST_CASE("the same seed searches the same way") {
  Rng rng{4};
  const StepGraph graph = layered_graph(rng, {.nodes = 80});
  CHECK(search(graph, true, 9).schedule == search(graph, true, 9).schedule);
}

TEST_CASE("nodes that are kept never run again in a penalised search") {
  Rng rng{2};
  const StepGraph graph = layered_graph(rng, {.nodes = 100});
  const ScheduleFacts facts{graph};
  SearchRules rules;
  rules.budget = simulate(graph, own_order(graph)).peak.count * 9 / 10;
  rules.keep.assign(graph.node_count(), false);
  for (std::size_t n = 0; n < graph.node_count(); n += 3) rules.keep[n] = true;
  PenalisedSearch s{facts, own_order(graph), rules, 1};
  s.run(100'000, 3, PenalisedSearch::first_price(facts, rules.budget));
  REQUIRE(s.found());
  const auto counts = run_counts(graph, s.best());
  for (std::size_t n = 0; n < graph.node_count(); n += 3) CHECK(counts[n] == 1);
}
