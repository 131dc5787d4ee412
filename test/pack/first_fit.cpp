#include <reprise/pack/first_fit.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::packing;

namespace {

// Two that live long, and a third that lives with both but is as large as the gap only where the
// first is put down last.
const std::vector<FirstFit::Item> items{{0, 2, 2}, {1, 4, 2}, {3, 6, 4}, {0, 6, 1}};

bool apart(const std::vector<FirstFit::Item>& list, const std::vector<std::int64_t>& offset) {
  for (std::size_t a = 0; a < list.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (list[a].lower < list[b].upper && list[b].lower < list[a].upper &&
          offset[a] < offset[b] + list[b].size && offset[b] < offset[a] + list[a].size)
        return false;
  return true;
}

std::int64_t load(const std::vector<FirstFit::Item>& list) {
  std::int64_t most = 0;
  for (const FirstFit::Item& at : list) {
    std::int64_t now = 0;
    for (const FirstFit::Item& i : list)
      if (i.lower <= at.lower && at.lower < i.upper) now += i.size;
    most = std::max(most, now);
  }
  return most;
}

}  // namespace

TEST_CASE("first fit puts each buffer into the lowest gap among those before it") {
  FirstFit fit{items, 1'000'000};
  REQUIRE(fit.attempt({0, 1, 2, 3}));
  CHECK(fit.offsets() == std::vector<std::int64_t>{0, 2, 4, 8});
  CHECK(fit.height() == 9);
  REQUIRE(fit.attempt({3, 2, 1, 0}));
  CHECK(fit.offsets() == std::vector<std::int64_t>{1, 5, 1, 0});
  CHECK(fit.height() == 7);
  CHECK_FALSE(fit.attempt({0, 1, 2, 3}));
  CHECK(fit.height() == 7);
}

TEST_CASE("improving brings what is in the way forward until nothing is wasted") {
  FirstFit fit{items, 1'000'000};
  fit.attempt({0, 1, 2, 3});
  fit.improve(load(items), 1000);
  CHECK(fit.height() == load(items));
  CHECK(apart(items, fit.offsets()));
}

TEST_CASE("what improving leaves never overlaps, and is never higher than where it started") {
  std::uint64_t state = 7;
  const auto random = [&](std::uint64_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::int64_t>((state >> 33) % n);
  };
  int better = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<FirstFit::Item> list;
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < 40; ++i) {
      const std::int64_t lower = random(60);
      list.push_back({lower, lower + 1 + random(20), 1 + random(30)});
      order.push_back(i);
    }
    FirstFit fit{list, 10'000'000};
    fit.attempt(order);
    const std::int64_t before = fit.height();
    fit.improve(load(list), 2000);
    CHECK(apart(list, fit.offsets()));
    CHECK(fit.height() <= before);
    CHECK(fit.height() >= load(list));
    better += fit.height() < before ? 1 : 0;
  }
  CHECK(better >= 45);
}
