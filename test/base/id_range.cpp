#include <reprise/base/id_range.hpp>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <vector>

#include <range/v3/range/concepts.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/filter.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using base::IdRange;
using base::ids;

TEST_CASE("a range of ids has each of them, in order") {
  std::vector<std::uint32_t> seen;
  for (NodeId n : ids<NodeId>(3)) seen.push_back(n.index);
  CHECK(seen == std::vector<std::uint32_t>{0, 1, 2});
  CHECK(ids<NodeId>(3).size() == 3);
  CHECK(ids<NodeId>(0).empty());
  CHECK(std::ranges::equal(IdRange<ValueId>(2, 4), std::vector{ValueId{2}, ValueId{3}}));
}

TEST_CASE("a range of ids can be piped, sized and walked both ways") {
  STATIC_REQUIRE(ranges::view_<IdRange<NodeId>>);
  STATIC_REQUIRE(ranges::sized_range<IdRange<NodeId>>);
  STATIC_REQUIRE(std::ranges::random_access_range<IdRange<NodeId>>);
  auto odd = ids<NodeId>(5) | ranges::views::filter([](NodeId n) { return n.index % 2 == 1; });
  CHECK((odd | ranges::to<std::vector>()) == std::vector{NodeId{1}, NodeId{3}});
  const auto all = ids<StorageId>(4);
  CHECK(all.begin()[3] == StorageId{3});
  CHECK(*std::prev(all.end()) == StorageId{3});
  CHECK(all.end() - all.begin() == 4);
  CHECK(*(all.end() - 2) == StorageId{2});
  CHECK(all.begin() + 4 == all.end());
}
