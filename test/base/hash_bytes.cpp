#include <reprise/base/hash_bytes.hpp>

#include <reprise_test/catch.hpp>

#include <set>
#include <vector>

using namespace reprise;
using namespace reprise::base;

TEST_CASE("every bit of every byte counts, wherever it stands") {
  std::vector<std::byte> bytes(19);
  std::set<std::uint64_t> seen{hash_bytes(bytes)};
  for (std::byte& b : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      b = std::byte(1 << bit);
      seen.insert(hash_bytes(bytes));
      b = {};
    }
  CHECK(seen.size() == 1 + 19 * 8);
}

TEST_CASE("the length and what came before count too") {
  const std::vector<std::byte> five(5), six(6);
  CHECK(hash_bytes(five) != hash_bytes(six));
  CHECK(hash_bytes(five, 1) != hash_bytes(five, 2));
  CHECK(hash_bytes(six, hash_bytes(five)) != hash_bytes(five, hash_bytes(six)));
  CHECK(hash_bytes(five) == hash_bytes(std::vector<std::byte>(5)));
}
