#pragma once
// ModelTensors lists a model's parameters and buffers by name. It accepts torch::nn modules, their
// holders and plain lists of parameters, and needs no header of torch::nn.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct ModelTensors {
  std::vector<NamedTensor> parameters{};
  std::vector<NamedTensor> buffers{};
};

/// A module, or a pointer to a module.
template <class Model>
concept ModuleLike = requires(Model& m) {
  m->named_parameters();
  m->named_buffers();
  m->modules();
  m->is_training();
};

/// A list of the tensors to train, for steps that are plain functions.
template <class Model>
concept ParameterList = requires(Model& m) {
  std::vector<at::Tensor>(m);
};

template <ModuleLike Model>
[[nodiscard]] ModelTensors tensors_of(const Model& model) {
  ModelTensors tensors;
  for (const auto& item : model->named_parameters())
    tensors.parameters.push_back({item.key(), item.value()});
  for (const auto& item : model->named_buffers())
    tensors.buffers.push_back({item.key(), item.value()});
  return tensors;
}

template <ParameterList Model>
[[nodiscard]] ModelTensors tensors_of(const Model& parameters) {
  ModelTensors tensors;
  std::size_t i = 0;
  for (const at::Tensor& p : std::vector<at::Tensor>(parameters))
    tensors.parameters.push_back({"parameter." + std::to_string(i++), p});
  return tensors;
}

}  // namespace reprise::tensors
