// Storages are shared until they are written, emptied and filled again, replaced, or mapped from files.

#include <cstdio>
#include <fstream>

#include <ATen/native/Resize.h>
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

TEST_CASE("storages are emptied and filled again, as sharded parameters are", "[wild]") {
  check_wild([] {
    torch::manual_seed(2);
    const Tensor x = torch::randn({128, 64});
    std::vector<Tensor> shards, full;
    for (int i = 0; i < 4; ++i) {
      shards.push_back(torch::randn({64 * 64}) * 0.1);
      full.push_back(torch::empty({64, 64}).requires_grad_());
      at::native::resize_bytes_cpu(full.back().storage().unsafeGetStorageImpl(), 0);
    }
    const auto gather = [=](int i) {
      const torch::NoGradGuard no_grad;
      const Tensor t = full[static_cast<std::size_t>(i)].variable_data();  // autograd counts no write
      at::native::resize_bytes_cpu(t.storage().unsafeGetStorageImpl(), 64 * 64 * sizeof(float));
      t.view({-1}).copy_(shards[static_cast<std::size_t>(i)]);
    };
    const auto reshard = [=](int i) {
      at::native::resize_bytes_cpu(full[static_cast<std::size_t>(i)].storage().unsafeGetStorageImpl(), 0);
    };
    return Program{.step =
                       [=](int) {
                         Tensor h = x;
                         for (int i = 0; i < 4; ++i) {
                           gather(i);
                           h = torch::gelu(torch::mm(h, full[static_cast<std::size_t>(i)]));
                           h.register_hook([=](const Tensor&) { gather(i); });
                           if (i < 3) reshard(i);
                         }
                         h.pow(2).mean().backward();
                         const torch::NoGradGuard no_grad;
                         for (int i = 0; i < 4; ++i) {
                           Tensor shard = shards[static_cast<std::size_t>(i)];
                           Tensor whole = full[static_cast<std::size_t>(i)];
                           shard.sub_(whole.grad().view({-1}) * 0.1);
                           whole.mutable_grad() = Tensor();
                           reshard(i);
                         }
                       },
                   .state = [=] { return shards; }};
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
      Tensor mapped = torch::from_file(file, /*shared=*/true, 64 * 64, torch::kFloat).view({64, 64});
      const Tensor before = mapped * 2;
      mapped.add_(h.narrow(0, 0, 64) * 0.1);
      return before + torch::gelu(mapped);
    });
  });
}
