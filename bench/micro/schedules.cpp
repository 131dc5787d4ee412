// The schedule that is edited and evaluated edit by edit, and the search that edits it.

#include <cstdint>
#include <string>
#include <vector>

#include <reprise/graph/simulate.hpp>
#include <reprise/plan/search/penalised_search.hpp>
#include <reprise_test/random_graphs.hpp>

#include "micro.hpp"

namespace micro {

namespace {

using namespace reprise;
using namespace reprise::planning;

// A recomputation inserted at a random place, the peak read, taken out again.
void measure_edits(ankerl::nanobench::Bench& bench, std::size_t blocks) {
  const StepGraph graph = testing::resnet_step({.blocks = blocks});
  const ScheduleFacts facts{graph};
  LiveSchedule live{facts, own_order(graph)};
  std::vector<LiveSchedule::Occurrence> all;
  for (auto x = live.next(live.start()); x != live.end(); x = live.next(x)) all.push_back(x);
  testing::Rng rng{1};
  bench.batch(2).run("insert and remove, " + std::to_string(graph.node_count()) + " nodes", [&] {
    const std::size_t n = rng.below(graph.node_count() / 2);
    const auto x = live.insert(NodeId{n}, all[n + 1 + rng.below(graph.node_count() - n - 1)]);
    doNotOptimizeAway(live.peak().count);
    live.remove(x);
  });
}

// A whole search of a fixed amount of work: a unit of work is about one edit.
void measure_search(ankerl::nanobench::Bench& bench, std::size_t blocks) {
  const StepGraph graph = testing::resnet_step({.blocks = blocks});
  const ScheduleFacts facts{graph};
  const Schedule order = own_order(graph);
  const std::int64_t floor = floor_bytes(graph).count;
  const SearchRules rules{.budget = floor + (simulate(graph, order).peak.count - floor) / 2};
  const double price = PenalisedSearch::first_price(facts, rules.budget);
  constexpr std::uint64_t work = 20'000;
  bench.batch(work).run("PenalisedSearch, half of what can be saved, " +
                            std::to_string(graph.node_count()) + " nodes",
                        [&] {
                          PenalisedSearch search{facts, order, rules, 1};
                          search.run(work, 1.0, price);
                          doNotOptimizeAway(search.best().size());
                        });
}

}  // namespace

void measure_schedules() {
  auto edits = table("live schedule", "edit");
  for (const std::size_t blocks : {16u, 475u}) measure_edits(edits, blocks);
  auto search = table("search moves", "work");
  for (const std::size_t blocks : {16u, 64u}) measure_search(search, blocks);
}

}  // namespace micro
