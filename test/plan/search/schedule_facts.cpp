#include <reprise/plan/search/schedule_facts.hpp>

#include <span>
#include <utility>
#include <vector>

#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

#include <reprise/graph/builder.hpp>

using namespace reprise;
using namespace reprise::planning;
using reprise_test::toy_graph;

namespace {

std::vector<std::uint32_t> list(std::span<const std::uint32_t> values) {
  return {values.begin(), values.end()};
}

}  // namespace

TEST_CASE("what the nodes of the toy graph read, without what is there to the end") {
  const StepGraph graph = toy_graph();
  const ScheduleFacts facts{graph};
  CHECK(list(facts.reads(0)).empty());  // norm reads x, which nobody overwrites
  CHECK(list(facts.reads(1)) == std::vector<std::uint32_t>{2});
  CHECK(list(facts.reads(2)) == std::vector<std::uint32_t>{3});
  CHECK(list(facts.reads(3)).empty());
  CHECK(list(facts.reads(5)) == std::vector<std::uint32_t>{4});
}

TEST_CASE("what is made out of what") {
  const StepGraph graph = toy_graph();
  const ScheduleFacts facts{graph};
  const auto relu = facts.outputs(1), flat = facts.outputs(2);
  REQUIRE(relu.size() == 1);
  CHECK(relu[0].value == 3);
  CHECK(relu[0].target == 2);
  CHECK(relu[0].overwrites);
  CHECK_FALSE(relu[0].target_here);
  CHECK(facts.overwrites(1, 2));
  CHECK_FALSE(facts.overwrites(2, 3));
  CHECK(flat[0].target == 3);
  CHECK_FALSE(flat[0].overwrites);
  CHECK(facts.is_viewed(2));
  CHECK(facts.is_viewed(3));
  CHECK_FALSE(facts.is_viewed(5));
  CHECK(facts.is_overwritten(graph.value(ValueId{2}).storage.index));
  CHECK_FALSE(facts.tracked(ValueId{0}));
}

TEST_CASE("an output that another output of its node overwrites is never read as such") {
  GraphBuilder b{"siblings"};
  const ValueId x = b.add_value(
      {.id = 0, .name = "x", .bytes = Bytes{8}, .role = Role::input, .persistent = true});
  const ValueId first = b.add_value({.id = 1, .name = "first", .bytes = Bytes{16}});
  const ValueId second = b.add_value({.id = 2, .name = "second", .overwrites = first});
  b.add_node({.id = 0, .name = "both", .op = "op"}, {x}, {second, first});
  b.add_output(second);
  const StepGraph graph = std::move(b).build();
  const ScheduleFacts facts{graph};
  const auto made = facts.outputs(0);
  REQUIRE(made.size() == 2);
  CHECK(made[0].value == first.index);  // before what is made out of it, whatever the node's order
  CHECK_FALSE(made[0].published);
  CHECK(made[1].target_here);
  CHECK(made[1].published);
}

TEST_CASE("who updates a value, and how many updates its readers stand behind") {
  const StepGraph toy = toy_graph();
  const ScheduleFacts facts{toy};
  REQUIRE(facts.all_updates().size() == 1);
  CHECK(facts.all_updates()[0].value == 1);
  CHECK(facts.all_updates()[0].updaters == std::vector<std::uint32_t>{0});
  CHECK(facts.all_updates()[0].readers.empty());
  CHECK(list(facts.updates_by(0)) == std::vector<std::uint32_t>{0});
  CHECK(facts.updates_by(1).empty());
}

TEST_CASE("ticks are times as whole numbers") {
  const StepGraph graph = toy_graph();
  const ScheduleFacts facts{graph};
  CHECK(facts.ticks(2) == 0);
  CHECK(static_cast<double>(facts.ticks(0)) / facts.ticks_per_us() == Approx(120.5));
  CHECK(static_cast<double>(facts.ticks(1)) / facts.ticks_per_us() == Approx(10));
}
