#pragma once
// A multilayer perceptron with dropout: the 784-1024-1024-1024-10 network of Srivastava et al.,
// "Dropout" (2014), Table 2.
//
//   layers.0.weight [1024, 784]   layers.3.weight [1024, 1024]   layers.6.weight [1024, 1024]   layers.9.weight [10, 1024]
//   2,913,290 parameters

#include <cmath>

#include <torch/torch.h>

#include "block.hpp"

namespace models {

struct MLPOptions {
  std::int64_t inputs = 784;
  std::int64_t hidden = 1024;
  std::int64_t hidden_layers = 3;
  std::int64_t classes = 10;
  double input_dropout = 0.2;
  double dropout = 0.5;
};

struct MLPImpl : torch::nn::Module {
  explicit MLPImpl(const MLPOptions& options = {}) : input_dropout(options.input_dropout) {
    std::int64_t width = options.inputs;
    for (std::int64_t i = 0; i < options.hidden_layers; ++i) {
      layers->push_back(torch::nn::Linear(width, options.hidden));
      layers->push_back(torch::nn::ReLU());
      layers->push_back(torch::nn::Dropout(options.dropout));
      width = options.hidden;
    }
    layers->push_back(torch::nn::Linear(width, options.classes));
    register_module("input_dropout", input_dropout);
    register_module("layers", layers);
    for (const auto& module : layers->modules(/*include_self=*/false))
      if (auto* linear = module->as<torch::nn::Linear>()) {
        torch::nn::init::kaiming_normal_(linear->weight, 0.0, torch::kFanIn, torch::kReLU);
        torch::nn::init::zeros_(linear->bias);
      }
  }

  torch::Tensor forward(const torch::Tensor& images) {
    const auto x = input_dropout(images.flatten(1));
    // Layers are too small to be blocks: as many of them together as there are such groups.
    if (CheckpointBlocks::on()) return reprise::checkpoint_sequential(layers, segments(), x);
    return layers->forward(x);
  }

  torch::nn::Dropout input_dropout;
  torch::nn::Sequential layers;

 private:
  [[nodiscard]] std::size_t segments() const {
    return static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(layers->size()))));
  }
};
TORCH_MODULE(MLP);

}  // namespace models
