// What ops take, as the allocator counts.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/torch/allocator_probe.hpp>

using namespace reprise;
using namespace reprise::literals;
using torch::Tensor;

TEST_CASE("a probe says what there was before an op, at most in it, and after it") {
  AllocatorProbe probe;
  const Bytes start = device_memory().existing();
  probe.begin_run();
  probe.begin_op();
  Tensor kept = torch::empty({1024});
  { const Tensor workspace = torch::empty({2048}); }
  const MemorySample first = probe.end_op();
  CHECK(first.before == start);
  CHECK(first.peak == start + Bytes{3 * 4096});
  CHECK(first.after == start + 4096_B);
  kept.reset();
  probe.begin_op();
  const MemorySample second = probe.end_op();
  CHECK(second.before == start);
  CHECK(second.peak == start);
  CHECK(probe.end_run() == start + Bytes{3 * 4096});
}
