// The CUDA policies with LibTorch's own runner of a captured step. The step runs on the CPU, so
// that the device sees marks and nothing between them.

#include <torch/torch.h>

#include <reprise/cuda.hpp>
#include <reprise/libtorch.hpp>

#include "expect.hpp"

void profile_a_captured_step();

void profile_a_captured_step() {
  using namespace reprise;
  torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::ReLU(), torch::nn::Linear(8, 1));
  const torch::Tensor x = torch::randn({16, 4});
  auto step = capture(
      model.ptr(), [&](const torch::Tensor& in) { return model->forward(in).pow(2).mean(); }, x);
  const Profile profile =
      Profiler<CudaEventTimer, CudaCachingProbe>{}.run(step, {.warmup = 0, .runs = 2});
  EXPECT(profile.nodes.size() == step.graph().node_count());
  for (const NodeProfile& node : profile.nodes) {
    EXPECT(node.samples.size() == 2);
    EXPECT(node.memory.peak == node.memory.before);
    EXPECT(node.memory.after == node.memory.before);
  }
}
