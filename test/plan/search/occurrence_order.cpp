#include <reprise/plan/search/occurrence_order.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;

namespace {

// Nodes 0, 1 and 2, once each, spread over 32 places.
struct Three {
  OccurrenceOrder order{3};
  OccurrenceOrder::Occurrence a = add(0), b = add(1), c = add(2);

  Three() { order.spread(); }
  OccurrenceOrder::Occurrence add(std::uint32_t n) {
    const auto x = order.make(n, 0);
    order.link(x, order.end());
    return x;
  }
};

constexpr std::uint32_t none = OccurrenceOrder::none;

}  // namespace

TEST_CASE("the header's example: one more in front of b") {
  Three t;
  CHECK(t.order.places() == 32);
  CHECK(t.order.slot(t.a) == 7);
  CHECK(t.order.slot(t.b) == 15);
  CHECK(t.order.slot(t.c) == 23);
  CHECK(t.order.slot(t.order.end()) == 31);
  REQUIRE(t.order.place_before(t.b) == 11);
  const auto x = t.order.make(0, 0);
  t.order.link(x, t.b);
  t.order.set_slot(x, 11);
  t.order.settle(x);
  CHECK(t.order.next(t.a) == x);
  CHECK(t.order.previous(t.b) == x);
  CHECK(t.order.at(11) == x);
  CHECK(t.order.size() == 4);
  t.order.unlink(x);
  CHECK(t.order.at(11) == none);
  CHECK(t.order.next(t.a) == t.b);
  CHECK_FALSE(t.order.alive(x));
}

TEST_CASE("handles are used again, the last that was given back first") {
  Three t;
  CHECK(t.order.take_spare(0) == none);
  const auto x = t.order.make(0, 4), y = t.order.make(0, 5);
  t.order.give_back(x);
  t.order.give_back(y);
  CHECK(t.order.take_spare(1) == none);
  CHECK(t.order.take_spare(0) == y);
  CHECK(t.order.take_spare(0) == x);
  CHECK(t.order.instances(y) == 5);
  CHECK(t.order.pool_size() == 7);
}

TEST_CASE("the runs of a node stand in running order") {
  Three t;
  const auto again = t.order.make(0, 0);
  t.order.link(again, t.c);
  t.order.set_slot(again, 19);
  CHECK(t.order.first_slot(0) == none);
  t.order.add_run(again);
  CHECK(t.order.first_slot(0) == 19);
  t.order.add_run(t.a);
  CHECK(t.order.first_slot(0) == 7);
  REQUIRE(t.order.runs(0).size() == 2);
  CHECK(t.order.runs(0)[1] == again);
  t.order.remove_run(t.a);
  CHECK(t.order.first_slot(0) == 19);
}

TEST_CASE("where no place is left, the surroundings that are not crowded are named") {
  OccurrenceOrder order{100};
  for (std::uint32_t n = 0; n < 100; ++n) order.link(order.make(n, 0), order.end());
  order.spread();  // 102 of 512 places
  CHECK(order.roomy_around(40) == std::pair{32u, 64u});
  CHECK(order.roomy_around(3) == std::pair{1u, 32u});  // never the start's place
  for (std::uint32_t p = 32; p < 64; ++p)
    if (order.at(p) == none) {
      const auto x = order.make(0, 0);
      order.set_slot(x, p);
      order.settle(x);
    }
  const auto crowded = order.at(40);
  const auto after = order.at(41);
  order.link(crowded, order.end());  // side by side
  order.link(after, order.end());
  CHECK(order.place_before(after) == none);
  CHECK(order.roomy_around(40) == std::pair{1u, 256u});
}
