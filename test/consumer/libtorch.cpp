#include <iostream>

#include <reprise/libtorch.hpp>
#include <torch/nn/modules/linear.h>

int main() {
  torch::nn::Linear model(4, 2);
  reprise::TrainStep step{model, [&](torch::Tensor x) { return model->forward(x).square().mean(); }};
  for (int i = 0; i < 6; ++i) {  // the second to fourth are compared with what was captured
    model->zero_grad();
    step(torch::randn({8, 4}));
  }
  std::cout << "captured " << step.counters().captures << ", replayed " << step.counters().replays << '\n';
}
