#pragma once
// A CudaEvent is a mark in a CUDA stream: the device notes the time when it reaches the mark, and
// the host does not wait.
//
//   CudaEvent begin{device}, end{device};
//   begin.record(stream);  launch(kernel, stream);  end.record(stream);    // the host does not wait
//   end.wait();                                                            // now it does
//   end.since(begin);                                                      // Microseconds{41.5}
//
// LibTorch has such a class too, but its header changes from version to version, and its ATen
// header needs the whole toolkit.

#include <utility>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <reprise/base/units.hpp>

namespace reprise::cuda {

class CudaEvent {
 public:
  /// Belongs to the device, and can only be recorded on its streams.
  explicit CudaEvent(c10::DeviceIndex device) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDefault));
  }
  ~CudaEvent() {
    if (event_ != nullptr) C10_CUDA_CHECK_WARN(cudaEventDestroy(event_));
  }
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  void record(c10::cuda::CUDAStream stream) {
    C10_CUDA_CHECK(cudaEventRecord(event_, stream.stream()));
  }

  /// Returns when the device has reached the mark.
  void wait() const { C10_CUDA_CHECK(cudaEventSynchronize(event_)); }

  /// Both must have been recorded and waited for.
  [[nodiscard]] Microseconds since(const CudaEvent& begin) const {
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return {static_cast<double>(milliseconds) * 1000};
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace reprise::cuda
