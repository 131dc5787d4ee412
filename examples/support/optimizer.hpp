#pragma once
// The optimizers that the example programs offer, by name: "sgd" (momentum 0.9) and "adam".

#include <memory>
#include <string_view>

#include <torch/torch.h>
#include <reprise/base/error.hpp>

namespace examples {

[[nodiscard]] inline std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    std::string_view name, const torch::nn::Module& module) {
  if (name == "sgd")
    return std::make_unique<torch::optim::SGD>(module.parameters(),
                                               torch::optim::SGDOptions(0.01).momentum(0.9));
  if (name == "adam")
    return std::make_unique<torch::optim::Adam>(module.parameters(),
                                                torch::optim::AdamOptions(1e-3));
  throw reprise::Error(reprise::Errc::bad_argument,
                       "no optimizer '" + std::string(name) + "'; there are sgd and adam");
}

}  // namespace examples
