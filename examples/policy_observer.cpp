// An observer of one's own around the ops of a program: docs/policies/observer.md shows it.

#include <chrono>
#include <cstdint>
#include <iostream>

#include <torch/torch.h>
#include <reprise/libtorch.hpp>

// Counts the ops and the bytes that they make, and remembers which one took longest.
struct Watch {
  using Clock = std::chrono::steady_clock;

  Clock::time_point start{};
  Clock::duration longest{};
  reprise::NodeId slowest{};
  std::int64_t ops = 0, bytes = 0;

  void before(std::size_t, reprise::NodeId, const auto&) { start = Clock::now(); }
  void after(std::size_t, reprise::NodeId node, const auto& made) {
    const auto took = Clock::now() - start;
    if (took > longest) longest = took, slowest = node;
    ++ops;
    for (const at::Tensor& tensor : made())
      if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  }
};
static_assert(reprise::is_observer<Watch>());

int main() {
  torch::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(64, 256), torch::nn::GELU(),
                              torch::nn::Linear(256, 10));
  const auto loss = [&](torch::Tensor x) { return model->forward(x).pow(2).mean(); };
  auto captured = reprise::capture(model, loss, torch::ones({32, 64}));
  auto program = reprise::Rewriter<reprise::LibTorchBackend<>>{}.rewrite(
      captured, own_order(captured.graph()));
  const reprise::BoundTensors& bound = captured.bound();
  Watch watch;
  const reprise::RunOutcome outcome =
      program.run({bound.model.parameters, bound.model.buffers, bound.inputs, bound.leaves}, watch);
  std::cout << watch.ops << " ops made " << watch.bytes << " bytes\n";
  const bool all = watch.ops == static_cast<std::int64_t>(captured.graph().node_count());
  return outcome.completed && all && watch.bytes > 0 && watch.slowest.valid() ? 0 : 1;
}
