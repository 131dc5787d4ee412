#pragma once
// What LibTorch's caching allocator has handed out on a CUDA device around each op, from its own
// statistics.
//
//   Profiler<CudaEventTimer, CudaCachingProbe> profiler;                          // bytes as requested
//   CudaCachingProbe probe{0, CudaBytes::allocated};                              // device 0, as the allocator rounds them
//
// Exact     before, peak and after of an op on this device, to the byte. The allocator counts when the host asks for memory and
//           gives it back, under one lock, whatever the device is doing then; and its peak is set to what is held at the start of
//           every op, so that it is that op's alone. The run's peak is the largest of these and of what was seen between ops.
// Not       - other threads: what they hold is counted too, and a peak that rises and falls between reading and resetting is lost
//           - `requested` keeps a block that other streams used (record_stream) until they are known to be done with it;
//             `allocated` drops it at once
//           - `allocated` is what blocks measure: rounded up to 512 bytes, and by up to a megabyte where a cached block is not worth
//             splitting, so it can differ from run to run
//           - memory that the allocator has cached, and what was not taken through it: the CUDA context, NCCL, a library's own cudaMalloc
//           - the backend cudaMallocAsync does not know what was requested: `allocated` is used, and is what the driver's pool says
// A trace   the peaks that LibTorch reports (max_memory_allocated and its kin) start anew with every op: the API can reset a peak,
//           but not put the old one back.

#include <cstddef>
#include <cstdint>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <reprise/profile/concepts.hpp>

namespace reprise::cuda {

/// Which of the allocator's counts.
enum class CudaBytes : std::uint8_t {
  requested,  ///< what tensors asked for: what a graph's bytes are compared with
  allocated,  ///< what blocks were handed out for that
};

class CudaCachingProbe {
 public:
  /// `device`: -1 for the one that is current when a run begins.
  explicit CudaCachingProbe(c10::DeviceIndex device = -1, CudaBytes counted = CudaBytes::requested)
      : wanted_(device), asked_(counted) {}

  void begin_run() {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    device_ = wanted_ >= 0 ? wanted_ : c10::cuda::current_device();
    // as LibTorch does with its first CUDA tensor
    if (!allocator::get()->initialized()) allocator::init(c10::cuda::device_count());
    counted_ = allocator::get()->name() == "native" ? asked_ : CudaBytes::allocated;
    allocator::resetPeakStats(device_);
    run_peak_ = {};
  }
  void begin_op() {
    before_ = look().current;
    c10::cuda::CUDACachingAllocator::resetPeakStats(device_);
  }
  [[nodiscard]] MemorySample end_op() {
    const Held held = look();
    return {before_, held.peak, held.current};
  }
  [[nodiscard]] Bytes end_run() {
    look();
    return run_peak_;
  }

 private:
  struct Held {
    Bytes current, peak;
  };

  // Every look counts for the run's peak: the next reset would forget it.
  Held look() {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device_);
    const auto& stat = (counted_ == CudaBytes::requested ? stats.requested_bytes
                                                         : stats.allocated_bytes)[all_pools];
    if (Bytes{stat.peak} > run_peak_) run_peak_ = {stat.peak};
    return {{stat.current}, {stat.peak}};
  }

  // StatType::AGGREGATE, whose namespace has moved between versions
  static constexpr std::size_t all_pools = 0;

  c10::DeviceIndex wanted_, device_ = -1;
  CudaBytes asked_, counted_ = CudaBytes::requested;
  Bytes before_{}, run_peak_{};
};

static_assert(MemProbe<CudaCachingProbe>);

}  // namespace reprise::cuda

namespace reprise {
using cuda::CudaCachingProbe;
}  // namespace reprise
