// Where each block of a program lies in the arena.

#include <reprise_test/lineages.hpp>

#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/libtorch/replay/arena_layout.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::replaying;
using namespace reprise::rewriting;
using namespace reprise::testing;
using namespace reprise::literals;

namespace {

constexpr Bytes whole{4096 + 64};  ///< a block with its header

/// x ─▶ h ─▶ r ─▶ q, and last(h, q): 4096 bytes each, at most three at once.
struct Chain : HandMadeStep {
  Made x = input(), h = call({x}), r = call({h}), q = call({r}), last = call({h, q});
  AllocationTrace trace{};

  Chain() {
    trace.ops.resize(4);
    for (AllocationTrace::Op& op : trace.ops) op = {true, {{.bytes = 4096, .result = 0}}};
  }
  ArenaLayout layout(std::size_t results = 0, Bytes enough = {}) {
    const StepGraph graph = graph_of(recording(), "chain");
    return layout_arena(recording(), rewrite(graph, own_order(graph)), trace, results, enough);
  }
};

}  // namespace

TEST_CASE("blocks that live at once lie apart, and a dead one's place is used again",
          "[arena_layout]") {
  Chain chain;
  const ArenaLayout layout = chain.layout();
  REQUIRE(layout.blocks.size() == 4);
  CHECK(layout.first == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(layout.planned == 4);
  CHECK(layout.height == Bytes{3 * whole.count});
  CHECK(layout.counted == Bytes{3 * 4096});
  CHECK(layout.outside == 0_B);
  CHECK(layout.reserved() == Bytes{3 * 4096});
  const auto at = [&](std::size_t b) { return layout.blocks[b].offset; };
  CHECK(at(3) == at(1));  // r is dead when the last one comes
  for (const auto& [a, b] : {std::pair{0, 1}, {0, 2}, {1, 2}, {0, 3}, {2, 3}})
    CHECK(std::abs(at(static_cast<std::size_t>(a)) - at(static_cast<std::size_t>(b))) >=
          whole.count);
  const auto before = layout.before[3];
  REQUIRE(before.size() == 1);
  CHECK(before[0] == 1);
  CHECK(layout.before[2].empty());
}

TEST_CASE("what the step returns lies outside", "[arena_layout]") {
  Chain chain;
  chain.recording().outputs.push_back(chain.last.value);
  const ArenaLayout layout = chain.layout(1);
  CHECK(layout.blocks[3].offset == PlannedBlock::outside);
  CHECK(layout.planned == 3);
  CHECK(layout.outside == 4096_B);
  CHECK(layout.reserved() == Bytes{4 * 4096});
  CHECK(chain.layout(0).planned == 4);  // a gradient, say
}

TEST_CASE("a workspace has a place until it is freed", "[arena_layout]") {
  Chain chain;
  auto& of_q = chain.trace.ops[2].allocations;
  of_q.insert(of_q.begin(), TracedAllocation{.bytes = 4096, .dead_at = 1});
  ArenaLayout layout = chain.layout();
  CHECK(layout.blocks.size() == 5);
  CHECK(layout.height == Bytes{3 * whole.count});
  CHECK(layout.blocks[2].offset == layout.blocks[3].offset);  // freed before q's own was taken
  of_q[0].dead_at = TracedAllocation::at_the_end;
  layout = chain.layout();
  CHECK(layout.height == Bytes{4 * whole.count});
}

TEST_CASE("an op whose allocations were not seen has no blocks", "[arena_layout]") {
  Chain chain;
  chain.trace.ops[1].seen = false;
  const ArenaLayout layout = chain.layout();
  CHECK(layout.first == std::vector<std::uint32_t>{0, 1, 1, 2, 3});
  CHECK(layout.planned == 3);
}
