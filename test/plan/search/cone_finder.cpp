#include <reprise/plan/search/cone_finder.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;

namespace {

using Nodes = std::vector<std::uint32_t>;

// A chain of five nodes and its backward pass, in the graph's own order.
struct Chain {
  StepGraph graph = testing::chain_step(5);
  ScheduleFacts facts{graph};
  LiveSchedule live{facts, own_order(graph)};

  [[nodiscard]] std::uint32_t slot_of(std::uint32_t n) const {
    return live.slot(live.occurrences(n).front());
  }
  [[nodiscard]] LiveSchedule::Instance storage_of(std::uint32_t n) const {
    return live.storage_of(live.made_by(live.occurrences(n).front(), 0));
  }
};

constexpr auto ignore = [](LiveSchedule::Instance, std::uint32_t) {};

}  // namespace

TEST_CASE("a cone serves the next use, and has what serve asks for") {
  const Chain c;
  ConeFinder cone{c.facts, 10};
  std::size_t seen = 0;
  REQUIRE(cone.start(c.live, c.storage_of(2), c.slot_of(4), [&](auto, std::uint32_t made) {
    CHECK(made == c.slot_of(2));
    ++seen;
  }));
  CHECK(seen == 1);
  CHECK(cone.at == c.live.next_read(c.storage_of(2), c.slot_of(4)));
  CHECK(cone.at > c.slot_of(4));

  // all inputs are kept
  REQUIRE(cone.close({}, [](std::uint32_t, std::uint32_t) { return true; }));
  CHECK(cone.nodes == Nodes{2});
  CHECK(cone.ticks == c.facts.ticks(2));
  CHECK(cone.has(2));
  CHECK_FALSE(cone.has(1));

  REQUIRE(cone.start(c.live, c.storage_of(2), c.slot_of(4), ignore));
  REQUIRE(cone.close({}, [&](std::uint32_t v, std::uint32_t reader) {
    CHECK(c.graph.values()[v].producer == NodeId{reader - 1});
    if (!c.graph.values()[v].persistent) cone.need(v);
    return true;
  }));
  CHECK(cone.nodes == Nodes{0, 1, 2});
  CHECK(cone.ticks == c.facts.ticks(0) + c.facts.ticks(1) + c.facts.ticks(2));
  CHECK(cone.work() == 4);
}

TEST_CASE(
    "there is no cone for what is used at the place, may not run again, is too much, or that serve "
    "gives up") {
  const Chain c;
  const auto keep_all = [](std::uint32_t, std::uint32_t) { return true; };
  ConeFinder cone{c.facts, 1};
  CHECK_FALSE(cone.start(c.live, c.storage_of(2), c.slot_of(2), ignore));
  CHECK_FALSE(cone.start(c.live, c.storage_of(2), c.slot_of(3), ignore));  // reads it

  const auto begin = [&] { REQUIRE(cone.start(c.live, c.storage_of(2), c.slot_of(4), ignore)); };
  begin();
  CHECK(cone.close({}, keep_all));
  begin();
  // two nodes, and one is allowed
  CHECK_FALSE(cone.close({}, [&](std::uint32_t v, std::uint32_t) { return cone.need(v), true; }));
  begin();
  CHECK_FALSE(cone.close({}, [](std::uint32_t, std::uint32_t) { return false; }));
  SearchRules rules;
  rules.keep.assign(c.graph.node_count(), false);
  rules.keep[2] = true;
  begin();
  CHECK_FALSE(cone.close(rules, keep_all));
}
