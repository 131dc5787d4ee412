#include <reprise/plan/search/live_bytes.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;

TEST_CASE("the header's example: a storage and a workspace on one place") {
  LiveBytes live;
  live.assign(std::vector<std::int64_t>(8, PeakTree::inactive));
  live.activate(3, 16);
  live.activate(6, 40);
  CHECK(live.tree().max() == 40);
  live.add(2, 5, 100);
  CHECK(live.tree().max() == 116);
  CHECK(live.tree().argmax() == 3);
  CHECK(live.changes() == 3);
  live.deactivate(3, 16);
  CHECK(live.tree().max() == 40);
}

TEST_CASE("what is above the limit is summed over active places, from the next assignment on") {
  LiveBytes live;
  live.watch(50);
  std::vector<std::int64_t> bytes(8, PeakTree::inactive);
  bytes[1] = 60;
  bytes[4] = 50;
  live.assign(bytes);
  CHECK(live.overload() == 10);
  live.add(0, 4, 5);
  CHECK(live.overload() == 15 + 5);
  live.activate(3, 70);
  CHECK(live.overload() == 15 + 5 + 25);
  live.deactivate(3, 70);
  live.add(0, 4, -5);
  CHECK(live.overload() == 10);
}
