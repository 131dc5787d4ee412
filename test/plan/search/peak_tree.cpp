#include <reprise/plan/search/peak_tree.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;

TEST_CASE("the peak is the largest sum at an active place") {
  PeakTree t(8);
  t.activate(1, 0);
  t.activate(5, 0);
  t.add(0, 3, 100);
  CHECK(t.max() == 100);
  t.add(3, 7, 50);
  CHECK(t.at(5) == 50);
  CHECK(t.argmax() == 1);
  t.deactivate(1, 0);
  CHECK(t.max() == 50);
}

TEST_CASE("range maxima and first and last place above a limit agree with a plain array") {
  const std::uint64_t seed = 7;
  CAPTURE(seed);
  reprise::testing::Rng rng{seed};
  PeakTree t(64);
  std::vector<std::int64_t> plain(64, 0);
  for (std::size_t i = 0; i < 64; ++i) t.activate(i, 0);
  for (int k = 0; k < 2000; ++k) {
    std::size_t a = rng.below(64), b = rng.below(64);
    if (a > b) std::swap(a, b);
    const auto x = static_cast<std::int64_t>(rng.below(21)) - 10;
    t.add(a, b, x);
    for (std::size_t i = a; i <= b; ++i) plain[i] += x;
    const auto most = *std::max_element(plain.begin(), plain.end());
    REQUIRE(t.max() == most);
    REQUIRE(t.max(a, b) == *std::max_element(plain.begin() + static_cast<std::ptrdiff_t>(a),
                                             plain.begin() + static_cast<std::ptrdiff_t>(b) + 1));
    const std::int64_t limit = most - 1 - static_cast<std::int64_t>(rng.below(5));
    const auto above = [&](std::int64_t v) { return v > limit; };
    REQUIRE(
        t.first_above(limit) ==
        static_cast<std::size_t>(std::find_if(plain.begin(), plain.end(), above) - plain.begin()));
    REQUIRE(
        t.last_above(limit) ==
        static_cast<std::size_t>(plain.rend() - std::find_if(plain.rbegin(), plain.rend(), above)) -
            1);
  }
}
