// Steps that cannot stay inside their budget: above it by what one op needs at once, and by no
// more.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::testing;
using torch::Tensor;

namespace {

constexpr std::int64_t side = 128;
constexpr Bytes size{side * side * 4};

/// A chain of which everything is kept, one op that reads six of its values and makes as much
/// again, then the chain from its end on.
struct Chain {
  Tensor x = torch::rand({side, side});
  int length = 0;
  Tensor result{};
  Bytes start{};  // beside x, which can be spilled

  explicit Chain(int n)
      : length(n), result(torch::zeros({1})), start(device_memory().live() - size) {}
  void operator()() {
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> kept{x};
    for (int i = 1; i < length; ++i) kept.push_back(torch::tanh(kept.back()));
    result.add_(torch::cat({kept[1], kept[2], kept[3], kept[4], kept[5], kept[6]})
                    .narrow(0, 0, 1)
                    .narrow(1, 0, 1)
                    .view({1}));
    for (int i = length - 1; i > 0; --i)
      result.add_(kept[static_cast<std::size_t>(i)].narrow(0, i, 1).narrow(1, i, 1).view({1}));
  }
};

/// What of the process is not the step's, and 12 of the chain's tensors: what cat() reads and
/// makes.
Bytes needed(const Chain& chain) { return chain.start + Bytes{12 * size.count}; }

/// Four of the chain's tensors: enough for every op but one.
Bytes too_little(const Chain& chain) { return chain.start + Bytes{4 * size.count}; }

}  // namespace

TEST_CASE("a step goes above its budget by what one op needs, and no further", "[wild]") {
  Chain eager(60), chain(60);
  chain.x.copy_(eager.x);
  BasicMemoryBudget<LeastRecentlyUsed> budget{
      too_little(chain), {.run = {.max_plans = 0}, .over_budget = OverBudget::go_on}};
  for (int i = 0; i < 3; ++i) {
    eager();
    {
      auto step = budget.step();
      chain();
    }
    INFO("step " << i << ": " << budget.last().recomputed << " again");
    CHECK(budget.last().over_budget);
    CHECK(budget.last().peak == needed(chain));
    CHECK(chain.result.equal(eager.result));
  }
}

TEST_CASE(
    "a step that went above its budget is not squeezed below what it needs when it comes again",
    "[wild]") {
  Chain eager(10), chain(10);
  chain.x.copy_(eager.x);
  BasicMemoryBudget<LeastRecentlyUsed> budget{
      too_little(chain), {.run = {.max_plans = 0}, .over_budget = OverBudget::go_on}};
  std::vector<GuidedStepReport> steps;
  for (int i = 0; i < 3; ++i) {
    eager();
    {
      auto step = budget.step();
      chain();
    }
    steps.push_back(budget.last());
    CHECK(steps.back().over_budget);
    CHECK(steps.back().peak == needed(chain));
    CHECK(chain.result.equal(eager.result));
  }
  // The four of the chain's ten tensors that cat() does not read go once, for cat().
  CHECK(steps[0].evicted > 4);
  CHECK(steps[1].evicted == 4);
  CHECK(steps[2].evicted == 4);
  CHECK(steps[1].recomputed <= steps[0].recomputed);

  // Another sequence of ops knows nothing of it: it stays inside the budget.
  {
    auto step = budget.step();
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> kept{chain.x};
    for (int i = 1; i < 10; ++i) kept.push_back(torch::sin(kept.back()));
    kept.erase(kept.begin(), kept.end() - 1);
  }
  CHECK_FALSE(budget.last().over_budget);
  CHECK(budget.last().peak <= too_little(chain));
}

TEST_CASE("a budget below what can be held costs no more than its bound, step after step",
          "[wild]") {
  const auto make = [] { return stack_program(gelu); };
  const Reference expected = reference(make, 4);
  Program program = make();
  const Bytes start = device_memory().live();
  MemoryBudget budget{start + 1_KiB,
                      {.run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}},
                       .plan_in_background = false,
                       .over_budget = OverBudget::go_on}};
  for (int i = 0; i < 4; ++i) {
    torch::manual_seed(static_cast<std::uint64_t>(50 + i));
    {
      auto step = budget.step();
      program.step(i);
    }
    const std::size_t calls = budget.graph().node_count();
    INFO("step " << i << ": " << calls << " calls, " << budget.last().recomputed << " again, "
                 << budget.last().evicted << " evicted");
    CHECK(budget.last().over_budget);
    // small tensors are not spilled
    CHECK(budget.last().peak <= start - expected.start + expected.floor + 4_KiB);
    CHECK(budget.last().recomputed <=
          Rematerializer::recompute_bound(calls) + static_cast<std::int64_t>(calls));
    CHECK((contents(program.state()) == expected.states[static_cast<std::size_t>(i)]));
  }
}
