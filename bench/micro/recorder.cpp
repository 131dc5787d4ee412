// What recording adds to an op: the same sixty-four tiny ops without the recorder, with it, and in
// a guided step, which records and looks for a plan.

#include <torch/torch.h>

#include <reprise/libtorch.hpp>

#include "micro.hpp"

namespace micro {

namespace {

constexpr int ops = 64;

at::Tensor run_ops(const at::Tensor& x) {
  at::Tensor y = x;
  for (int i = 0; i < ops; ++i) y = torch::relu(y);
  return y;
}

}  // namespace

void measure_recorder() {
  using namespace reprise::literals;
  const torch::NoGradGuard no_grad;
  const at::Tensor x = torch::ones({16});
  auto bench = table("recorder", "op");
  bench.batch(ops);
  bench.run("relu, eager", [&] { doNotOptimizeAway(run_ops(x).unsafeGetTensorImpl()); });
  bench.run("relu, recorded", [&] {
    reprise::recording::Recorder recorder;
    doNotOptimizeAway(run_ops(x).unsafeGetTensorImpl());
  });
  reprise::MemoryBudget budget{64_GiB};
  bench.run("relu, guided", [&] {
    auto step = budget.step();
    doNotOptimizeAway(run_ops(x).unsafeGetTensorImpl());
  });
}

}  // namespace micro
