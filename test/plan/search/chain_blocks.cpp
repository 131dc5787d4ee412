#include <reprise/plan/search/chain_blocks.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;

TEST_CASE("a chain of single nodes is a chain of as many blocks") {
  const StepGraph graph = testing::chain_step(5);
  const ScheduleFacts facts{graph};
  const ChainBlocks chain{facts, 60, 8};
  CHECK(chain.backward() == 5);
  REQUIRE(chain.blocks().size() == 5);
  for (std::uint32_t i = 0; i < 5; ++i) {
    const ChainBlock& b = chain.blocks()[i];
    CAPTURE(i);
    CHECK(b.forward == std::vector<std::uint32_t>{i});
    CHECK(b.backward == std::vector<std::uint32_t>{9 - i});
    CHECK(b.forward_time == 10);
    CHECK(b.backward_time == 20);
    CHECK(b.handed_on == (i < 4 ? 100 : 0));
    // Its result, the gradient that it is handed and the one that it makes; the last block is
    // handed none.
    CHECK(b.needs == (i < 4 ? 300 : 200));
  }
  CHECK(chain.blocks()[0].ways.size() == 1);  // nothing beside what is handed on
  REQUIRE(chain.blocks()[4].ways.size() == 2);
  CHECK(chain.blocks()[4].ways[1].bytes == 0);
  CHECK(chain.blocks()[4].ways[1].again == 10);
}

TEST_CASE("blocks of a residual network end at the sums, and can be kept in part") {
  const StepGraph graph = testing::resnet_step({.blocks = 6});
  const ScheduleFacts facts{graph};
  const ChainBlocks chain{facts, 60, 8};
  REQUIRE(chain.blocks().size() >= 6);
  std::size_t in_part = 0;
  std::vector<std::uint32_t> all;
  for (const ChainBlock& b : chain.blocks()) {
    all.insert(all.end(), b.forward.begin(), b.forward.end());
    for (std::size_t w = 1; w < b.ways.size(); ++w) {
      CHECK(b.ways[w].bytes < b.ways[w - 1].bytes);
      CHECK(b.ways[w].again >= b.ways[w - 1].again);
      CHECK(b.ways[w].again <= b.forward_time);
    }
    CHECK(b.ways.front().again == 0);
    CHECK(b.ways.back().bytes == b.handed_on);
    in_part += b.ways.size() > 3 ? 1u : 0u;
  }
  CHECK(in_part >= 6);
  CHECK(all.size() == chain.backward());
  CHECK(std::is_sorted(all.begin(), all.end()));
}

TEST_CASE("so many blocks at most") {
  const StepGraph graph = testing::chain_step(100);
  const ScheduleFacts facts{graph};
  const ChainBlocks chain{facts, 30, 8};
  CHECK(chain.blocks().size() == 25);
  CHECK(chain.blocks()[3].forward == std::vector<std::uint32_t>{12, 13, 14, 15});
}
