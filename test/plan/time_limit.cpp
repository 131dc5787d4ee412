// A limit in seconds holds for everything that a planner does for one request, however large the
// graph is, and whether the budget can be met or not.

#include <reprise_test/catch.hpp>

#include <reprise/plan/advice.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;

namespace {

struct Large {
  const char* name = "";
  StepGraph graph{};
};

std::vector<Large> large_graphs() {
  Rng rng{3};
  std::vector<Large> graphs;
  graphs.push_back({"chain", chain_step(2000)});
  graphs.push_back({"residual", resnet_step({.blocks = 150})});
  graphs.push_back({"layered", layered_graph(rng, {.nodes = 4000})});
  return graphs;
}

Bytes between(const StepGraph& graph, double percent) {
  const Bytes floor = floor_bytes(graph), own = simulate(graph, own_order(graph)).peak;
  return floor + share_of(percent, own - floor);
}

}  // namespace

TEST_CASE("every strategy stops soon after its time is over, and starts no clock anew") {
  for (const Large& large : large_graphs()) {
    for (const std::string_view strategy : strategy_names) {
      for (const double percent : {0., 30.}) {
        std::int64_t asked = 0;
        PlanRequest request{
            .budget = between(large.graph, percent), .keep_order = true, .seconds = 0.1};
        // a hundred looks at the clock
        request.clock = [&] { return 1e-3 * static_cast<double>(++asked); };
        const double start = thread_seconds();
        const Plan plan = plan_with(strategy, large.graph, request);
        INFO(large.name << ", " << strategy << ", " << percent << " %: " << asked << " looks, "
                        << thread_seconds() - start << " s");
        CHECK(asked <= 300);
        CHECK(simulate(large.graph, plan.schedule).valid);
      }
    }
  }
}

TEST_CASE("the clock is looked at often: what comes before a search is limited as well") {
  const StepGraph graph = chain_step(24'000);
  for (const std::string_view strategy : strategy_names) {
    const double start = thread_seconds();
    static_cast<void>(plan_with(
        strategy, graph, {.budget = floor_bytes(graph), .keep_order = true, .seconds = 0.3}));
    INFO(strategy << ": " << thread_seconds() - start << " s of processor time");
    // mu-two's candidates alone took 8; a sanitizer makes all of it slower
    CHECK(thread_seconds() - start < (strategy == "mu-two" ? 3 : 20));
  }
}

TEST_CASE("advice takes the seconds of its request, for all budgets that it tries") {
  const StepGraph graph = resnet_step({.blocks = 60});
  std::int64_t asked = 0;
  PlanRequest request{.keep_order = true, .seconds = 1};
  request.clock = [&] { return 1e-3 * static_cast<double>(++asked); };
  const Advice advice = advise(graph, request);
  CHECK(asked <= 2000);
  CHECK(advice.smallest < advice.unconstrained);
  CHECK(advice.smallest >= advice.floor);
}

TEST_CASE("a request's time counts from its start, on each thread anew") {
  double now = 10;
  PlanRequest request{.seconds = 2};
  request.clock = [&] { return now; };
  const PlanRequest begun = started(request);
  CHECK(begun.until == 12);
  now = 11;
  CHECK(started(begun).until == 12);
  CHECK(started_anew(begun).until == 13);
  CHECK(seconds_left(begun) == 1);
  CHECK(with_share(begun, 0.25).until == 11.25);
  CHECK_FALSE(StopSignal{begun}());
  now = 12;
  CHECK(StopSignal{begun}());
  CHECK_FALSE(StopSignal{PlanRequest{}}());
  CHECK(with_share(PlanRequest{}, 0.5).until == 0);
}
