#include <reprise/plan/planner.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

#include <reprise/graph/json.hpp>
#include <reprise/plan/cost_models/byte_cost.hpp>
#include <reprise/plan/strategies.hpp>

using namespace reprise;
using namespace reprise::testing;
using namespace reprise::literals;

namespace {

// The smallest models of the two concepts.
struct Nonsense {
  [[nodiscard]] std::string_view name() const { return "nonsense"; }
  [[nodiscard]] Schedule schedule(const StepGraph&, const PlanRequest&) const {
    return {NodeId{0}, NodeId{0}};
  }
};
struct OneMicrosecond {
  [[nodiscard]] Microseconds time(const StepGraph&, NodeId) const { return {1}; }
};
static_assert(Strategy<NeverRecompute> && CostModel<OneMicrosecond>);
static_assert(!Strategy<OneMicrosecond> && !CostModel<NeverRecompute>);

Bytes share(const StepGraph& graph, double percent) {
  return Size{.bytes = {}, .percent = percent, .relative = true}.resolve(
      simulate(graph, own_order(graph)).peak);
}

// A share of what can be saved: from the floor up.
Bytes savable(const StepGraph& graph, double percent) {
  const Bytes floor = floor_bytes(graph);
  return floor + Bytes{static_cast<std::int64_t>(
                     percent / 100 *
                     static_cast<double>((simulate(graph, own_order(graph)).peak - floor).count))};
}

}  // namespace

TEST_CASE("a budget above the baseline's peak returns the baseline") {
  const StepGraph graph = chain_step(10);
  const Plan plan = Planner{}.plan(graph, {.budget = share(graph, 100)});
  CHECK(plan.schedule == own_order(graph));
  CHECK(plan.overhead() == 0);
  CHECK(plan.optimal);
}

TEST_CASE("zero and negative budgets are refused") {
  const StepGraph graph = chain_step(3);
  CHECK_THROWS_AS(Planner{}.plan(graph, {.budget = 0_B}), Error);
  CHECK_THROWS_AS(Planner{}.plan(graph, {.budget = Bytes{-1}}), Error);
}

TEST_CASE("an unreachable budget names the bound and the smallest peak found") {
  const StepGraph graph = chain_step(10);
  try {
    (void)Planner{}.plan_or_throw(graph, {.budget = 50_B});
    FAIL("planned the impossible");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::budget_unreachable);
    const Plan best = Planner{}.plan(graph, {.budget = 50_B});
    CHECK(std::string(e.what()) ==
          "no plan for a budget of 50 B (50 bytes): no schedule is below " +
              format_exactly(floor_bytes(graph)) + ", the smallest peak found is " +
              format_exactly(best.peak));
  }
}

TEST_CASE("an invalid proposal is not taken") {
  const StepGraph graph = chain_step(10);
  const Plan plan = Planner<MeasuredCost, Nonsense>{}.plan(graph, {.budget = share(graph, 50)});
  CHECK(plan.schedule == own_order(graph));
  CHECK_FALSE(plan.within_budget());
}

TEST_CASE("the cost model decides what time means") {
  const StepGraph graph = chain_step(10);
  const Plan plan =
      Planner<OneMicrosecond, NeverRecompute>{}.plan(graph, {.budget = share(graph, 50)});
  CHECK(plan.time.count == 20);
  CHECK(ByteCost{.gigabytes_per_second = 20, .launch_us = 2}.time(graph, NodeId{0}).count ==
        2 + 200 / 20e3);
}

TEST_CASE("every strategy gives a valid schedule, and says truly whether it fits") {
  for (const StepGraph& graph :
       {chain_step(6), chain_step(24), resnet_step({.blocks = 4}), transformer_step({.layers = 2})})
    for (std::string_view name : strategy_names)
      for (bool keep : {true, false}) {
        if (name == "exhaustive" && graph.node_count() > 16) continue;
        CAPTURE(graph.name(), name, keep);
        const Plan plan = plan_with(
            name, graph, {.budget = savable(graph, 60), .keep_order = keep, .effort = 0.05});
        const Simulation s = simulate(graph, plan.schedule);
        REQUIRE(s.valid);
        CHECK(s.peak == plan.peak);
        CHECK(s.time == plan.time);
        CHECK(plan.strategy == name);
        if (keep) CHECK(keeps_order(graph, plan.schedule));
        if (name == "anneal" || name == "mu-two-exact" || name == "portfolio")
          CHECK(plan.within_budget());
      }
  CHECK_THROWS_AS(plan_with("best", chain_step(3), {.budget = 1_B}), Error);
}

TEST_CASE("the default is no worse than what is published") {
  for (const StepGraph& graph :
       {resnet_step({.blocks = 8}), transformer_step({.layers = 4}), chain_step(40)})
    for (double percent : {80.0, 50.0, 35.0}) {
      CAPTURE(graph.name(), percent);
      const PlanRequest request{
          .budget = savable(graph, percent), .keep_order = true, .effort = 0.3};
      const Plan best = plan_with("anneal", graph, request);
      REQUIRE(best.within_budget());
      for (std::string_view other : {"mu-two", "mu-two-exact", "min-cut", "chain-dp"}) {
        const Plan plan = plan_with(other, graph, request);
        if (plan.within_budget()) CHECK(best.time.count <= plan.time.count * (1 + 1e-12));
      }
    }
}

// As inspect_step --config tiny writes them.
TEST_CASE("on captured graphs the default fits where any strategy does, and is no worse") {
  for (const char* model : {"resnet18", "unet", "lstm", "bert", "gpt2"}) {
    const StepGraph graph =
        read_graph_file(std::string(REPRISE_TEST_DIR "/data/graphs/tiny_") + model + ".json");
    for (double percent : {80.0, 35.0}) {
      CAPTURE(model, percent);
      const PlanRequest request{
          .budget = savable(graph, percent), .keep_order = true, .effort = 0.1};
      const Plan best = plan_with("anneal", graph, request);
      for (std::string_view other : {"mu-two", "mu-two-exact", "min-cut", "chain-dp"}) {
        const Plan plan = plan_with(other, graph, request);
        if (!plan.within_budget()) continue;
        CHECK(best.within_budget());
        CHECK(best.time.count <= plan.time.count * (1 + 1e-12));
      }
      if (percent == 80.0) CHECK(best.within_budget());
    }
  }
}

TEST_CASE(
    "a step whose last gradients do not fit beside each other makes them again where there is "
    "room") {
  // inspect_step --model lstm --config full. In the order kept, the gradients of decoder and
  // encoder fit only where the first is made again between two layers' backward parts: right before
  // its next use, which is the end, there is no room.
  const StepGraph graph = read_graph_file(std::string(REPRISE_TEST_DIR "/data/graphs/lstm.json"));
  const Plan plan = plan_with("anneal", graph, {.budget = savable(graph, 42), .keep_order = true});
  CHECK(plan.within_budget());
}

TEST_CASE("where the budget is out of reach the smallest peak is told") {
  const StepGraph graph = resnet_step({.blocks = 16});
  PlanRequest request{.budget = floor_bytes(graph), .keep_order = true};
  std::vector<double> shares;
  request.progress = [&](const PlanProgress& p) { shares.push_back(p.share); };
  const Plan plan = plan_with("anneal", graph, request);
  CHECK(std::is_sorted(shares.begin(), shares.end()));
  CHECK(shares.back() == 1);
  request.progress = {};
  CHECK_FALSE(plan.within_budget());
  CHECK(plan.peak <= plan_with("mu-two-exact", graph, request).peak);
}

TEST_CASE("the smallest peak that is told is not above what a plan can be made for") {
  for (const char* model : {"bert", "lstm"}) {
    CAPTURE(model);
    const StepGraph graph =
        read_graph_file(std::string(REPRISE_TEST_DIR "/data/graphs/tiny_") + model + ".json");
    const PlanRequest within{.budget = savable(graph, 50), .keep_order = true, .effort = 0.3};
    REQUIRE(plan_with("anneal", graph, within).within_budget());
    const PlanRequest below{
        .budget = floor_bytes(graph) - Bytes{1}, .keep_order = true, .effort = 0.3};
    const Plan told = plan_with("anneal", graph, below);
    CHECK_FALSE(told.within_budget());
    CHECK(told.peak <= within.budget);
  }
}

TEST_CASE("what cannot fit is at least fast for its peak") {
  const StepGraph graph = chain_step(6);
  const Plan told = plan_with("anneal", graph, {.budget = floor_bytes(graph) - Bytes{1}});
  const Plan planned = plan_with("anneal", graph, {.budget = told.peak});
  CHECK(told.peak == planned.peak);
  CHECK(told.time == planned.time);
}

TEST_CASE("a graph without nodes has nothing to plan") {
  GraphBuilder b{"empty"};
  b.add_value({.id = 0, .bytes = Bytes{100}, .role = Role::parameter, .persistent = true});
  const StepGraph graph = std::move(b).build();
  for (std::string_view name : strategy_names) {
    CAPTURE(name);
    const Plan plan = plan_with(name, graph, {.budget = 60_B});
    CHECK(plan.schedule.empty());
    CHECK(plan.peak == 100_B);
    CHECK_FALSE(plan.within_budget());
  }
}

TEST_CASE("same seed, same plan") {
  Rng rng{3};
  const StepGraph graph = layered_graph(rng, {.nodes = 120});
  const PlanRequest request{.budget = share(graph, 85), .seed = 5};
  CHECK(Planner{}.plan(graph, request).schedule == Planner{}.plan(graph, request).schedule);
}

TEST_CASE("nodes pinned to be kept are not recomputed, pinned to be recomputed are") {
  const StepGraph graph = chain_step(30);
  PlanRequest request{.budget = share(graph, 60), .keep_order = true, .effort = 0.1};
  request.keep = {NodeId{3}, NodeId{4}};
  const auto runs = run_counts(graph, Planner{}.plan(graph, request).schedule);
  CHECK(runs[3] == 1);
  CHECK(runs[4] == 1);
  request.keep.clear();
  request.recompute = {NodeId{20}};
  CHECK(run_counts(graph, Planner{}.plan(graph, request).schedule)[20] > 1);
}

TEST_CASE("every strategy is held to pins and says how far it is") {
  const StepGraph graph = chain_step(12);
  for (std::string_view name : strategy_names) {
    CAPTURE(name);
    PlanRequest request{.budget = share(graph, 70), .keep_order = true, .effort = 0.1};
    request.keep = {NodeId{2}};
    request.recompute = {NodeId{7}};
    std::vector<double> shares;
    request.progress = [&](const PlanProgress& p) {
      CHECK(p.strategy == name);
      shares.push_back(p.share);
    };
    const Plan plan = plan_with(name, graph, request);
    const auto runs = run_counts(graph, plan.schedule);
    CHECK(runs[2] == 1);
    if (plan.within_budget()) CHECK(runs[7] > 1);
    REQUIRE(shares.size() >= 2);
    CHECK(shares.front() == 0);
    CHECK(shares.back() == 1);
    CHECK(std::is_sorted(shares.begin(), shares.end()));
  }
}

TEST_CASE("cancelling gives the best so far") {
  std::stop_source source;
  source.request_stop();
  Rng rng{4};
  const StepGraph graph = layered_graph(rng, {.nodes = 200});
  const Plan plan =
      Planner{}.plan(graph, {.budget = share(graph, 80), .cancel = source.get_token()});
  CHECK(simulate(graph, plan.schedule).valid);
}
