// What needs no LibTorch, on several threads at once; scripts/test --ci runs this under the thread
// sanitizer.

#include <string_view>
#include <thread>

#include <reprise/plan/strategies.hpp>
#include <reprise/rewrite/backends/ir_backend.hpp>
#include <reprise/rewrite/rewriter.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::rewriting;
using namespace reprise::testing;

namespace {

struct Carried {
  Schedule schedule{};
  IrResult result{};
  bool operator==(const Carried&) const = default;
};

/// Plans for half of what can be saved, rewrites, lints, and runs the program symbolically.
Carried plan_and_run(const StepGraph& graph, std::string_view strategy) {
  const Bytes floor = floor_bytes(graph), own = simulate(graph, own_order(graph)).peak;
  PlanRequest request{.budget = floor + Bytes{(own - floor).count / 2}, .effort = 0.02};
  request.threads = 2;
  Plan plan = plan_with(strategy, graph, request);
  const IrResult result = Rewriter<IrBackend>{}.rewrite(graph, plan.schedule).run();
  return {std::move(plan.schedule), result};
}

}  // namespace

TEST_CASE("two threads plan, rewrite and run one graph, and each gets what one alone gets") {
  const StepGraph graph = resnet_step({.blocks = 4});
  const IrResult own = Rewriter<IrBackend>{}.rewrite(graph, own_order(graph)).run();
  for (const std::string_view strategy : {"anneal", "mu-two", "min-cut", "chain-dp", "portfolio"}) {
    INFO(strategy);
    const Carried alone = plan_and_run(graph, strategy);
    CHECK(alone.result == own);
    Carried here, there;
    {
      std::jthread other([&] { there = plan_and_run(graph, strategy); });
      here = plan_and_run(graph, strategy);
    }
    CHECK(here == alone);
    CHECK(there == alone);
  }
}
