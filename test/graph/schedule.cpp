#include <reprise/graph/schedule.hpp>

#include <reprise_test/toy.hpp>

TEST_CASE("the graph's own order runs every node once") {
  CHECK(own_order(toy_graph()) == nodes({0, 1, 2, 3, 4, 5}));
  CHECK(own_order(GraphBuilder{}.build()).empty());
}

TEST_CASE("the toy's plan runs three nodes twice, and keeps the order") {
  CHECK(run_counts(toy_graph(), toy_schedule()) == std::vector<std::uint32_t>{2, 2, 2, 1, 1, 1});
  CHECK(recomputations(toy_graph(), toy_schedule()) == 3);
  CHECK(keeps_order(toy_graph(), toy_schedule()));
}

TEST_CASE("order is a matter of first occurrences") {
  CHECK(keeps_order(toy_graph(), nodes({0, 1, 0, 2, 1})));
  CHECK_FALSE(keeps_order(toy_graph(), nodes({0, 2, 1})));
  CHECK_FALSE(keeps_order(toy_graph(), nodes({0, 2})));
  CHECK_FALSE(keeps_order(toy_graph(), nodes({1, 0})));
}
