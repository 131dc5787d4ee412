// Tensors over one piece of memory that LibTorch does not know to be one: from_blob over another
// tensor's bytes, since before the step.

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// A stack that reads its input many times, while `meddle` writes through an alias of it after the
/// first pass.
Program aliased(const std::function<void(const Tensor& alias, int step)>& meddle,
                bool of_parameter = false) {
  auto stack = std::make_shared<Stack>(4);
  auto loss = std::make_shared<Tensor>();
  const Tensor x = torch::randn({128, 64});
  const Tensor target = of_parameter ? stack->layers->parameters()[0].detach() : x;
  const Tensor alias = torch::from_blob(target.data_ptr(), target.sizes());
  return {[=](int i) {
            stack->layers->zero_grad();
            const Tensor once = stack->forward(x, gelu) * x;
            Tensor now = once.pow(2).mean();
            now.backward();
            {
              const torch::NoGradGuard no_grad;
              const Tensor before = stack->forward(x, gelu);
              meddle(alias, i);
              const Tensor after = stack->forward(x, gelu);
              *loss = now.detach() + before.sum() + after.mean() + alias.abs().sum();
            }
          },
          [=] {
            std::vector<Tensor> all = all_of(*stack->layers);
            all.push_back(*loss);
            all.push_back(x);
            return all;
          }};
}

}  // namespace

TEST_CASE("an op writes an input through an alias from before the step", "[wild]") {
  check_wild([] { return aliased([](const Tensor& alias, int) { alias.mul_(0.9); }); });
}

TEST_CASE("an op writes a parameter through an alias from before the step", "[wild]") {
  check_wild([] { return aliased([](const Tensor& alias, int) { alias.sub_(0.01); }, true); });
}

TEST_CASE("an op reads an input through an alias from before the step", "[wild]") {
  check_wild(
      [] { return aliased([](const Tensor& alias, int) { static_cast<void>(alias.sum()); }); });
}

TEST_CASE("two aliases that overlap by half", "[wild]") {
  check_wild([] {
    auto memory = std::make_shared<std::vector<float>>(3 * 4096, 0.25f);
    const Tensor low = torch::from_blob(memory->data(), {8192}),
                 high = torch::from_blob(memory->data() + 4096, {8192});
    return Program{.step =
                       [=](int i) {
                         static_cast<void>(memory);  // kept for as long as the tensors over it
                         const Tensor a = low.tanh(), b = a * 2;
                         high.add_(0.125 * (i + 1));
                         low.add_(b).mul_(a + b);
                       },
                   .state =
                       [=] {
                         return std::vector<Tensor>{low, high};
                       }};
  });
}

TEST_CASE("a capture whose tensors lie in the same memory is not replayed") {
  const Tensor x = torch::randn({4, 8}), alias = torch::from_blob(x.data_ptr(), {4, 8});
  Tensor p = torch::ones({8}).requires_grad_();
  TrainStep step{std::vector<Tensor>{p}, [&](const Tensor& scale) {
                   alias.mul_(scale);
                   return (p * x).sum();
                 }};
  for (int i = 0; i < 4; ++i) step(torch::full({1}, 0.5));
  CHECK(step.counters().replays == 0);
}
