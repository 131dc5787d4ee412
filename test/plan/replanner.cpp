#include <reprise/plan/replanner.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

#include <reprise/plan/strategies.hpp>

#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::profiling;
using namespace reprise::testing;
using namespace reprise::literals;

namespace {

/// What a front would make of a plan: nothing but the plan.
struct Fake {
  Plan plan{};
  Bytes above{};
  [[nodiscard]] bool fits(Bytes headroom) const { return above <= headroom; }
  [[nodiscard]] double extra_time(const StepGraph& graph) const {
    return simulate(graph, plan.schedule).time.count /
               simulate(graph, own_order(graph)).time.count -
           1;
  }
  [[nodiscard]] std::size_t recomputed() const { return run_again; }
  std::size_t run_again = 0;
};
static_assert(MadeOfPlan<Fake>);

using Steps = Replanner<std::string, Fake>;

/// A planner with two fixed plans, and what it was asked for.
struct Stand {
  std::shared_ptr<StepGraph> graph = std::make_shared<StepGraph>(chain_step(24));
  Plan loose = fixed(80), tight = fixed(55);
  std::vector<PlanRequest> asked{};
  std::vector<std::string> log{};
  int none = 0;
  std::function<Plan(const PlanRequest&)> answer = [this](const PlanRequest& request) {
    return loose.peak <= request.budget ? loose : tight;
  };

  [[nodiscard]] Plan fixed(double percent) const {
    const Bytes floor = floor_bytes(*graph), own = simulate(*graph, own_order(*graph)).peak;
    Plan plan = plan_with(
        "anneal", *graph,
        {.budget = floor + share_of(percent, own - floor), .keep_order = true, .effort = 0.1});
    REQUIRE(plan.within_budget());
    return plan;
  }
  /// What a plan takes above the start.
  [[nodiscard]] Bytes above(const Plan& plan) const { return plan.peak - start_bytes(*graph); }

  [[nodiscard]] ReplanRules rules() {
    ReplanRules rules;
    rules.search.planner = [this](const StepGraph& /*graph*/, const PlanRequest& request) {
      asked.push_back(request);
      Plan plan = answer(request);
      plan.budget = request.budget;
      return plan;
    };
    return rules;
  }
  [[nodiscard]] Steps::Hooks hooks() {
    return {.make =
                [](Steps::Known& known, Plan plan, const Steps::Again&) {
                  auto made = std::make_shared<Fake>();
                  made->above = plan.peak - start_bytes(*known.graph);
                  made->run_again = plan.schedule.size() - known.graph->node_count();
                  made->plan = std::move(plan);
                  return made;
                },
            .none_found = [this](const Steps::Known&) { ++none; },
            .log = [this](const std::string& text) { log.push_back(text); }};
  }
  Steps::Known& add(Steps& steps, const std::string& key = "a") {
    Steps::Known& known = steps.add(key);
    known.graph = graph;
    return known;
  }
};

Bytes times(Bytes bytes, double factor) {
  return Bytes{static_cast<std::int64_t>(static_cast<double>(bytes.count) * factor)};
}

}  // namespace

TEST_CASE("a plan is made once, and serves for as long as it fits") {
  Stand stand;
  Steps steps(stand.rules(), stand.hooks());
  auto& known = stand.add(steps);
  const Bytes headroom = stand.above(stand.loose);
  REQUIRE(steps.ensure(known, {.headroom = headroom}));
  CHECK(known.made->plan.schedule == stand.loose.schedule);
  CHECK(steps.ensure(known, {.headroom = headroom}));
  CHECK(stand.asked.size() == 1);
  CHECK(stand.asked[0].budget == start_bytes(*stand.graph) + headroom);
  // the plan does not fit any more
  REQUIRE(steps.ensure(known, {.headroom = stand.above(stand.tight)}));
  CHECK(known.made->plan.schedule == stand.tight.schedule);
  CHECK(stand.asked.size() == 2);
  CHECK(steps.counters().plans == 2);
  CHECK(steps.counters().waited.count > 0);
}

TEST_CASE("more headroom is worth another plan from 3 % on, and the cheaper of both stays") {
  Stand stand;
  Steps steps(stand.rules(), stand.hooks());
  auto& known = stand.add(steps);
  const Bytes headroom = stand.above(stand.tight);
  REQUIRE(steps.ensure(known, {.headroom = headroom}));
  const auto first = known.made;
  REQUIRE(first->recomputed() > 0);
  CHECK(steps.ensure(known, {.headroom = times(headroom, 1.029)}));
  CHECK(stand.asked.size() == 1);
  // the planner has nothing better: what there is stays, and the next 3 % count from here
  CHECK(steps.ensure(known, {.headroom = times(headroom, 1.031)}));
  CHECK(stand.asked.size() == 2);
  CHECK(known.made == first);
  CHECK(stand.log.back() == "the plan that there is stays: no faster one was found");
  CHECK(steps.ensure(known, {.headroom = times(headroom, 1.032)}));
  CHECK(stand.asked.size() == 2);
  CHECK(steps.ensure(known, {.headroom = stand.above(stand.loose)}));
  CHECK(known.made->plan.schedule == stand.loose.schedule);
  // nothing runs again that more headroom could save
  stand.answer = [&](const PlanRequest&) { return plan_own_order(*stand.graph); };
  CHECK(steps.ensure(known, {.headroom = 1_GiB}));
  CHECK(known.made->recomputed() == 0);
  const std::size_t asked = stand.asked.size();
  CHECK(steps.ensure(known, {.headroom = 2_GiB}));
  CHECK(stand.asked.size() == asked);
}

TEST_CASE("a planner with costs of its own knows best: its newest plan is taken") {
  Stand stand;
  ReplanRules rules = stand.rules();
  rules.own_costs = true;
  Steps steps(rules, stand.hooks());
  auto& known = stand.add(steps);
  REQUIRE(steps.ensure(known, {.headroom = stand.above(stand.loose)}));
  stand.answer = [&](const PlanRequest&) { return stand.tight; };
  REQUIRE(steps.ensure(known, {.headroom = times(stand.above(stand.loose), 1.1)}));
  CHECK(known.made->plan.schedule == stand.tight.schedule);
}

TEST_CASE("where nothing fits it is searched harder, told of once, and tried again with more") {
  Stand stand;
  ReplanRules rules = stand.rules();
  rules.search.waited_for = false;
  rules.search.keep_order = true;
  Steps steps(rules, stand.hooks());
  auto& known = stand.add(steps);
  const Bytes headroom = times(stand.above(stand.tight), 0.9);
  CHECK_FALSE(steps.ensure(known, {.headroom = headroom}));
  REQUIRE(stand.asked.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(stand.asked[i].seed == 1 + i);
    CHECK(stand.asked[i].effort == std::vector<double>{1, 3, 9}[i]);
    CHECK(stand.asked[i].keep_order);
  }
  CHECK(known.unplannable);
  CHECK(known.smallest == stand.above(stand.tight));
  CHECK(known.why.find(std::to_string(stand.above(stand.tight).count) + " bytes) of it") !=
        std::string::npos);
  CHECK_FALSE(steps.ensure(known, {.headroom = headroom}));
  CHECK_FALSE(steps.ensure(known, {.headroom = times(headroom, 1.02)}));
  CHECK(stand.asked.size() == 3);
  CHECK(stand.none == 1);
  CHECK(steps.ensure(known, {.headroom = stand.above(stand.tight)}));
  CHECK_FALSE(known.unplannable);
  CHECK(stand.none == 1);
  // below what the step starts with nothing is searched
  auto& other = stand.add(steps, "b");
  CHECK_FALSE(steps.ensure(other, {.headroom = 0_B}));
  CHECK(other.unplannable);
  CHECK(stand.asked.size() == 4);
}

TEST_CASE("a plan that says untrue things of itself is not used, nor one that cannot be run") {
  Stand stand;
  Steps steps(stand.rules(), stand.hooks());
  auto& known = stand.add(steps);
  stand.answer = [&](const PlanRequest&) {
    Plan plan = stand.loose;
    plan.peak = 1_B;
    return plan;
  };
  CHECK_FALSE(steps.ensure(known, {.headroom = stand.above(stand.tight)}));
  CHECK(known.smallest == stand.above(stand.loose));
  auto& other = stand.add(steps, "b");
  stand.answer = [&](const PlanRequest&) {
    Plan plan = stand.loose;
    std::ranges::reverse(plan.schedule);
    plan.peak = 1_B;
    return plan;
  };
  CHECK_FALSE(steps.ensure(other, {.headroom = 1_GiB}));
  CHECK(other.failure);
}

TEST_CASE("what the planner throws is kept for the front, and the older plan stays") {
  Stand stand;
  Steps steps(stand.rules(), stand.hooks());
  auto& known = stand.add(steps);
  REQUIRE(steps.ensure(known, {.headroom = stand.above(stand.loose)}));
  const auto first = known.made;
  stand.answer = [](const PlanRequest&) -> Plan { throw std::runtime_error("no idea"); };
  CHECK(steps.ensure(known, {.headroom = times(stand.above(stand.loose), 1.1)}));
  CHECK(known.made == first);
  CHECK(known.why == "no idea");
  CHECK_THROWS_WITH(std::rethrow_exception(known.failure), "no idea");
}

TEST_CASE("times of warm ops make one more plan, where they differ or the first was hasty") {
  for (const bool hasty : {false, true})
    for (const bool differ : {false, true}) {
      CAPTURE(hasty, differ);
      Stand stand;
      ReplanRules rules = stand.rules();
      if (hasty) rules.search.first_effort = 0.25;
      Steps steps(rules, stand.hooks());
      auto& known = stand.add(steps);
      const PlanGoal goal{.headroom = stand.above(stand.loose)};
      REQUIRE(steps.ensure(known, goal));
      CHECK(stand.asked[0].effort == (hasty ? 0.25 : 1));
      REQUIRE(steps.wants_times(known));
      std::vector<Microseconds> warm;
      for (const Node& node : stand.graph->nodes())
        warm.push_back({node.time.count * (differ ? 2 : 1)});
      int set = 0;
      steps.refine(known, warm, [&] { ++set; });
      CHECK(set == (hasty || differ ? 1 : 0));
      CHECK(steps.counters().refinements == set);
      if (set > 0) {
        const std::string said = differ ? "ops take another time" : "with more effort";
        CHECK(stand.log.back().find(said) != std::string::npos);
      } else {
        CHECK(stand.log.empty());
      }
      CHECK(steps.ensure(known, goal));
      CHECK(stand.asked.size() == (set > 0 ? 2 : 1));
      CHECK(stand.asked.back().effort == 1);
      CHECK_FALSE(steps.wants_times(known));  // not a third time, whatever ops take
    }
}

TEST_CASE("in the background the step goes on without a plan until there is one") {
  Stand stand;
  ReplanRules rules = stand.rules();
  rules.in_background = true;
  Steps steps(rules, stand.hooks());
  auto& known = stand.add(steps);
  const PlanGoal goal{.headroom = stand.above(stand.loose)};
  CHECK_FALSE(steps.ensure(known, goal));
  steps.wait();
  CHECK(steps.ensure(known, goal));
  CHECK(steps.counters().plans == 1);
}

TEST_CASE("the step that was used longest ago is forgotten, also while it is planned") {
  Stand stand;
  ReplanRules rules = stand.rules();
  rules.max_plans = 2;
  rules.in_background = true;
  Steps steps(rules, stand.hooks());
  const auto find = [&](const std::string& key) -> Steps::Known& {
    Steps::Known& known =
        steps.find_or_add([&](const std::string& k) { return k == key; }, [&] { return key; });
    if (!known.graph) known.graph = stand.graph;
    return known;
  };
  Steps::Known& a = find("a");
  CHECK_FALSE(steps.ensure(a, {.headroom = stand.above(stand.loose)}));
  steps.wait();
  find("b");
  CHECK(&find("a") == &a);
  CHECK(a.made);
  find("c");
  CHECK(steps.steps().size() == 2);
  CHECK(&find("a") == &a);  // "b" has gone
  static_cast<void>(steps.ensure(find("d"), {.headroom = stand.above(stand.tight)}));
  find("e");
  find("f");  // "d", and its plan with it
  CHECK_FALSE(find("d").made);
}

TEST_CASE("a goal by cost is planned once, and not again for more headroom") {
  Stand stand;
  Steps steps(stand.rules(), stand.hooks());
  auto& known = stand.add(steps);
  const PlanGoal goal{.headroom = 1_GiB, .percent = 1000};
  REQUIRE(steps.ensure(known, goal));
  CHECK(known.made->plan.schedule == stand.tight.schedule);
  CHECK(known.headroom == stand.above(stand.tight));
  const std::size_t asked = stand.asked.size();
  CHECK(steps.ensure(known, {.headroom = 2_GiB, .percent = 1000}));
  CHECK(stand.asked.size() == asked);
  CHECK(steps.ensure(known, {.headroom = 2_GiB, .percent = 0.01}));
  CHECK(stand.asked.size() > asked);
}

TEST_CASE("what a front makes of a plan may need a lower one: it asks again within the limit") {
  Stand stand;
  ReplanRules rules = stand.rules();
  rules.search.later_seconds = 4;
  Steps::Hooks hooks = stand.hooks();
  const auto plain = hooks.make;
  hooks.make = [&](Steps::Known& known, Plan plan, const Steps::Again& again) {
    if (plan.schedule == stand.loose.schedule) plan = again(stand.above(stand.tight));
    return plain(known, std::move(plan), again);
  };
  Steps steps(rules, hooks);
  auto& known = stand.add(steps);
  REQUIRE(steps.ensure(known, {.headroom = stand.above(stand.loose)}));
  CHECK(known.made->plan.schedule == stand.tight.schedule);
  REQUIRE(stand.asked.size() == 2);
  CHECK(stand.asked[0].seconds == Approx(3).margin(0.01));  // three quarters of the limit
  CHECK(stand.asked[1].seconds <= 3.01);
  CHECK(stand.asked[1].budget == start_bytes(*stand.graph) + stand.above(stand.tight));
}

TEST_CASE("all attempts of a step that waits share one limit in seconds") {
  Stand stand;
  double now = 0;
  ReplanRules rules = stand.rules();
  rules.search.planning.clock = [&] { return now; };
  rules.search.first_seconds = 1.2;
  rules.search.first_effort = 0.5;
  stand.answer = [&](const PlanRequest&) {
    now += 2;
    return plan_own_order(*stand.graph);
  };
  Steps steps(rules, stand.hooks());
  auto& known = stand.add(steps);
  CHECK_FALSE(steps.ensure(known, {.headroom = stand.above(stand.tight)}));
  REQUIRE(stand.asked.size() == 3);
  CHECK(stand.asked[0].seconds == Approx(0.9));  // hasty
  CHECK(stand.asked[1].seconds == Approx(3));    // what is left of 5
  CHECK(stand.asked[2].seconds == Approx(1));
  CHECK(stand.asked[0].effort == 0.5);
  CHECK(stand.asked[1].effort == 1);  // haste must not make a budget unreachable
  CHECK(stand.asked[2].effort == 3);
}

namespace {

/// In the background, quick plans first. What is asked is asked by one thread after the other.
ReplanRules quick(Stand& stand) {
  ReplanRules rules = stand.rules();
  rules.in_background = rules.quick_first = true;
  rules.search.first_effort = 0.25;
  rules.search.waited_for = false;
  return rules;
}

}  // namespace

TEST_CASE("a quick plan comes first, and a better one takes its place") {
  Stand stand;
  Steps steps(quick(stand), stand.hooks());
  auto& known = stand.add(steps);
  const PlanGoal goal{.headroom = stand.above(stand.loose)};
  stand.answer = [&](const PlanRequest& request) {
    return request.effort < 1 ? stand.tight : stand.loose;
  };
  CHECK_FALSE(steps.ensure(known, goal));
  steps.wait();
  REQUIRE(known.made);
  CHECK(known.made->plan.schedule == stand.tight.schedule);
  CHECK(known.hasty);
  CHECK(steps.ensure(known, goal));  // nothing else is begun by itself
  CHECK(stand.asked.size() == 1);
  CHECK(stand.asked[0].effort == 0.25);

  steps.improve(known);
  CHECK(steps.ensure(known, goal));  // the quick one serves meanwhile
  steps.wait();
  CHECK(known.made->plan.schedule == stand.loose.schedule);
  REQUIRE(stand.asked.size() == 2);
  CHECK(stand.asked[1].effort == 1);
  steps.improve(known);  // as good as it gets
  CHECK(steps.ensure(known, goal));
  steps.wait();
  CHECK(stand.asked.size() == 2);

  // it does not fit any more: quick again
  static_cast<void>(steps.ensure(known, {.headroom = stand.above(stand.tight)}));
  steps.wait();
  REQUIRE(stand.asked.size() == 3);
  CHECK(stand.asked[2].effort == 0.25);
}

TEST_CASE("where a quick search finds nothing it is searched thoroughly, and told of once") {
  Stand stand;
  Steps steps(quick(stand), stand.hooks());
  auto& known = stand.add(steps);
  const PlanGoal goal{.headroom = stand.above(stand.tight)};
  stand.answer = [&](const PlanRequest& request) {
    return request.effort < 1 ? stand.loose : stand.tight;
  };
  CHECK_FALSE(steps.ensure(known, goal));
  steps.wait();
  CHECK(stand.none == 0);
  REQUIRE(known.made);
  CHECK(known.made->plan.schedule == stand.tight.schedule);
  CHECK_FALSE(known.hasty);
  CHECK(stand.asked.size() == 2);

  stand.answer = [&](const PlanRequest&) { return stand.loose; };
  auto& other = stand.add(steps, "b");
  static_cast<void>(steps.ensure(other, goal));
  steps.wait();
  CHECK(stand.none == 1);
  CHECK(other.unplannable);
  CHECK(stand.asked.size() == 2 + 1 + 3);  // in haste, and three attempts
}

TEST_CASE("what another step follows is used at once where it fits, the fastest of all") {
  Stand stand;
  Steps::Hooks hooks = stand.hooks();
  std::vector<Schedule> starts;
  hooks.starts = [&](const Steps::Known&) { return starts; };
  Steps steps(quick(stand), hooks);
  starts = {stand.tight.schedule, Schedule{NodeId{3}}, stand.loose.schedule};
  auto& known = stand.add(steps);
  const PlanGoal goal{.headroom = stand.above(stand.loose)};
  REQUIRE(steps.ensure(known, goal));
  CHECK(known.made->plan.schedule == stand.loose.schedule);
  CHECK(stand.asked.empty());
  CHECK(known.hasty);

  steps.improve(known);  // a search starts from them
  CHECK(steps.ensure(known, goal));
  steps.wait();
  REQUIRE(stand.asked.size() == 1);
  CHECK(stand.asked[0].effort == 1);
  CHECK(stand.asked[0].starts == starts);

  starts = {stand.loose.schedule};
  auto& other = stand.add(steps, "b");
  CHECK_FALSE(steps.ensure(other, {.headroom = stand.above(stand.tight)}));
  steps.wait();
  CHECK(stand.asked.size() == 2);
}
