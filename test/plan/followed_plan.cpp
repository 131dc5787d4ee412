// A schedule as whoever follows it needs it.

#include <reprise/plan/followed_plan.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise_test;

TEST_CASE(
    "what runs again stands before the node that needs it; storages are given up after their last "
    "use") {
  const StepGraph graph = toy_graph();
  // norm relu flat wide sum | norm relu flat again | grad
  Schedule schedule;
  for (std::size_t n : {0u, 1u, 2u, 3u, 4u, 0u, 1u, 2u, 5u}) schedule.push_back(NodeId{n});
  const FollowedPlan plan(graph, schedule);
  CHECK(plan.peak() == simulate(graph, schedule).peak);
  CHECK(plan.node_count() == 6);
  CHECK(plan.recomputed() == 3);
  CHECK(plan.first(NodeId{4}) == 4);
  CHECK(plan.first(NodeId{5}) == 8);
  CHECK(plan.begin_of(NodeId{5}) == 5);
  CHECK(plan.end_of(NodeId{5}) == 8);
  CHECK(plan.begin_of(NodeId{4}) == plan.end_of(NodeId{4}));  // nothing before the sum
  CHECK(plan.begin_of(NodeId{6}) == plan.end_of(NodeId{6}));  // nor after the last node
  CHECK(plan.last_again() == NodeId{5});
  CHECK(plan.frees(2).size() == 1);  // the first h, after its view was made
}

TEST_CASE("a plan that changes the order cannot be followed") {
  const StepGraph graph = toy_graph();
  Schedule schedule;
  for (std::size_t n : {3u, 4u, 0u, 1u, 2u, 5u}) schedule.push_back(NodeId{n});
  REQUIRE(simulate(graph, schedule).valid);
  CHECK_THROWS_AS(FollowedPlan(graph, schedule), Error);
}

TEST_CASE("an invalid schedule cannot be followed") {
  const StepGraph graph = toy_graph();
  CHECK_THROWS_AS(FollowedPlan(graph, Schedule{NodeId{0}}), Error);
}
