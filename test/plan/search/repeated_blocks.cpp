#include <reprise/plan/search/repeated_blocks.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;

TEST_CASE("nodes in the middle of a chain are twins, those at its ends are not") {
  const StepGraph graph = chain_step(20);  // f1 … f20 are nodes 0 … 19, b20 … b1 are nodes 20 … 39
  const RepeatedBlocks blocks{graph};
  const auto twins = blocks.twins(10);
  CHECK(twins.size() >= 12);
  CHECK(std::find(twins.begin(), twins.end(), 0u) == twins.end());
  CHECK(std::find(twins.begin(), twins.end(), 19u) == twins.end());
  CHECK(std::all_of(twins.begin(), twins.end(),
                    [&](std::uint32_t n) { return graph.nodes()[n].op == "f"; }));
}

TEST_CASE("what the backward pass reads is mirrored from block to block") {
  const StepGraph graph = chain_step(20);
  const RepeatedBlocks blocks{graph};
  const std::uint32_t f10 = 9, b11 = 29;  // b11 reads what f10 and f11 made
  const std::uint32_t next = blocks.place(f10) + 1;
  REQUIRE(blocks.twins(f10)[next] == 10);
  CHECK(blocks.counterpart(f10, b11, next) == 28);
  CHECK(blocks.counterpart(f10, b11, blocks.place(f10)) == b11);
}

TEST_CASE("measured times do not tell twins apart") {
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) times.push_back(10 + 0.1 * i);
  CHECK(RepeatedBlocks{chain_step(20, times)}.twins(10).size() ==
        RepeatedBlocks{chain_step(20)}.twins(10).size());
}
