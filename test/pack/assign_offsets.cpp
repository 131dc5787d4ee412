#include <reprise/pack/assign_offsets.hpp>
#include <reprise/plan/buffers_of.hpp>

#include <map>

#include <reprise_test/catch.hpp>

#include <limits>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::planning;
using namespace reprise::testing;
using namespace reprise::literals;

namespace {

bool overlap(const Buffer& a, Bytes at_a, const Buffer& b, Bytes at_b) {
  const bool in_time = std::max(a.lower, b.lower) < std::min(a.upper, b.upper);
  return in_time && at_a < at_b + b.size && at_b < at_a + a.size;
}

}  // namespace

TEST_CASE("buffers that are never alive together share their place") {
  const std::vector<Buffer> buffers{{0, 3, 4_B}, {1, 5, 2_B}, {3, 6, 4_B}};
  const ArenaPlan plan = assign_offsets(buffers);
  CHECK(plan.load == 6_B);
  CHECK(plan.height == 6_B);
  CHECK(plan.offsets[0] == plan.offsets[2]);
}

TEST_CASE("no two buffers overlap in time and place, and offsets are aligned") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Rng rng{seed};
    std::vector<Buffer> buffers;
    for (std::size_t i = 0, n = 1 + rng.below(150); i < n; ++i) {
      const auto lower = static_cast<std::int64_t>(rng.below(60));
      buffers.push_back({lower, lower + static_cast<std::int64_t>(rng.below(30)),
                         Bytes{static_cast<std::int64_t>(rng.below(100))}});
    }
    const ArenaPlan plan = assign_offsets(buffers, {.alignment = 16_B});
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      REQUIRE(plan.offsets[i].count % 16 == 0);
      REQUIRE((buffers[i].lower == buffers[i].upper ||
               plan.offsets[i] + buffers[i].size <= plan.height));
      for (std::size_t j = 0; j < i; ++j)
        REQUIRE_FALSE(overlap(buffers[i], plan.offsets[i], buffers[j], plan.offsets[j]));
    }
    CHECK(plan.height >= plan.load);
  }
}

TEST_CASE("twenty thousand long lives are packed closely, and none overlaps another") {
  const std::uint64_t seed = 1;
  CAPTURE(seed);
  Rng rng{seed};
  std::vector<Buffer> buffers;
  for (int i = 0; i < 20'000; ++i) {
    const auto lower = static_cast<std::int64_t>(rng.below(20'000));
    buffers.push_back({lower, lower + 1 + static_cast<std::int64_t>(rng.below(1000)),
                       Bytes{1 + static_cast<std::int64_t>(rng.below(1000))}});
  }
  const ArenaPlan plan = assign_offsets(buffers);
  CHECK(plan.ratio() <= 1.1);
  // Moment by moment, independently of how they were placed: what is alive, by offset, must not
  // touch its neighbour.
  std::vector<std::size_t> starts(buffers.size()), ends(buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) starts[i] = ends[i] = i;
  std::sort(starts.begin(), starts.end(),
            [&](std::size_t a, std::size_t b) { return buffers[a].lower < buffers[b].lower; });
  std::sort(ends.begin(), ends.end(),
            [&](std::size_t a, std::size_t b) { return buffers[a].upper < buffers[b].upper; });
  std::map<std::int64_t, std::int64_t> alive;
  std::size_t gone = 0, overlaps = 0;
  for (std::size_t i : starts) {
    for (; buffers[ends[gone]].upper <= buffers[i].lower; ++gone)
      alive.erase(plan.offsets[ends[gone]].count);
    const std::int64_t low = plan.offsets[i].count, high = low + buffers[i].size.count;
    const auto next = alive.lower_bound(low);
    if (next != alive.end() && next->first < high) ++overlaps;
    if (next != alive.begin() && std::prev(next)->second > low) ++overlaps;
    alive.emplace(low, high);
  }
  CHECK(overlaps == 0);
}

TEST_CASE("a training step's arena is hardly larger than its maximal load") {
  for (const StepGraph& graph :
       {resnet_step({.blocks = 16}), transformer_step({.layers = 12}), chain_step(200)}) {
    CAPTURE(graph.name());
    CHECK(assign_offsets(buffers_of(resolve(graph, own_order(graph)))).ratio() <= 1.01);
  }
}

TEST_CASE("negative sizes and lives that end before they start are refused") {
  CHECK_THROWS_AS(assign_offsets(std::vector<Buffer>{{0, 1, Bytes{-1}}}), Error);
  CHECK_THROWS_AS(assign_offsets(std::vector<Buffer>{{2, 1, 1_B}}), Error);
}

TEST_CASE("sizes and alignments that would overflow are refused") {
  const std::vector<Buffer> small(3, Buffer{0, 5, Bytes{10}});
  CHECK_THROWS_AS(
      assign_offsets(small, {.alignment = Bytes{std::numeric_limits<std::int64_t>::max()}}), Error);
  const std::vector<Buffer> huge(3, Buffer{0, 5, Bytes{std::numeric_limits<std::int64_t>::max()}});
  CHECK_THROWS_AS(assign_offsets(huge), Error);
  const std::vector<Buffer> many(300, Buffer{0, 5, Bytes{std::int64_t{1} << 53}});
  CHECK_THROWS_AS(assign_offsets(many), Error);
}
