#include <reprise/base/version.hpp>

#include <reprise_test/catch.hpp>

TEST_CASE("the version is the one that the header's example shows") {
  STATIC_REQUIRE(reprise::version == reprise::Version{0, 1, 0});
}

TEST_CASE("versions are ordered number by number") {
  STATIC_REQUIRE(reprise::Version{0, 9, 9} < reprise::Version{0, 10, 0});
  STATIC_REQUIRE(reprise::Version{0, 10, 0} < reprise::Version{1, 0, 0});
}
