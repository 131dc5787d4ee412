// The whole pages inside of a block, and what becomes of their bytes. Faults: fault_handler.hpp.

#ifdef __linux__

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include <reprise/libtorch/device/cpu/fault_handler.hpp>
#include <reprise/libtorch/device/cpu/page_protection.hpp>

#include <reprise_test/catch.hpp>

using reprise::cpu::FaultHandler;
using reprise::cpu::PageProtection;

namespace {

/// Four pages, all with 7 in them.
struct Block {
  Block() { std::memset(pages.begin, 7, pages.bytes); }
  ~Block() { ::munmap(pages.begin, pages.bytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  PageProtection::Pages pages{
      static_cast<std::byte*>(
          ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
      4 * page};
};

struct Faults {
  PageProtection::Pages pages{};
  int reads = 0, writes = 0;
};
Faults& faults() {
  static Faults all;
  return all;
}

// Whoever touches the pages may, from then on.
bool open_pages(std::byte* address, bool writes) {
  const PageProtection::Pages pages = faults().pages;
  if (address < pages.begin || address >= pages.begin + pages.bytes) return false;
  ++(writes ? faults().writes : faults().reads);
  return PageProtection::protect(pages, PageProtection::writable);
}

}  // namespace

TEST_CASE("pages lose their memory, and are refilled at once") {
  const Block block;
  REQUIRE(PageProtection::available());
  REQUIRE(PageProtection::pages_in(block.pages.begin, block.pages.bytes).bytes ==
          block.pages.bytes);
  REQUIRE(PageProtection::protect(block.pages, PageProtection::nothing));
  REQUIRE(PageProtection::give_memory_back(block.pages));
  PageProtection::refill(block.pages, PageProtection::writable, [&](std::byte* to) {
    CHECK(to != block.pages.begin);  // elsewhere
    std::memset(to, 5, block.pages.bytes);
  });
  CHECK(block.pages.begin[0] == std::byte{5});
  CHECK(block.pages.begin[block.pages.bytes - 1] == std::byte{5});
  block.pages.begin[0] = std::byte{6};
}

TEST_CASE("pages that cannot be refilled stay without access") {
  const Block block;
  faults() = {block.pages};
  FaultHandler::install(open_pages);
  REQUIRE(PageProtection::protect(block.pages, PageProtection::nothing));
  CHECK_THROWS_AS(
      PageProtection::refill(block.pages, PageProtection::writable,
                             [](std::byte*) { throw std::runtime_error("no such file"); }),
      std::runtime_error);
  CHECK(faults().reads + faults().writes == 0);
  const volatile std::byte* const read = block.pages.begin;
  static_cast<void>(*read);
  CHECK(faults().reads + faults().writes == 1);
}

TEST_CASE("an access to a protected page is told before it happens, and goes on") {
  const Block block;
  faults() = {block.pages};
  FaultHandler::install(open_pages);
  volatile std::byte* const bytes = block.pages.begin;
  REQUIRE(PageProtection::protect(block.pages, PageProtection::readable));
  CHECK(bytes[0] == std::byte{7});
  CHECK(faults().reads + faults().writes == 0);
  bytes[block.page] = std::byte{8};
  CHECK(faults().writes == 1);
  CHECK(bytes[block.page] == std::byte{8});
  CHECK(bytes[block.page + 1] == std::byte{7});
  CHECK(faults().reads + faults().writes == 1);  // only the first
}

#endif
