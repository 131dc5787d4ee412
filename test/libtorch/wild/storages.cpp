// Storages are shared until they are written, replaced, or mapped from files.

#include <fstream>

#include <ATen/native/Resize.h>
#include <ATen/ops/_lazy_clone.h>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::checkpointing;
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

namespace {

// As FSDP does between the uses of a parameter: no op tells of it.
void resize_behind_the_dispatcher(const Tensor& tensor, std::size_t bytes) {
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), bytes);
}
std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel()) * static_cast<std::size_t>(tensor.element_size());
}

// Weights that are whole only while their layer runs, forward and backward.
struct Sharded {
  std::vector<Tensor> shards, whole;

  explicit Sharded(std::int64_t width) {
    for (int i = 0; i < 4; ++i) {
      shards.push_back(torch::randn({width, width}) * 0.1);
      whole.push_back(torch::empty({width, width}));
      resize_behind_the_dispatcher(whole.back(), 0);
    }
  }
  void gather(std::size_t i) const {
    const torch::NoGradGuard no_grad;
    if (whole[i].storage().nbytes() == 0)
      resize_behind_the_dispatcher(whole[i], bytes_of(shards[i]));
    whole[i].copy_(shards[i]);
  }
  void free(std::size_t i) const { resize_behind_the_dispatcher(whole[i], 0); }
};

}  // namespace

TEST_CASE("storages are resized to nothing and filled again", "[wild]") {
  const auto width = GENERATE(std::int64_t{16}, std::int64_t{96});
  check_wild([=] {
    auto weights = std::make_shared<Sharded>(width);
    const Tensor x = torch::randn({256, width});
    return Program{.step =
                       [=](int) {
                         const torch::NoGradGuard no_grad;
                         std::vector<Tensor> inputs{x}, sums;
                         for (std::size_t i = 0; i < 4; ++i) {
                           weights->gather(i);
                           sums.push_back(inputs.back().mm(weights->whole[i]));
                           weights->free(i);
                           inputs.push_back(torch::gelu(sums.back()));
                         }
                         Tensor grad = inputs.back() * (1.0 / 128);
                         for (std::size_t i = 4; i-- > 0;) {
                           weights->gather(i);
                           grad = grad * torch::sigmoid(sums[i]);
                           const Tensor d = inputs[i].t().mm(grad);
                           grad = grad.mm(weights->whole[i].t());
                           weights->free(i);
                           weights->shards[i].sub_(d * 0.1);
                         }
                       },
                   .state = [=] { return weights->shards; }};
  });
}

TEST_CASE("a storage made in the step loses its block to the host, and gets another", "[wild]") {
  WildOptions wild;
  wild.options.raw_pointers = true;  // else asking an evicted tensor for its block is an error
  const auto program = [] {
    return stack_with([](const Tensor& h, int i) {
      const torch::NoGradGuard no_grad;
      const Tensor t = torch::gelu(h), scaled = t * 2, late = torch::sigmoid(scaled);
      const std::size_t bytes = bytes_of(t);
      if (i % 2 == 0) resize_behind_the_dispatcher(t, 0);
      else
        t.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
            c10::GetCPUAllocator()->allocate(bytes));
      if (i % 2 == 0) resize_behind_the_dispatcher(t, bytes);
      t.fill_(0.25);
      return scaled + late * t;
    });
  };
  check_wild(program, wild);
}
