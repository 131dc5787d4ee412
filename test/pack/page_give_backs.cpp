#include <reprise/pack/page_give_backs.hpp>

#include <set>

#include <reprise/pack/assign_offsets.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::packing;

TEST_CASE("the page that is needed again last goes back before one comes that is too many") {
  const std::vector<PlacedBlock> blocks{
      {0, 2, 0, 300}, {1, 6, 300, 100}, {3, 6, 400, 100}, {5, 7, 100, 200}};
  const auto runs = page_give_backs(blocks, Bytes{400}, Bytes{100});
  CHECK(runs[0].empty());
  CHECK(runs[1].empty());
  CHECK(runs[2] == std::vector<PageRun>{{0, 100}});
  CHECK(runs[3].empty());
  CHECK(bytes_given_back(runs) == Bytes{100});
}

TEST_CASE("an arena that is no higher than what may be held gives nothing back") {
  const std::vector<PlacedBlock> blocks{{0, 2, 0, 300}, {1, 6, 300, 100}};
  CHECK(bytes_given_back(page_give_backs(blocks, Bytes{400}, Bytes{100})) == Bytes{0});
  CHECK(bytes_given_back(page_give_backs({}, Bytes{0}, Bytes{100})) == Bytes{0});
}

TEST_CASE("what is held is bounded at every moment, and nothing that is alive goes back") {
  const std::uint64_t seed = 11;
  CAPTURE(seed);
  reprise::testing::Rng rng{seed};
  constexpr std::int64_t page = 8;
  int bounded = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<Buffer> buffers;
    const auto count = static_cast<std::int64_t>(2 + rng.below(40));
    for (std::int64_t i = 0; i < count; ++i)
      buffers.push_back({i, i + 1 + static_cast<std::int64_t>(rng.below(12)),
                         Bytes{static_cast<std::int64_t>(1 + rng.below(60))}});
    const ArenaPlan plan = assign_offsets(buffers, {.rounds = 1});
    std::vector<PlacedBlock> blocks;
    for (std::size_t i = 0; i < buffers.size(); ++i)
      blocks.push_back({buffers[i].lower, buffers[i].upper, plan.offsets[i].count * 2,
                        buffers[i].size.count});  // twice as high as it need be
    const std::int64_t ground = plan.load.count;
    const auto runs = page_give_backs(blocks, Bytes{ground}, Bytes{page});
    std::set<std::int64_t> held;
    for (std::int64_t p = 0; p < ground / page; ++p) held.insert(p);
    const auto pages_of = [&](const PlacedBlock& b) {
      std::set<std::int64_t> pages;
      for (std::int64_t byte = b.offset; byte < b.offset + b.size; ++byte)
        pages.insert(byte / page);
      return pages;
    };
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      std::set<std::int64_t> alive;
      for (std::size_t k = 0; k <= i; ++k)
        if (blocks[k].upper > blocks[i].lower) alive.merge(pages_of(blocks[k]));
      for (const PageRun& run : runs[i])
        for (std::int64_t p = run.begin / page; p < run.end / page; ++p) {
          REQUIRE(held.count(p) == 1);
          REQUIRE(alive.count(p) == 0);
          held.erase(p);
        }
      for (const std::int64_t p : pages_of(blocks[i])) held.insert(p);
      REQUIRE(static_cast<std::int64_t>(held.size()) <=
              std::max(ground / page, static_cast<std::int64_t>(alive.size())));
    }
    bounded += bytes_given_back(runs) > Bytes{0};
  }
  CHECK(bounded > 150);
}
