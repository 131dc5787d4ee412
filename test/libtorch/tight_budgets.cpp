// Budgets for which steps are slow: what is said, and what is done about it; and budgets that are
// found by what they cost.
//
// No measured time decides: slow_down is so small that every step is slow, or so large that none
// is.

#include <reprise_test/guided.hpp>
#include <reprise_test/watched.hpp>

#include <charconv>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// What eager's loop gives after so many steps.
Contents eager(const StackLoop& like, int steps) {
  StackLoop loop;
  loop.x = like.x;
  for (int i = 0; i < steps; ++i) loop();
  return contents(all_of(*loop.stack.layers));
}

/// Finds nothing below a share of what the step takes in its own order.
Plan lazy_planner(const StepGraph& graph, const PlanRequest& request) {
  const Bytes floor = floor_bytes(graph), own = simulate(graph, own_order(graph)).peak;
  return request.budget < floor + share_of(60, own - floor) ? plan_own_order(graph)
                                                            : plan_by_bytes(graph, request);
}

struct Told {
  std::vector<std::string> slow{}, all{};
  MemoryBudgetOptions options{};

  explicit Told(WhenSlow when, double slow_down = 0) {
    options = {.run = {.planner = lazy_planner, .planning = {.effort = 0.1}},
               .plan_in_background = false,
               .over_budget = OverBudget::go_on,
               .slow_down = slow_down,
               .when_slow = when};
    options.run.on_notice = [this](const std::string& text) {
      all.push_back(text);
      if (text.find("times what their own ops take") != std::string::npos) slow.push_back(text);
    };
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
};

/// A budget that lazy_planner finds no plan for, and the smallest for which it does.
struct Tight {
  Bytes bytes{}, smallest{};

  explicit Tight(StackLoop& loop) {
    MemoryBudget probe{1024_GiB,
                       {.run = {.planner = lazy_planner, .planning = {.effort = 0.1}},
                        .plan_in_background = false}};
    loop.inside(probe);
    smallest = probe.advise().smallest;
    bytes = probe.last().floor + share_of(25, probe.last().eager_peak - probe.last().floor);
  }
};

}  // namespace

TEST_CASE("steps that are slow in their budget say so once, and what budget would do", "[guided]") {
  StackLoop loop;
  const Tight tight(loop);
  REQUIRE(tight.bytes < tight.smallest);
  Told told(WhenSlow::stay);
  MemoryBudget budget{tight.bytes, told.options};
  for (int i = 0; i < 4; ++i) {
    loop.inside(budget);
    CHECK_FALSE(budget.last().planned);
    CHECK(budget.last().peak <= tight.bytes);
  }
  REQUIRE(told.slow.size() == 1);
  CHECK(told.slow[0].find("(" + std::to_string(tight.smallest.count) + " bytes)") !=
        std::string::npos);
  CHECK((contents(all_of(*loop.stack.layers)) == eager(loop, 5)));

  budget.set(tight.smallest);  // as it was told
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  CHECK(budget.last().planned);
  CHECK(told.slow.size() == 1);
}

TEST_CASE("steps that are not slow say nothing", "[guided]") {
  StackLoop loop;
  const Tight tight(loop);
  Told told(WhenSlow::fail, 1e12);
  MemoryBudget budget{tight.bytes, told.options};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  CHECK(told.slow.empty());
  CHECK(budget.last().slow_down() >= 1);

  Told unlimited(WhenSlow::fail);
  MemoryBudget large{1024_GiB, unlimited.options};
  for (int i = 0; i < 3; ++i) loop.inside(large);
  CHECK(unlimited.slow.empty());
}

TEST_CASE("slow steps go above their budget where that is asked for, to the smallest plan",
          "[guided]") {
  StackLoop loop;
  const Tight tight(loop);
  Told told(WhenSlow::go_above);
  MemoryBudget budget{tight.bytes, told.options};
  loop.inside(budget);
  CHECK(budget.last().peak <= tight.bytes);
  for (int i = 0; i < 3; ++i) {
    loop.inside(budget);
    INFO(budget.last().divergence);
    CHECK(budget.last().planned);
    CHECK(budget.last().over_budget);
    CHECK(budget.last().budget == tight.bytes);
    CHECK(budget.last().peak == budget.last().predicted_peak);
    CHECK(budget.last().peak <= tight.smallest);
  }
  REQUIRE(told.slow.size() == 1);
  CHECK(told.slow[0].find("From now on they take that") != std::string::npos);
  CHECK((contents(all_of(*loop.stack.layers)) == eager(loop, 5)));

  budget.set(tight.bytes);  // a new budget holds until it is slow again
  loop.inside(budget);
  CHECK(budget.last().peak <= tight.bytes);
}

TEST_CASE("slow steps fail where that is asked for, before the next one begins", "[guided]") {
  StackLoop loop;
  const Tight tight(loop);
  Told told(WhenSlow::fail);
  MemoryBudget budget{tight.bytes, told.options};
  loop.inside(budget);
  CHECK_THROWS_WITH(budget.step(), contains("times what their own ops take") &&
                                       contains(std::to_string(tight.smallest.count)));
  CHECK((contents(all_of(*loop.stack.layers)) == eager(loop, 2)));
  budget.set(tight.smallest);
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  CHECK(budget.last().planned);
}

TEST_CASE("advice in the background is told of when it is there", "[guided]") {
  StackLoop loop;
  const Tight tight(loop);
  Told told(WhenSlow::stay);
  told.options.plan_in_background = true;
  MemoryBudget budget{tight.bytes, told.options};
  for (int i = 0; i < 5; ++i) {
    loop.inside(budget);
    budget.wait();
  }
  REQUIRE(told.slow.size() == 1);
  CHECK(told.slow[0].find("(" + std::to_string(tight.smallest.count) + " bytes)") !=
        std::string::npos);
}

TEST_CASE("a budget by what it costs is the smallest one with a plan that costs no more",
          "[guided]") {
  Bytes before{};
  for (const double share : {0.02, 0.2, 5.}) {
    StackLoop loop;
    MemoryBudget budget{Budget::costs_at_most(share),
                        {.run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}},
                         .plan_in_background = false}};
    const Bytes start = device_memory().live();
    for (int i = 0; i < 4; ++i) {
      loop.inside(budget);
      if (i == 0) continue;
      CHECK(budget.last().planned);
      CHECK(budget.last().peak == budget.last().predicted_peak);
      CHECK(budget.last().peak <= budget.last().budget);
    }
    PlanRequest request{.keep_order = true, .seconds = seconds_to_wait, .effort = 0.1};
    const Plan expected = plan_within_time(budget.graph(), request, 100 * share, plan_by_bytes);
    CHECK(100 * expected.overhead() <= 100 * share);
    CHECK(budget.last().budget - budget.last().base == expected.peak - start_bytes(budget.graph()));
    if (share > 1) CHECK(budget.last().recomputed > 0);
    if (before > 0_B) CHECK(budget.last().budget - start <= before);
    before = budget.last().budget - start;
    CHECK((contents(all_of(*loop.stack.layers)) == eager(loop, 4)));
  }
}

TEST_CASE("a budget by what it costs is found in the background as well", "[guided]") {
  StackLoop loop;
  MemoryBudget budget{Budget::costs_at_most(5),
                      {.run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}}}};
  loop.inside(budget);
  budget.wait();
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  CHECK(budget.last().planned);
  CHECK(budget.last().recomputed > 0);
}

TEST_CASE("a budget of what fits says what it took", "[guided]") {
  StackLoop loop;
  std::vector<std::string> notices;
  MemoryBudgetOptions options;
  options.run.on_notice = [&](const std::string& text) { notices.push_back(text); };
  MemoryBudget budget{fit, options};
  loop.inside(budget);
  CHECK(budget.last().budget > device_memory().live());
  REQUIRE_FALSE(notices.empty());
  CHECK(notices.front().find("the budget is " + format_bytes(budget.last().budget)) == 0);
  CHECK(budget.summary().find(format_bytes(budget.last().budget)) != std::string::npos);
  budget.set(fit);
  CHECK(notices.back().find("80 % of the memory that the machine has free") != std::string::npos);
}

TEST_CASE("advice comes after one step, whatever its budget was", "[guided]") {
  StackLoop loop;
  MemoryBudget wide{1024_GiB,
                    {.run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}},
                     .plan_in_background = false}};
  loop.inside(wide);
  const Advice expected = wide.advise();
  MemoryBudget tight{
      expected.floor,
      {.run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}, .max_plans = 0},
       .plan_in_background = false,
       .over_budget = OverBudget::go_on}};
  loop.inside(tight);
  const Advice advice = tight.advise();
  CHECK(advice.smallest == expected.smallest);
  CHECK(advice.floor == expected.floor);
  CHECK(advice.unconstrained == expected.unconstrained);
}

TEST_CASE("a step that waits for its plan waits for so many seconds of work at most", "[guided]") {
  StackLoop loop;
  double now = 0;
  std::vector<double> seconds;
  MemoryBudgetOptions options{.run = {.planning = {.effort = 0.1, .clock = [&] { return now; }}},
                              .plan_in_background = false,
                              .slow_down = 1e12};
  options.run.planner = [&](const StepGraph& graph, const PlanRequest& request) {
    seconds.push_back(request.seconds);
    now += 2;
    Plan plan = plan_own_order(graph);
    plan.budget = request.budget;
    return plan;
  };
  MemoryBudget budget{1024_GiB, options};
  loop.inside(budget);
  CHECK(seconds.empty());
  budget.set(budget.last().floor + share_of(20, budget.last().eager_peak - budget.last().floor));
  loop.inside(budget);
  CHECK(seconds == std::vector<double>{5, 3, 1});  // then no time is left
  seconds.clear();
  static_cast<void>(budget.advise());
  CHECK(seconds.size() == 3);
}
