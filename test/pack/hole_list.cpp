#include <reprise/pack/hole_list.hpp>

#include <reprise_test/catch.hpp>

using reprise::packing::HoleList;

TEST_CASE("the tightest hole that is large enough is taken, else the arena grows") {
  HoleList h;
  CHECK(h.take(10) == 0);
  CHECK(h.take(20) == 10);
  h.give(0, 10);
  CHECK(h.take(4) == 0);
  CHECK(h.take(8) == 30);
  CHECK(h.height() == 38);
}

TEST_CASE("neighbouring holes become one") {
  HoleList h;
  for (int i = 0; i < 4; ++i) CHECK(h.take(10) == 10 * i);
  h.give(0, 10);
  h.give(20, 10);
  h.give(10, 10);
  CHECK(h.take(30) == 0);
  CHECK(h.height() == 40);
}

TEST_CASE("a hole that reaches the arena's end grows with it") {
  HoleList h;
  CHECK(h.take(10) == 0);
  CHECK(h.take(10) == 10);
  h.give(10, 10);
  CHECK(h.take(15) == 10);
  CHECK(h.height() == 25);
}
