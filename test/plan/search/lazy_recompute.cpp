#include <reprise/plan/search/lazy_recompute.hpp>

#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy.hpp>

TEST_CASE("the backward pass begins at its first node, or after the peak where none is labelled") {
  CHECK(backward_start(toy_graph()) == 5);
  GraphBuilder b;
  const ValueId small = b.add_value({.id = 0, .bytes = 8_B}),
                large = b.add_value({.id = 1, .bytes = 64_B}),
                last = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0}, {}, {small});
  b.add_node({.id = 1}, {small}, {large});
  b.add_node({.id = 2}, {large}, {});
  b.add_node({.id = 3}, {}, {last});
  CHECK(backward_start(std::move(b).build()) == 2);
}

TEST_CASE("what is dropped for the backward pass runs again right before its first use") {
  const StepGraph graph = toy_graph();
  const ScheduleFacts facts{graph};
  std::vector<bool> dropped(graph.storage_count(), false);
  dropped[graph.value(ValueId{2}).storage.index] = true;  // h
  CHECK(drop_for_backward(facts, 5, dropped) == toy_schedule());
}

TEST_CASE("nothing dropped, nothing runs again") {
  const StepGraph graph = testing::resnet_step({.blocks = 2});
  const ScheduleFacts facts{graph};
  const std::vector<bool> dropped(graph.storage_count(), false);
  CHECK(drop_for_backward(facts, backward_start(graph), dropped) == own_order(graph));
}
