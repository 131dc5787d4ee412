#include <reprise/plan/search/update_order.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::literals;

TEST_CASE("the header's example: what reads before the update is broken, until it goes") {
  GraphBuilder b;
  const ValueId mean = b.add_value({.id = 0, .bytes = 8_B, .persistent = true});
  const ValueId y = b.add_value({.id = 1, .bytes = 8_B}), s = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0, .name = "norm"}, {}, {y}, {mean});
  b.add_node({.id = 1, .name = "sum"}, {mean}, {s});
  const StepGraph graph = std::move(b).build();
  const ScheduleFacts facts{graph};
  OccurrenceOrder order{2};
  UpdateOrder updates{facts, order};
  const auto run = [&](std::uint32_t n, std::uint32_t slot) {
    const auto x = order.make(n, 0);
    order.link(x, order.end());
    order.set_slot(x, slot);
    const bool first = order.runs(n).empty() || order.first_slot(n) > slot;
    order.add_run(x);
    updates.recount(n, first);
    return x;
  };

  const auto early = run(1, 2);
  CHECK(updates.broken() == 1);  // nothing has updated it
  run(0, 5);
  CHECK(updates.broken() == 1);
  run(1, 7);
  CHECK(updates.broken() == 1);
  run(0, 9);  // a clone does not update
  CHECK(updates.broken() == 1);
  order.remove_run(early);
  updates.recount(1, true);
  CHECK(updates.broken() == 0);
}
