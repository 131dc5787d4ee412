#pragma once
// CudaCachingProbe reads the bytes of LibTorch's caching allocator on a CUDA device around each op,
// from the allocator's own statistics.
//
//   Profiler<CudaEventTimer, CudaCachingProbe> profiler;                          // bytes as requested
//   CudaCachingProbe probe{0, CudaBytes::allocated};                              // device 0, as the allocator rounds them
//
//   Exact     before, peak and after of an op on this device, to the byte. The allocator counts when the host allocates and frees
//             memory, under one lock, independently of the device's work. Its peak is reset to the present bytes at the start of
//             every op, so that it is this op's alone. The run's peak is the largest of these and of the readings between ops.
//   Not       - other threads: their bytes are counted too, and a peak that rises and falls between reading and resetting is lost
//             - `requested` includes a block that other streams used (record_stream) until they are known to be done with it;
//               `allocated` drops it at once
//             - `allocated` counts the blocks' sizes: rounded up to 512 bytes, and by up to a megabyte if a cached block is not worth
//               splitting, so it can differ from run to run
//             - memory that the allocator has cached, and memory of other sources: the CUDA context, NCCL, a library's own cudaMalloc
//             - the backend cudaMallocAsync does not know the requested bytes: `allocated` is used, by the driver's pool
//   A trace   the peaks that LibTorch reports (max_memory_allocated and similar) start anew with every op: the API can reset a peak,
//             but not restore the old one.

#include <cstddef>
#include <cstdint>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <reprise/profile/concepts.hpp>

namespace reprise::cuda {

/// The allocator's count to read.
enum class CudaBytes : std::uint8_t {
  requested,  ///< bytes that tensors asked for, as in a graph
  allocated,  ///< bytes of the blocks for them
};

class CudaCachingProbe {
 public:
  /// `device`: -1 for the current device when a run begins.
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

  // Every reading counts for the run's peak, because the next reset would forget it.
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
