// How far a plan was followed: to its end, to behind its last recomputation, or not so far.

#include <reprise_test/guided.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

constexpr std::int64_t count = 1 << 18;  // 1 MiB

enum class EndsAt { last_op, sum, before_sum };

/// h is needed at the beginning and at the end, and q, in the middle, is what takes most.
struct Loop {
  Tensor x = torch::rand({count}), result{};

  void operator()(EndsAt end) {
    const torch::NoGradGuard no_grad;
    const Tensor h = torch::tanh(x), r = torch::tanh(h), q = torch::cat({r, r, r}),
                 s = q.view({3, -1}).sum(0);
    if (end == EndsAt::before_sum) {
      result = s;
      return;
    }
    const Tensor sum = h + s;
    result = end == EndsAt::sum ? sum : torch::neg(sum);
  }
};

/// The first op's result is recomputed before it is added; where nothing is added, nothing.
Plan recompute_before_sum(const StepGraph& graph, const PlanRequest& request) {
  Plan plan = plan_own_order(graph);
  plan.budget = request.budget;
  const auto adds = [&](NodeId n) { return graph.node(n).op == "aten::add"; };
  const auto place = std::ranges::find_if(plan.schedule, adds);
  if (place != plan.schedule.end()) plan.schedule.insert(place, NodeId{0});
  plan.peak = simulate(graph, plan.schedule).peak;
  return plan;
}

}  // namespace

TEST_CASE("a plan was carried out if all that it recomputes was recomputed", "[plan_follower]") {
  Loop eager, loop;
  loop.x.copy_(eager.x);
  // all eight MiB do not fit, and four without h do
  MemoryBudget budget{
      device_memory().live() + 6_MiB,
      {.run = {.planner = recompute_before_sum, .refine = false}, .plan_in_background = false}};
  const auto run = [&](EndsAt end) {
    loop.result.reset();
    {
      auto step = budget.step();
      loop(end);
    }
    eager(end);
    CHECK(loop.result.equal(eager.result));
    eager.result.reset();
    return budget.last();
  };
  static_cast<void>(run(EndsAt::last_op));
  const GuidedStepReport followed = run(EndsAt::last_op);
  CHECK(followed.planned);
  CHECK(followed.recomputed == 1);
  CHECK(followed.divergence.empty());
  CHECK(followed.peak == followed.predicted_peak);

  // h has been recomputed before the sum, as planned
  const GuidedStepReport at_the_sum = run(EndsAt::sum);
  CHECK(at_the_sum.divergence == "the step ended early");
  CHECK(at_the_sum.planned);
  CHECK(at_the_sum.recomputed == 1);

  // one op earlier it has not
  const GuidedStepReport before_it = run(EndsAt::before_sum);
  CHECK(before_it.divergence == "the step ended early");
  CHECK(before_it.diverged_at + 1 == at_the_sum.diverged_at);
  CHECK(before_it.recomputed == 0);
  CHECK_FALSE(before_it.planned);
}
