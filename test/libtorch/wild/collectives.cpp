// Ops of other libraries that write without saying so, as c10d's collectives do.

#include <torch/library.h>

#include <reprise_test/wild.hpp>

using namespace reprise;
using namespace reprise::tensors;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// Its schema has no mark that says it writes; c10d::allreduce_'s has none either.
std::vector<Tensor> sum_over_ranks(at::TensorList tensors, double ranks) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
  for (const Tensor& t : tensors) t.mul_(ranks);
  return tensors.vec();
}

void gather_over_ranks(const std::vector<std::vector<Tensor>>& outputs, at::TensorList inputs) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
  for (std::size_t i = 0; i < outputs.size(); ++i)
    for (std::size_t rank = 0; rank < outputs[i].size(); ++rank) {
      Tensor output = outputs[i][rank];
      output.copy_(inputs[i] * static_cast<double>(rank + 1));
    }
}

void define_once() {
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::FRAGMENT, "wild_ranks", std::nullopt, __FILE__,
                                    __LINE__);
    made->def("all_reduce_(Tensor[] tensors, float ranks) -> Tensor[]");
    made->impl("all_reduce_", c10::DispatchKey::CPU, sum_over_ranks);
    made->def("all_gather_(Tensor[][] outputs, Tensor[] inputs) -> ()");
    made->impl("all_gather_", c10::DispatchKey::CPU, gather_over_ranks);
    return made;
  }();
  static_cast<void>(library);
}

void all_reduce(const std::vector<Tensor>& tensors, double ranks) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("wild_ranks::all_reduce_", "")
                             .typed<std::vector<Tensor>(at::TensorList, double)>();
  const torch::NoGradGuard no_grad;
  static_cast<void>(op.call(tensors, ranks));
}

void all_gather(const std::vector<std::vector<Tensor>>& outputs,
                const std::vector<Tensor>& inputs) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("wild_ranks::all_gather_", "")
          .typed<void(const std::vector<std::vector<Tensor>>&, at::TensorList)>();
  const torch::NoGradGuard no_grad;
  op.call(outputs, inputs);
}

}  // namespace

TEST_CASE("what was computed from a local gradient is not recomputed from the reduced one",
          "[wild]") {
  define_once();
  check_wild([] {
    auto stack = std::make_shared<Stack>(6);
    auto seen = std::make_shared<std::vector<Tensor>>();
    const Tensor x = torch::randn({128, 64});
    return Program{.step =
                       [=](int) {
                         seen->clear();
                         stack->layers->zero_grad();
                         stack->forward(x, gelu).pow(2).mean().backward();
                         const torch::NoGradGuard no_grad;
                         std::vector<Tensor> gradients, scaled;
                         for (const Tensor& p : stack->layers->parameters()) {
                           gradients.push_back(p.grad());
                           scaled.push_back(torch::tanh(p.grad() * 10));
                           seen->push_back(p.grad().norm());
                         }
                         all_reduce(gradients, 2);
                         std::size_t i = 0;
                         for (Tensor& p : stack->layers->parameters()) {
                           seen->push_back(scaled[i] + p.grad());
                           p.sub_(p.grad() * 0.01 + scaled[i++] * 0.001);
                         }
                       },
                   .state =
                       [=] {
                         std::vector<Tensor> all = all_of(*stack->layers);
                         all.insert(all.end(), seen->begin(), seen->end());
                         return all;
                       }};
  });
}

TEST_CASE("a collective writes parameters and buffers from before the step", "[wild]") {
  define_once();
  check_wild([] {
    auto stack = std::make_shared<Stack>(4);
    const Tensor x = torch::randn({128, 64}), running = torch::ones({64});
    return Program{.step =
                       [=](int) {
                         stack->layers->zero_grad();
                         Tensor h = stack->forward(x, gelu) * running;
                         const Tensor before = torch::gelu(h * running);
                         all_reduce({running}, 0.75);
                         (before + torch::gelu(h * running)).pow(2).mean().backward();
                         const torch::NoGradGuard no_grad;
                         for (Tensor& p : stack->layers->parameters()) p.sub_(p.grad() * 0.01);
                         all_reduce(stack->layers->parameters(), 0.99);
                       },
                   .state =
                       [=] {
                         std::vector<Tensor> all = all_of(*stack->layers);
                         all.push_back(running);
                         return all;
                       }};
  });
}

TEST_CASE("a collective writes into lists of lists", "[wild]") {
  define_once();
  check_wild([] {
    const Tensor kept = torch::zeros({128, 64});
    return stack_with(
        [=](const Tensor& h, int i) {
          const torch::NoGradGuard no_grad;
          std::vector<Tensor> made{torch::zeros({128, 64}), torch::gelu(h) * 2};
          const Tensor before = torch::tanh(made[0]) + torch::tanh(made[1]) * 2;
          all_gather({{made[0], kept}, {made[1]}}, {h, torch::gelu(h * (1 + i))});
          return before + torch::tanh(made[0]) + torch::gelu(made[1]) + kept;
        },
        {kept});
  });
}
