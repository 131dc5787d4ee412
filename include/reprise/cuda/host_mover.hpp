#pragma once
// A HostMover spills a device's storages to host memory, and measures the time of each transfer: on
// CUDA, it is what libtorch/device/cpu/spill_file.hpp is on the CPU. The memory is pinned, so that
// the device copies at its full rate. It is kept for reuse, because pinning takes longer than
// copying.
//
//   HostMover host{0};
//   HostMover::Place place = host.write(data, bytes);     // place.time: the time that the device needed
//   Microseconds back = host.read(place, data);
//   host.release(place);                                  // a later write of at most as many bytes may use it
//
// A copy runs in the current stream, after the op that made the bytes, and has finished when the
// call returns: the device's memory can be freed at once.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <reprise/base/units.hpp>
#include <reprise/cuda/cuda_event.hpp>

namespace reprise::cuda {

class HostMover {
 public:
  struct Place {
    void* host = nullptr;
    std::size_t bytes = 0;  ///< written bytes
    std::size_t room = 0;   ///< capacity of the place
    Microseconds time{};    ///< time of the write
  };

  /// `device`: -1 for the current device.
  explicit HostMover(c10::DeviceIndex device = -1)
      : device_(device >= 0 ? device : c10::cuda::current_device()),
        begin_(device_),
        end_(device_) {}
  ~HostMover() {
    for (void* block : blocks_) C10_CUDA_CHECK_WARN(cudaFreeHost(block));
  }
  HostMover(const HostMover&) = delete;
  HostMover& operator=(const HostMover&) = delete;

  /// Throws c10::Error if no more host memory can be pinned; nothing has changed then.
  [[nodiscard]] Place write(const void* from_device, std::size_t bytes) {
    Place place = take(bytes);
    try {
      place.time = copy(place.host, from_device, bytes, cudaMemcpyDeviceToHost);
    } catch (...) {
      release(place);
      throw;
    }
    return place;
  }

  /// Returns the time of the transfer.
  Microseconds read(const Place& place, void* to_device) {
    return copy(to_device, place.host, place.bytes, cudaMemcpyHostToDevice);
  }

  /// Frees the place. A later write may overwrite its contents.
  void release(const Place& place) { free_.emplace(place.room, place.host); }

  /// Bytes of pinned host memory.
  [[nodiscard]] Bytes size() const { return size_; }

 private:
  // The smallest free place that is large enough, else a new one.
  Place take(std::size_t bytes) {
    const auto it = free_.lower_bound(bytes);
    if (it != free_.end()) {
      const Place place{it->second, bytes, it->first, {}};
      free_.erase(it);
      return place;
    }
    const c10::cuda::CUDAGuard guard(device_);
    void*& block = blocks_.emplace_back(nullptr);
    C10_CUDA_CHECK(cudaHostAlloc(&block, bytes, cudaHostAllocDefault));
    size_ += Bytes{static_cast<std::int64_t>(bytes)};
    return {block, bytes, bytes, {}};
  }

  Microseconds copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind way) {
    const c10::cuda::CUDAGuard guard(device_);
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(device_);
    begin_.record(stream);
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, way, stream.stream()));
    end_.record(stream);
    end_.wait();
    return end_.since(begin_);
  }

  c10::DeviceIndex device_;
  CudaEvent begin_, end_;
  std::vector<void*> blocks_;
  std::multimap<std::size_t, void*> free_;  // room -> host
  Bytes size_{};
};

}  // namespace reprise::cuda
