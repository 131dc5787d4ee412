#include <reprise/plan/advice.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;

namespace {

// Six forward ops of 100 bytes each, read again in reverse order; beside a weight of 1000.
StepGraph chain() {
  GraphBuilder builder("chain");
  std::vector<ValueId> made{builder.add_value(
      {.id = 0, .name = "w", .bytes = Bytes{1000}, .role = Role::parameter, .persistent = true})};
  for (std::int64_t i = 1; i <= 6; ++i) {
    made.push_back(builder.add_value(
        {.id = i, .name = "h" + std::to_string(i), .bytes = Bytes{100}, .role = Role::activation}));
    builder.add_node({.id = i, .name = "f" + std::to_string(i), .time = {10}},
                     {made[made.size() - 2]}, {made.back()});
  }
  ValueId gradient = made.back();
  for (std::int64_t i = 6; i >= 1; --i) {
    const ValueId next = builder.add_value({.id = 20 + i,
                                            .name = "g" + std::to_string(i),
                                            .bytes = Bytes{100},
                                            .role = Role::gradient});
    builder.add_node({.id = 20 + i, .name = "b" + std::to_string(i), .time = {10}},
                     {gradient, made[static_cast<std::size_t>(i)]}, {next});
    gradient = next;
  }
  builder.add_output(gradient);
  return std::move(builder).build();
}

}  // namespace

TEST_CASE("advice names the smallest budget that is found, and what the floor consists of") {
  const StepGraph graph = chain();
  const Advice advice = advise(graph, {.keep_order = true, .effort = 0.1}, "anneal", Bytes{5000});
  CHECK(advice.floor == floor_bytes(graph) + Bytes{5000});
  CHECK(advice.unconstrained == simulate(graph, own_order(graph)).peak + Bytes{5000});
  CHECK(advice.smallest >= advice.floor);
  CHECK(advice.smallest < advice.unconstrained);
  CHECK(advice.extra_time() > 0);
  CHECK(advice.shares.total() == advice.floor);
  CHECK(advice.shares.of(Role::parameter) == Bytes{1000});
  CHECK(advice.shares.of(Role::other) == Bytes{5000});
  const Plan again =
      plan_with("anneal", graph,
                {.budget = advice.smallest - Bytes{5000}, .keep_order = true, .effort = 0.1});
  CHECK(again.within_budget());  // asked for just that, the planner finds it
  CHECK(advice.text().find("smallest feasible budget") == 0);
  CHECK(advice.text().find("largest: what no op of the step touches 4.88 KiB, w 1000 B") !=
        std::string::npos);
}

TEST_CASE("what a planner says of its own plan is not believed") {
  const StepGraph graph = chain();
  const auto always_fits = [](const StepGraph& g, const PlanRequest& /*request*/) {
    Plan plan = plan_own_order(g);  // its budget is its peak, whatever was asked for
    plan.time = {1};
    return plan;
  };
  const Advice advice = advise(graph, {.keep_order = true}, PlanFunction(always_fits));
  CHECK(advice.smallest == advice.unconstrained);
  CHECK(advice.extra_time() == 0);
}
