// What a loop keeps of a step: by hooks, in lists, as attributes, for the next step or for good.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// Hooks keep what they see until the next step, or for `steps` of them.
Program keeping(std::size_t steps, bool activations, bool gradients) {
  struct Kept {
    std::vector<std::vector<Tensor>> all{};
    std::vector<Tensor> flat() const {
      std::vector<Tensor> tensors;
      for (const auto& some : all) tensors.insert(tensors.end(), some.begin(), some.end());
      return tensors;
    }
  };
  auto stack = std::make_shared<Stack>(6);
  auto kept = std::make_shared<Kept>();
  const Tensor x = torch::randn({256, 64});
  return {[=](int) {
            if (kept->all.size() == steps) kept->all.erase(kept->all.begin());
            kept->all.emplace_back();
            stack->layers->zero_grad();
            stack
                ->forward(x,
                          [&](const Tensor& h, int layer) {
                            const Tensor made = torch::gelu(h);
                            if (activations && layer % 2 == 0)
                              kept->all.back().push_back(made.detach());
                            if (gradients && layer % 2 == 1)
                              made.register_hook(
                                  [kept](const Tensor& g) { kept->all.back().push_back(g); });
                            return made;
                          })
                .pow(2)
                .mean()
                .backward();
            const torch::NoGradGuard no_grad;
            for (Tensor& p : stack->layers->parameters()) p.sub_(p.grad() * 0.01);
          },
          [=] {
            std::vector<Tensor> all = all_of(*stack->layers);
            for (const Tensor& t : kept->flat()) all.push_back(t);
            return all;
          }};
}

/// At budgets that the loop cannot go below, nothing is above the budget without a word.
void check_kept(const std::function<Program()>& make) {
  for (const WildOutcome& outcome : check_wild(make))
    for (const GuidedStepReport& step : outcome.steps)
      CHECK((step.over_budget || step.budget == 0_B || step.peak <= step.budget));
}

}  // namespace

TEST_CASE("activations are kept until the next step", "[wild]") {
  check_kept([] { return keeping(1, true, false); });
}

TEST_CASE("gradients of activations are kept until the next step", "[wild]") {
  check_kept([] { return keeping(1, false, true); });
}

TEST_CASE("activations and gradients are kept for three steps", "[wild]") {
  check_kept([] { return keeping(3, true, true); });
}
