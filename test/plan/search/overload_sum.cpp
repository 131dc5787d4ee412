#include <reprise/plan/search/overload_sum.hpp>

#include <numeric>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using reprise::planning::OverloadSum;
using reprise::planning::PeakTree;

TEST_CASE("what is above the limit is summed over all places") {
  OverloadSum o;
  o.assign({10, 50, 30, 70}, 40);
  CHECK(o.sum() == 40);
  o.add(1, 3, -20);
  CHECK(o.sum() == 10);
}

TEST_CASE("a place counts from when it is activated until it is deactivated") {
  OverloadSum o;
  o.assign({10, PeakTree::inactive, 30}, 20);
  CHECK(o.sum() == 10);
  o.add(0, 2, 15);
  CHECK(o.sum() == 5 + 25);
  o.activate(1, 60);
  CHECK(o.sum() == 5 + 40 + 25);
  o.deactivate(2);
  CHECK(o.sum() == 5 + 40);
}

TEST_CASE("the overload after random additions is that of the values") {
  const std::uint64_t seed = 5;
  CAPTURE(seed);
  reprise::testing::Rng rng{seed};
  constexpr std::size_t places = 500;
  std::vector<std::int64_t> values(places);
  for (auto& v : values)
    v = rng.chance(0.7) ? PeakTree::inactive : static_cast<std::int64_t>(rng.below(200));
  OverloadSum o;
  o.assign(values, 100);
  const auto expected = [&] {
    return std::accumulate(
        values.begin(), values.end(), std::int64_t{0},
        [](std::int64_t sum, std::int64_t v) { return sum + std::max<std::int64_t>(v - 100, 0); });
  };
  for (int k = 0; k < 20'000; ++k) {
    const std::size_t a = rng.below(places), b = rng.below(places), first = std::min(a, b),
                      last = std::max(a, b);
    const auto amount = static_cast<std::int64_t>(rng.below(100)) - 50;
    if (rng.chance(0.2)) {
      const bool counts = values[a] != PeakTree::inactive;
      values[a] = counts ? PeakTree::inactive : static_cast<std::int64_t>(rng.below(200));
      if (counts) o.deactivate(a);
      else o.activate(a, values[a]);
    } else {
      for (std::size_t p = first; p <= last; ++p)
        if (values[p] != PeakTree::inactive) values[p] += amount;
      o.add(first, last, amount);
    }
    REQUIRE(o.sum() == expected());
  }
}
