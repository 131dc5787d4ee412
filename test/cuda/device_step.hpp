#pragma once
// A step on a CUDA device that needs no kernels: node i takes scratch memory, makes a tensor's
// worth of bytes, and fills it.
//
//   DeviceStep step{{4096, 1000, 700000}, 256};       // three nodes, 256 bytes of workspace each
//   Profiler<CudaEventTimer, CudaCachingProbe>{}.run(step);

#include <cstdint>
#include <string>
#include <vector>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <reprise/graph/builder.hpp>
#include <reprise/profile/profiler.hpp>

namespace reprise_test {

struct DeviceStep {
  std::vector<std::int64_t> bytes{};
  std::int64_t workspace = 0;
};

class DeviceRunner {
 public:
  explicit DeviceRunner(const DeviceStep& step) : step_(&step) {
    reprise::GraphBuilder b{"on a device"};
    for (std::size_t i = 0; i < step.bytes.size(); ++i) {
      const auto id = static_cast<std::int64_t>(i);
      const auto v = b.add_value({.id = id,
                                  .name = "v" + std::to_string(i),
                                  .bytes = {step.bytes[i]},
                                  .role = reprise::Role::activation});
      b.add_node({.id = id,
                  .name = "fill " + std::to_string(i),
                  .op = "fill",
                  .workspace = {step.workspace}},
                 {}, {v});
    }
    graph_ = std::move(b).build();
  }

  [[nodiscard]] const reprise::StepGraph& graph() const { return graph_; }
  void complete(reprise::Profile&) {}

  template <class Around>
  void run(Around around) {
    auto* allocator = c10::cuda::CUDACachingAllocator::get();
    std::vector<c10::DataPtr> made;
    for (std::size_t i = 0; i < step_->bytes.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(step_->bytes[i]);
      around.before(i);
      c10::DataPtr scratch = allocator->allocate(static_cast<std::size_t>(step_->workspace));
      made.push_back(allocator->allocate(bytes));
      C10_CUDA_CHECK(
          cudaMemsetAsync(made.back().get(), 7, bytes, c10::cuda::getCurrentCUDAStream().stream()));
      scratch.clear();
      around.after(i);
    }
  }

 private:
  const DeviceStep* step_;
  reprise::StepGraph graph_;
};

inline DeviceRunner make_runner(DeviceStep& step, const reprise::ProfileOptions&) {
  return DeviceRunner(step);
}

}  // namespace reprise_test
