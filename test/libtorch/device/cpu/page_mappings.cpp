// Pages that are mapped and moved, and the seams between what the system takes for areas.

#include <cstring>

#include <reprise/libtorch/device/cpu/page_mappings.hpp>

#include <reprise_test/catch.hpp>

using reprise::cpu::PageMappings;

#ifdef __linux__
TEST_CASE("what was mapped at once can be moved at once, and what was moved there has seams") {
  PageMappings mappings;
  const std::size_t page = PageMappings::round_up(1);
  CHECK(PageMappings::round_up(page) == page);
  CHECK(PageMappings::round_up(page + 1) == 2 * page);

  std::byte* const block = mappings.map(8 * page);
  REQUIRE(block != nullptr);
  CHECK(mappings.one_area(block, 8 * page) == 8 * page);
  std::memset(block, 7, 8 * page);

  std::byte* const target = mappings.map(6 * page, PageMappings::Use::later);
  REQUIRE(target != nullptr);
  REQUIRE(mappings.move(block, 4 * page, target));
  CHECK(target[0] == std::byte{7});
  CHECK(target[4 * page - 1] == std::byte{7});
  CHECK(mappings.one_area(target, 6 * page) == 4 * page);  // up to the seam
  CHECK(mappings.one_area(target + 4 * page, 2 * page) == 2 * page);
  REQUIRE(PageMappings::open(target + 4 * page, 2 * page));
  CHECK(target[4 * page] == std::byte{0});

  mappings.unmap(target, 6 * page);
  mappings.unmap(block + 4 * page, 4 * page);
}
#endif

TEST_CASE("pages that were exchanged are taken for an area of their own") {
  PageMappings mappings;
  std::byte bytes[100];
  mappings.begin_area(bytes, 100);
  CHECK(mappings.seams() == 1);
  CHECK(mappings.one_area(bytes, 100) == 100);
  mappings.note_exchanged(bytes + 40, 20);
  CHECK(mappings.one_area(bytes, 100) == 40);
  CHECK(mappings.one_area(bytes + 40, 60) == 20);
  CHECK(mappings.one_area(bytes + 60, 40) == 40);
  mappings.end_area(bytes, 100);  // its seams go, but perhaps something lies behind it
  CHECK(mappings.seams() == 1);
  CHECK(mappings.one_area(bytes, 100) == 100);
}
