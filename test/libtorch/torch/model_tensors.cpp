// A model's tensors by name.

#include <torch/torch.h>

#include <string>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/model_tensors.hpp>

using namespace reprise::tensors;
using torch::Tensor;

namespace {

std::vector<std::string> names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> all;
  for (const NamedTensor& t : tensors) all.push_back(t.name);
  return all;
}
using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a module's parameters and buffers have their names, and are the tensors themselves") {
  const torch::nn::Sequential model(torch::nn::Linear(2, 3), torch::nn::BatchNorm1d(3));
  const ModelTensors found = tensors_of(model);
  CHECK(names(found.parameters) == Names{"0.weight", "0.bias", "1.weight", "1.bias"});
  CHECK(names(found.buffers) == Names{"1.running_mean", "1.running_var", "1.num_batches_tracked"});
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(found.parameters[i].tensor.is_same(model->parameters()[i]));
  CHECK(found.buffers[2].tensor.is_same(model->buffers()[2]));
}

TEST_CASE("a list of parameters is numbered, and has no buffers") {
  const std::vector<Tensor> list{torch::ones({1}), torch::ones({2})};
  const ModelTensors found = tensors_of(list);
  CHECK(names(found.parameters) == Names{"parameter.0", "parameter.1"});
  CHECK(found.parameters[1].tensor.is_same(list[1]));
  CHECK(found.buffers.empty());
}

static_assert(ModuleLike<torch::nn::Linear> && ModuleLike<std::shared_ptr<torch::nn::Module>>);
static_assert(ParameterList<std::vector<Tensor>> && !ParameterList<torch::nn::Linear>);
