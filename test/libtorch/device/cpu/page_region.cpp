// Addresses for many blocks, whose pages stay when a block dies.

#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/device/cpu/page_region.hpp>

using namespace reprise::cpu;

#ifdef __linux__
TEST_CASE("a region: addresses without pages, pages that wait, blocks that nobody lies over") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  PageRegion region;
  REQUIRE(region.reserve(100 * page));
  const auto write = [&](std::size_t offset, std::size_t pages, int value) {
    std::memset(region.begin() + offset * page, value, pages * page);
  };
  CHECK(region.take(0, 40 * page) == 0u);
  CHECK(region.take(40 * page, 25 * page) == 0u);
  CHECK_FALSE(region.take(30 * page, 5 * page));
  CHECK_FALSE(region.take(60 * page, 10 * page));
  CHECK_FALSE(region.take(95 * page, 6 * page));  // beyond its end
  write(0, 40, 1);
  write(40, 25, 2);
  region.give(region.begin(), 40 * page);
  CHECK(region.waiting() == 40 * page);
  CHECK(region.take(0, 30 * page) == 30 * page);
  CHECK(region.waiting() == 10 * page);
  CHECK(region.begin()[0] == std::byte{1});  // as it was left
  CHECK(region.drop(4 * page) == 4 * page);
  CHECK(region.begin()[36 * page] == std::byte{0});  // gone, and fresh when it is read
  CHECK(region.take(30 * page, 10 * page) == 6 * page);
  region.give(region.begin() + 30 * page, 10 * page);
  region.give(region.begin() + 40 * page, 25 * page);
  CHECK(region.take_waiting(36 * page) == nullptr);
  CHECK(region.take_waiting(35 * page) == region.begin() + 30 * page);  // both in one
  CHECK(region.begin()[64 * page] == std::byte{2});
  CHECK(region.drop(1000 * page) == 0);
  std::byte* const kept = region.begin() + 30 * page;
  std::size_t gone = 0;
  region.release([&](const std::byte*, std::size_t bytes) { gone += bytes; });
  CHECK(gone == 35 * page);
  CHECK_FALSE(region.is_open());
  CHECK(kept[34 * page] == std::byte{2});  // whoever has it keeps it
  ::munmap(kept, 35 * page);
  ::munmap(kept - 30 * page, 30 * page);
}
#endif
