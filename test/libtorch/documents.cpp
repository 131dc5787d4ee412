// The code that documents show, compiled as it stands (cmake/RepriseDocs.cmake takes it out of
// them). What a page takes for granted, a model, an optimizer, data, is declared here.

#include <torch/torch.h>

#include <iostream>
#include <stop_token>
#include <tuple>
#include <vector>

#include <boost/graph/strong_components.hpp>

#include <reprise/graph/dependency_order.hpp>
#include <reprise/libtorch.hpp>
#include <reprise/libtorch/options/step_report.hpp>
#include <reprise/libtorch/torch/module_state.hpp>
#include <reprise/libtorch/torch/tensor_slots.hpp>
#include <reprise/pack/assign_offsets.hpp>
#include <reprise/plan/eviction.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/report.hpp>
#include <reprise/reprise.hpp>
#include <reprise_test/catch.hpp>

#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wshadow"

namespace {

using namespace reprise;
using namespace reprise::literals;

torch::nn::Sequential model(torch::nn::Linear(4, 4)), block = model, layers = model;
torch::nn::Linear fc_layer(64, 10);
torch::Tensor x = torch::ones({2, 4}), y = torch::zeros({2}, torch::kLong),
              mask = torch::ones({2, 4});
std::vector<std::tuple<torch::Tensor, torch::Tensor>> batches{{x, y}};
torch::optim::SGD optimizer(model->parameters(), 0.1);
torch::Tensor loss_fn(const torch::Tensor& logits, const torch::Tensor& labels) {
  return torch::cross_entropy_loss(logits, labels);
}

/// Compiled, never made: a page about one stage takes what the stages before it made for granted.
struct Documents {
  reprise::CapturedStep captured, step;
  reprise::StepGraph graph;
  reprise::Schedule plan;
  reprise::GraphAdapter<reprise::StepGraph> adapter;
  reprise::Profiler<> profiler;

#include "documents.inc"
};

/// Likewise for the examples at the tops of headers, which leave out `reprise::`.
struct HeaderExamples : torch::nn::Module {
  using Block = torch::nn::Linear;
  Block module;
  torch::nn::Dropout dropout;
  torch::Tensor h, c, z, loss, logits;
  torch::Tensor f(const torch::Tensor& a) { return a; }
  torch::Tensor f(const torch::Tensor& a, const torch::Tensor&) { return a; }
  torch::Tensor g(const torch::Tensor& a) { return a; }

#include "libtorch_header_examples.inc"
};

}  // namespace

TEST_CASE("the examples at the tops of LibTorch's headers compile") {
  CHECK(HeaderExamples::blocks_in_documents >= 10);
}

TEST_CASE("the code in the documents compiles") { CHECK(Documents::blocks_in_documents == 16); }
