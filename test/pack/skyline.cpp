#include <reprise/pack/skyline.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using reprise::packing::Skyline;

TEST_CASE("a box lies on top of the highest below it") {
  Skyline s(6);
  CHECK(s.put(0, 4, 10) == 0);
  CHECK(s.put(2, 6, 5) == 10);
  CHECK(s.put(4, 6, 1) == 15);
  CHECK(s.put(0, 1, 1) == 10);
  CHECK(s.height() == 16);
}

TEST_CASE("a skyline is that of a list of heights") {
  const std::uint64_t seed = 3;
  CAPTURE(seed);
  reprise::testing::Rng rng{seed};
  std::vector<std::int64_t> heights(77, 0);
  Skyline s(heights.size());
  for (int k = 0; k < 500; ++k) {
    const std::size_t first = rng.below(77), last = first + 1 + rng.below(77 - first);
    const auto height = static_cast<std::int64_t>(1 + rng.below(9));
    const auto from = heights.begin() + static_cast<std::ptrdiff_t>(first),
               to = heights.begin() + static_cast<std::ptrdiff_t>(last);
    const std::int64_t bottom = *std::max_element(from, to);
    REQUIRE(s.put(first, last, height) == bottom);
    std::fill(from, to, bottom + height);
  }
}
