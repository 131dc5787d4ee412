// The program of the README.

#include <iostream>

#include <torch/torch.h>
#include <reprise/libtorch.hpp>

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(64, 256), torch::nn::ReLU(),
                              torch::nn::Linear(256, 10));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  reprise::TrainStep step{model, [&](torch::Tensor x, torch::Tensor y) {
                            return torch::cross_entropy_loss(model->forward(x), y);
                          }};

  for (int i = 0; i < 100; ++i) {
    auto x = torch::randn({32, 64}), y = x.argmax(1).remainder(10);
    optimizer.zero_grad();
    // forward and backward, from the captured graph: same loss, same .grad, to the last bit
    auto loss = step(x, y);
    optimizer.step();
    if (i % 33 == 0) std::cout << "step " << i << ": loss " << loss.item<float>() << '\n';
  }
  std::cout << "captured " << step.counters().captures << ", replayed " << step.counters().replays
            << ", rechecked " << step.counters().rechecks << '\n';
}
