// What every op of a training step costs: captured once, run node by node, left as it was.

#include <iostream>

#include <torch/torch.h>

#include <reprise/libtorch.hpp>
#include <reprise/reprise.hpp>

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(256, 1024), torch::nn::ReLU(),
                              torch::nn::Linear(1024, 10));
  const auto x = torch::randn({64, 256});
  const auto y = torch::randint(10, {64});
  const auto loss = [&](const torch::Tensor& in, const torch::Tensor& target) {
    return torch::cross_entropy_loss(model->forward(in), target);
  };

  auto step = reprise::capture(model.ptr(), loss, x, y);  // one training step: it fills .grad
  model->zero_grad();

  reprise::Profiler<reprise::SteadyTimer, reprise::AllocatorProbe> profiler;
  const reprise::Profile profile = profiler.run(step, {.warmup = 1, .runs = 5});
  reprise::print_stats(std::cout, profile);

  // The graph in the profile has the measured times: it is what a planner is given.
  std::cout << "\nThe step's own peak is "
            << reprise::format_bytes(reprise::simulate(profile, reprise::own_order(profile)).peak)
            << '\n';
}
