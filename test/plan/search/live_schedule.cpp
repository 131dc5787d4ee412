#include <reprise/plan/search/live_schedule.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

#include <reprise/graph/simulate.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;

TEST_CASE(
    "an edited schedule knows its peak: 100,000 random edits, all features, as from scratch") {
  std::size_t edits = 0, valid = 0;
  for (std::uint64_t seed = 1; edits < 100'000; ++seed) {
    CAPTURE(seed);
    Rng rng{seed};
    const StepGraph graph =
        random_graph(rng, {.nodes = 1 + rng.below(20), .views = 0.3, .overwrites = 0.25});
    const ScheduleFacts facts{graph};
    Schedule s = own_order(graph);
    LiveSchedule live{facts, s};
    const auto at = [&](std::size_t i) {
      auto x = live.next(live.start());
      while (i-- > 0) x = live.next(x);
      return x;
    };
    for (int e = 0; e < 200; ++e, ++edits) {
      const Schedule before = s;
      const bool insert = s.empty() || rng.chance(s.size() < graph.node_count() + 12 ? 0.6 : 0.4);
      const std::size_t place = rng.below(s.size() + (insert ? 1 : 0));
      const NodeId node = insert ? NodeId{rng.below(graph.node_count())} : s[place];
      LiveSchedule::Occurrence x = 0;
      if (insert) {
        x = live.insert(node, at(place));
        s.insert(s.begin() + static_cast<std::ptrdiff_t>(place), node);
      } else {
        live.remove(at(place));
        s.erase(s.begin() + static_cast<std::ptrdiff_t>(place));
      }
      const Simulation exact = simulate(graph, s);
      const bool same = live.valid() == exact.valid &&
                        (!exact.valid || live.peak() == exact.peak) && live.size() == s.size();
      if (!same) {
        CAPTURE(e, live.valid(), exact.valid, live.peak().count, exact.peak.count);
        FAIL("incremental and exact differ");
      }
      valid += exact.valid ? 1 : 0;
      if (exact.valid || rng.chance(0.05)) continue;
      if (insert) live.remove(x);
      else live.insert(node, at(place));
      s = before;
    }
    REQUIRE(live.schedule() == s);
  }
  CHECK(valid > 10'000);
}

TEST_CASE("many insertions at one place make room for themselves") {
  const StepGraph graph = chain_step(30);
  const ScheduleFacts facts{graph};
  LiveSchedule live{facts, own_order(graph)};
  const auto last = live.previous(live.end());
  for (int i = 0; i < 500; ++i) live.insert(NodeId{0}, last);
  CHECK(live.valid());
  CHECK(live.size() == 560);
  CHECK(live.peak() == simulate(graph, live.schedule()).peak);
}
