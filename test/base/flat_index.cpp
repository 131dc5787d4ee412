// Numbers by key, in one array.

#include <random>
#include <unordered_map>

#include <reprise/base/flat_index.hpp>
#include <reprise_test/catch.hpp>

using reprise::base::FlatIndex;

TEST_CASE("a key has the number that it was given first") {
  FlatIndex index;
  CHECK(index.find(0) == FlatIndex::none);
  index.insert(0, 7);
  index.insert(0, 8);
  CHECK(index.find(0) == 7);
  CHECK(index.find(1) == FlatIndex::none);
}

TEST_CASE("a key can be given another number, and room can be made before") {
  FlatIndex index;
  index.reserve(1000);
  for (std::uint32_t i = 0; i < 1000; ++i) index.assign(i * 64, i);
  for (std::uint32_t i = 0; i < 1000; i += 2) index.assign(i * 64, i + 5000);
  for (std::uint32_t i = 0; i < 1000; ++i) CHECK(index.find(i * 64) == (i % 2 == 0 ? i + 5000 : i));
}

TEST_CASE("an index finds what a map finds, for addresses, counters and anything") {
  std::mt19937_64 random(5);
  for (const std::uint64_t step :
       {std::uint64_t{1}, std::uint64_t{64}, std::uint64_t{1} << 32, std::uint64_t{0}}) {
    FlatIndex index;
    std::unordered_map<std::uint64_t, std::uint32_t> map;
    for (std::uint32_t i = 0; i < 5000; ++i) {
      const std::uint64_t key = step > 0 ? (random() % 4000) * step : random();
      index.insert(key, i);
      map.emplace(key, i);
      const std::uint64_t other = step > 0 ? (random() % 8000) * step : random();
      const auto it = map.find(other);
      REQUIRE(index.find(other) == (it == map.end() ? FlatIndex::none : it->second));
    }
    for (const auto& [key, number] : map) REQUIRE(index.find(key) == number);
  }
}
