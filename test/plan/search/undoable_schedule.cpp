#include <reprise/plan/search/undoable_schedule.hpp>

#include <reprise/graph/simulate.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy.hpp>

using reprise::testing::Rng;

TEST_CASE("the header's example: what is taken out takes along what ran for it alone") {
  const StepGraph graph = toy_graph();
  const ScheduleFacts facts{graph};
  UndoableSchedule s{facts, toy_schedule()};
  const std::size_t mark = s.mark();
  s.take_out(s.live().occurrences(2).back(), true);  // flat; relu and norm ran again for it
  CHECK(s.live().schedule() == own_order(graph));
  CHECK(s.repeated().empty());
  s.undo_to(mark);
  CHECK(s.live().schedule() == toy_schedule());
  CHECK(std::vector(s.repeated().begin(), s.repeated().end()).size() == 3);
}

TEST_CASE("a run that somebody reads is not dead, and a first run is not where order is kept") {
  const StepGraph graph = toy_graph();
  const ScheduleFacts facts{graph};
  UndoableSchedule s{facts, nodes({0, 1, 2, 3, 4, 0, 1, 2, 2, 5})};
  const auto flats = s.live().occurrences(2);
  REQUIRE(flats.size() == 3);
  CHECK_FALSE(s.is_dead(flats[2], true));  // read by grad
  CHECK(s.is_dead(flats[1], true));
  CHECK_FALSE(s.is_dead(flats[0], true));
  CHECK(s.is_dead(flats[0], false));
}

TEST_CASE("whatever is edited, undoing gives the schedule, its peak and its repeats back") {
  const auto seed = GENERATE(range<std::uint64_t>(1, 41));
  CAPTURE(seed);
  Rng rng{seed};
  const StepGraph graph = testing::random_graph(rng, {.nodes = 12});
  const ScheduleFacts facts{graph};
  UndoableSchedule s{facts, own_order(graph)};
  const Bytes peak = s.live().peak();
  for (int round = 0; round < 20; ++round) {
    const std::size_t mark = s.mark();
    for (std::size_t edits = 1 + rng.below(6); edits > 0; --edits) {
      const auto n = static_cast<std::uint32_t>(rng.below(graph.node_count()));
      const auto runs = s.live().occurrences(n);
      if (runs.size() > 1 && rng.chance(0.5)) s.take_out(runs.back(), true);
      else s.insert(n, s.live().end());
    }
    s.undo_to(mark);
    REQUIRE(s.live().schedule() == own_order(graph));
    REQUIRE(s.live().peak() == peak);
    REQUIRE(s.repeated().empty());
  }
}

TEST_CASE("random numbers of a search are the same everywhere") {
  SearchRandom random{1};
  const std::uint64_t first = random(), second = random();
  SearchRandom again{1};
  CHECK(again() == first);
  CHECK(again() == second);
  CHECK(SearchRandom{2}() != first);
}
