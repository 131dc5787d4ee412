#include <reprise/base/ids.hpp>

#include <type_traits>
#include <unordered_set>

#include <reprise_test/catch.hpp>

using namespace reprise;

TEST_CASE("an id that was given nothing names nothing") {
  CHECK_FALSE(NodeId{}.valid());
  CHECK(NodeId{} == NodeId::none());
  CHECK(NodeId{0}.valid());
}

TEST_CASE("an id of one kind is no id of another, and no number") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<NodeId, ValueId>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<ValueId, NodeId>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<int, NodeId>);
}

TEST_CASE("ids are ordered and hashed by what they index") {
  CHECK(NodeId{2} < NodeId{10});
  const std::unordered_set<ValueId> values{ValueId{1}, ValueId{1}, ValueId{2}};
  CHECK(values.size() == 2);
}
