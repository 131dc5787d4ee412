// Storages are shared until they are written, replaced, or mapped from files.

#include <fstream>

#include <ATen/ops/_lazy_clone.h>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::testing;
using reprise_test::TempDir;
using torch::Tensor;

TEST_CASE("copies that share memory until one of them is written", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int i) {
      const torch::NoGradGuard no_grad;
      const Tensor t = torch::gelu(h);
      Tensor copy = at::_lazy_clone(t), another = at::_lazy_clone(copy);
      const Tensor before = copy * 2;
      if (i % 2 == 0) copy.mul_(0.5);
      another.narrow(0, 0, 3).add_(1);
      return before + copy + another + t;
    });
  });
}

TEST_CASE("a copy of a parameter that shares its memory until the optimizer writes", "[wild]") {
  check_wild([] {
    auto stack = std::make_shared<Stack>(4);
    auto before = std::make_shared<Tensor>();
    const Tensor x = torch::randn({128, 64});
    return Program{.step =
                       [=](int) {
                         stack->layers->zero_grad();
                         const Tensor p = stack->layers->parameters()[0];
                         *before = at::_lazy_clone(p.detach());
                         stack->forward(x, gelu).pow(2).mean().backward();
                         const torch::NoGradGuard no_grad;
                         for (Tensor& q : stack->layers->parameters()) q.sub_(q.grad() * 0.01);
                       },
                   .state =
                       [=] {
                         std::vector<Tensor> all = all_of(*stack->layers);
                         all.push_back(*before);
                         return all;
                       }};
  });
}

TEST_CASE("a tensor gets another one's data in the middle of a step", "[wild]") {
  check_wild([] {
    return stack_with([](const Tensor& h, int) {
      const torch::NoGradGuard no_grad;
      Tensor t = torch::gelu(h), other = h * 3;
      const Tensor before = t * 2;
      t.set_data(other);
      other.add_(1);
      Tensor third = torch::empty({0});
      third.set_(t);
      third.mul_(0.5);
      return before + t + other + third.sum();
    });
  });
}

TEST_CASE("a file is mapped in the step, and written through the mapping", "[wild]") {
  const TempDir folder;
  const std::string file = folder / "weights";
  check_wild([&] {
    std::ofstream(file, std::ios::binary) << std::string(64 * 64 * sizeof(float), '\0');
    return stack_with([=](const Tensor& h, int) {
      const torch::NoGradGuard no_grad;
      Tensor mapped =
          torch::from_file(file, /*shared=*/true, 64 * 64, torch::kFloat).view({64, 64});
      const Tensor before = mapped * 2;
      mapped.add_(h.narrow(0, 0, 64) * 0.1);
      return before + torch::gelu(mapped);
    });
  });
}
