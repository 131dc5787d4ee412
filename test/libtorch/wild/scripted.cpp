// A function in TorchScript runs inside of the step.

#include <torch/script.h>

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

const char* const source = R"(
def mix(x, w):
    y = torch.tanh(x)
    for i in range(3):
        y = torch.sigmoid(y) * x + y
    if bool(y.sum() > 0):
        y = torch.mm(y, w)
    z = torch.chunk(y, 2, 1)
    return torch.cat([z[1], z[0]], 1) + x
)";

}  // namespace

TEST_CASE("a scripted function in a tight budget", "[wild]") {
  check_wild(
      [] {
        // its first runs are profiled, and others optimized
        const auto unit = torch::jit::compile(source);
        const Tensor w = torch::randn({64, 64}) * 0.1;
        return stack_with(
            [=](const Tensor& h, int) { return unit->run_method("mix", h, w).toTensor(); });
      },
      {.steps = 6});
}

TEST_CASE("a scripted function whose gradients are wanted", "[wild]") {
  check_wild(
      [] {
        const auto unit = torch::jit::compile(source);
        torch::manual_seed(6);
        const Tensor w = (torch::randn({64, 64}) * 0.1).requires_grad_();
        return Program{.step =
                           [=](int) {
                             Tensor h = torch::ones({128, 64});
                             for (int i = 0; i < 4; ++i)
                               h = torch::gelu(unit->run_method("mix", h, w).toTensor());
                             h.pow(2).mean().backward();
                             const torch::NoGradGuard no_grad;
                             Tensor p = w;
                             p.sub_(p.grad() * 0.01);
                             p.grad().zero_();
                           },
                       .state = [=] { return std::vector<Tensor>{w}; }};
      },
      {.steps = 6});
}
