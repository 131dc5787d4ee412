// How far a plan was followed: to its end, to behind its last recomputation, or not so far.

#include <reprise_test/guided.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

constexpr std::int64_t count = 1 << 18;  // 1 MiB

enum class Variant { planned, other_sum, other_last };

/// h is needed at the beginning and at the end, and q, in the middle, is what takes most.
struct Loop {
  Tensor x = torch::rand({count}), result{};

  void operator()(Variant variant) {
    const torch::NoGradGuard no_grad;
    const Tensor h = torch::tanh(x), r = torch::tanh(h), q = torch::cat({r, r, r}),
                 rows = q.view({3, -1}),
                 s = variant == Variant::other_sum ? rows.amax(0) : rows.sum(0);
    result = variant == Variant::other_last ? h * s : h + s;
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
  // all seven MiB do not fit, and five without h do
  MemoryBudget budget{
      cpu_memory().live() + 6_MiB,
      {.run = {.planner = recompute_before_sum, .refine = false}, .plan_in_background = false}};
  const auto run = [&](Variant variant) {
    loop.result.reset();
    {
      auto step = budget.step();
      loop(variant);
    }
    eager(variant);
    CHECK(loop.result.equal(eager.result));
    eager.result.reset();
    return budget.last();
  };
  static_cast<void>(run(Variant::planned));
  const GuidedStepReport followed = run(Variant::planned);
  CHECK(followed.planned);
  CHECK(followed.recomputed == 1);
  CHECK(followed.divergence.empty());
  CHECK(followed.peak == followed.predicted_peak);

  // the sum is another op: before it h has been recomputed, as planned
  const GuidedStepReport at_the_sum = run(Variant::other_last);
  CHECK(at_the_sum.divergence == "another op came");
  CHECK(at_the_sum.planned);
  CHECK(at_the_sum.recomputed == 1);

  // one op earlier it has not
  const GuidedStepReport before_it = run(Variant::other_sum);
  CHECK(before_it.divergence == "another op came");
  CHECK(before_it.diverged_at + 1 == at_the_sum.diverged_at);
  CHECK_FALSE(before_it.planned);
}
