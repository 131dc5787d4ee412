// What a node of a replayed step costs: a deep MLP of tiny layers, forward, backward and SGD, once
// as a TrainStep and once in eager mode. Time is by node of the TrainStep's graph in both rows.

#include <torch/torch.h>

#include <reprise/libtorch.hpp>

#include "micro.hpp"

namespace micro {

void measure_replay() {
  using namespace reprise::literals;
  torch::nn::Sequential model;
  for (int i = 0; i < 50; ++i) {
    model->push_back(torch::nn::Linear(16, 16));
    model->push_back(torch::nn::ReLU());
  }
  torch::optim::SGD sgd{model->parameters(), 1e-3};
  const at::Tensor x = torch::ones({4, 16}), y = torch::zeros({4, 16});
  const auto loss_of = [&](const at::Tensor& input, const at::Tensor& target) {
    return torch::mse_loss(model->forward(input), target);
  };
  reprise::TrainStep step{model, loss_of, {.budget = 1_GiB}};
  for (int i = 0; i < 4; ++i) {  // captured, then replayed
    sgd.zero_grad();
    step(x, y);
    sgd.step();
  }
  auto bench = table("replay", "node");
  bench.batch(step.graph().node_count());
  bench.run("forward and backward, TrainStep", [&] {
    sgd.zero_grad();
    doNotOptimizeAway(step(x, y).unsafeGetTensorImpl());
  });
  bench.run("forward and backward, eager", [&] {
    sgd.zero_grad();
    const at::Tensor loss = loss_of(x, y);
    loss.backward();
    doNotOptimizeAway(loss.unsafeGetTensorImpl());
  });
}

}  // namespace micro
