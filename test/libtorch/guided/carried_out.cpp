// When a plan counts as carried out: all that it recomputes has been recomputed, whatever came
// afterwards.

#include <torch/torch.h>

#include <algorithm>

#include <reprise/libtorch.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::literals;
using torch::Tensor;

namespace {

/// tanh runs again right before neg, which comes last.
Plan tanh_again_at_the_end(const StepGraph& graph, const PlanRequest& request) {
  Plan plan = plan_own_order(graph);
  const auto node = [&](std::string_view op) {
    return std::ranges::find_if(plan.schedule, [&](NodeId n) { return graph.node(n).op == op; });
  };
  if (node("aten::neg") == plan.schedule.end()) return plan;
  plan.schedule.insert(node("aten::neg"), NodeId{*node("aten::tanh")});
  plan.peak = simulate(graph, plan.schedule).peak;
  plan.budget = request.budget;
  return plan;
}

}  // namespace

// The recomputation stands before the op at which the step ends: it was not run. leave_plan() asks
// whether the next node is at or behind it; what counts is whether the occurrences before that
// node have run.
TEST_CASE("a step that ends right before its last recomputation has not carried its plan out",
          "[guided][.carried_out]") {
  const Tensor x = torch::randn({256, 64});
  MemoryBudget budget{
      cpu_memory().live() + Bytes{4 * 256 * 64 * 4} + 32_KiB,
      {.run = {.planner = tanh_again_at_the_end, .refine = false}, .plan_in_background = false}};
  const auto run = [&](bool whole) {
    const torch::NoGradGuard no_grad;
    auto step = budget.step();
    const Tensor h = torch::tanh(x);
    static_cast<void>(torch::full({4 * 256, 64}, 2.0f));
    static_cast<void>(h.numel());
    if (whole) static_cast<void>(h.neg());
  };
  for (int i = 0; i < 3; ++i) run(true);
  REQUIRE(budget.last().planned);
  REQUIRE(budget.last().recomputed == 1);
  run(false);
  CHECK(budget.last().recomputed == 0);
  CHECK(budget.last().left_because == "the step ended early");
  CHECK_FALSE(budget.last().planned);
}
