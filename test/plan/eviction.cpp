// What is given up when memory runs out.

#include <random>
#include <vector>

#include <reprise/plan/eviction.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::literals;

namespace {

const auto any = [](std::uint32_t) { return true; };

static_assert(EvictionPolicy<NullEviction>);
static_assert(EvictionPolicy<LeastRecentlyUsed>);
static_assert(EvictionPolicy<LargestFirst>);
static_assert(EvictionPolicy<CostSizeStaleness>);
static_assert(!EvictionPolicy<int>);

}  // namespace

TEMPLATE_TEST_CASE("a policy picks nothing where nothing was touched, or all was erased", "",
                   NullEviction, LeastRecentlyUsed, LargestFirst, CostSizeStaleness) {
  TestType policy;
  CHECK_FALSE(policy.pick(1, any));
  policy.erase(1);  // never touched
  policy.touch(1, {4096_B, {1}, 1});
  CHECK(policy.pick(2, any).has_value() == !std::is_same_v<TestType, NullEviction>);
  CHECK_FALSE(policy.pick(2, [](std::uint32_t) { return false; }));
  policy.erase(1);
  CHECK_FALSE(policy.pick(2, any));
}

TEMPLATE_TEST_CASE("what is priced anew keeps its place in time", "", LeastRecentlyUsed,
                   CostSizeStaleness) {
  TestType policy;
  for (std::uint32_t s : {1u, 2u, 3u}) policy.touch(s, {4096_B, {8}, s});
  policy.touch(1, {4096_B, {9}, 1});
  CHECK(policy.pick(4, any) == 1u);  // by score: 9 / 4 is still below 8 / 3
}

TEST_CASE("what was used longest ago goes first; a use brings it to the end") {
  LeastRecentlyUsed policy;
  for (std::uint32_t s : {1u, 2u, 3u}) policy.touch(s, {1_B, {1}, s});
  CHECK(policy.pick(4, any) == 1u);
  policy.touch(1, {1_B, {1}, 4});
  CHECK(policy.pick(5, any) == 2u);
  CHECK(policy.pick(5, [](std::uint32_t s) { return s != 2; }) == 3u);
  policy.erase(2);
  CHECK(policy.pick(5, any) == 3u);
}

TEST_CASE("the largest goes first") {
  LargestFirst policy;
  policy.touch(1, {10_B, {1}, 1});
  policy.touch(2, {30_B, {1}, 1});
  policy.touch(3, {20_B, {1}, 1});
  CHECK(policy.pick(2, any) == 2u);
  policy.touch(2, {5_B, {1}, 2});
  CHECK(policy.pick(2, any) == 3u);
}

TEST_CASE("cost over size times staleness: the header's example") {
  CostSizeStaleness policy;
  policy.touch(7, {4096_B, {120}, 1});
  policy.touch(8, {4096_B, {3}, 2});
  CHECK(policy.pick(10, any) == 8u);
  policy.touch(8, {4096_B, {3}, 10});
  CHECK(policy.pick(10, any) == 8u);  // 3 / 1 is still below 120 / 10
  policy.touch(8, {4096_B, {30}, 10});
  CHECK(policy.pick(10, any) == 7u);
}

TEST_CASE("the pick is within a factor of the square root of two of the least score") {
  std::mt19937 random(11);
  CostSizeStaleness policy;
  std::vector<EvictionCandidate> all(300);
  std::uint64_t clock = 0;
  for (int round = 0; round < 3000; ++round) {
    ++clock;
    const auto s = static_cast<std::uint32_t>(random() % all.size());
    all[s] = {Bytes{1 + static_cast<std::int64_t>(random() % 100000)},
              {1 + static_cast<double>(random() % 10000)},
              clock};
    policy.touch(s, all[s]);
    const auto score = [&](std::uint32_t k) {
      return all[k].cost.count / static_cast<double>(all[k].bytes.count) /
             static_cast<double>(clock - all[k].clock + 1);
    };
    double least = 1e300;
    for (std::uint32_t k = 0; k < all.size(); ++k)
      if (all[k].clock > 0) least = std::min(least, score(k));
    const auto picked = policy.pick(clock, any);
    REQUIRE(picked);
    REQUIRE(score(*picked) <= least * 1.4143);
  }
}
