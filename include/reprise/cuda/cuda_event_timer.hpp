#pragma once
// CudaEventTimer measures the times of ops on a CUDA device: one event before and one after each
// op, on the current stream, read after the run. The host does not wait between two ops, so the
// device works as without a timer.
//
//   host      start(0) conv stop(0) start(1) relu stop(1) …   end_run(): waits once, then reads
//   stream    ──●━━━━━━━ conv ━━━━━━━●─●━ relu ━●──────────▶   times: conv 310.5 us, relu 41.0 us
//             begin 0           end 0  begin 1  end 1
//
// Events have a resolution of half a microsecond. If the device is faster than the host, an op's
// time includes the wait for its first kernel: a short op seems as long as its launch. An op that
// uses several streams is timed correctly if it joins them with the current stream, as LibTorch's
// ops do.
//
// Events are reused in later runs. Errors are c10::Error, as everywhere in LibTorch's CUDA code.

#include <cstddef>
#include <vector>

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <reprise/cuda/cuda_event.hpp>
#include <reprise/profile/concepts.hpp>

namespace reprise::cuda {

class CudaEventTimer {
 public:
  /// `device`: the device of the ops; -1 for the current device when a run begins.
  explicit CudaEventTimer(c10::DeviceIndex device = -1) : wanted_(device) {}

  void begin_run(std::size_t occurrences) {
    const c10::DeviceIndex device = wanted_ >= 0 ? wanted_ : c10::cuda::current_device();
    if (device != device_) pairs_.clear();  // an event cannot change its device
    device_ = device;
    while (pairs_.size() < occurrences)
      pairs_.push_back({CudaEvent(device), CudaEvent(device), false});
    for (Pair& pair : pairs_) pair.ended = false;
    occurrences_ = occurrences;
  }
  void start(std::size_t i) { pairs_[i].begin.record(stream()); }
  void stop(std::size_t i) {
    pairs_[i].end.record(stream());
    pairs_[i].ended = true;
  }

  /// Returns when the device has finished the timed ops.
  void wait() const {
    for (std::size_t i = 0; i < occurrences_; ++i)
      if (pairs_[i].ended) pairs_[i].end.wait();
  }

  /// 0 for an op that was not timed in this run.
  [[nodiscard]] std::vector<Microseconds> end_run() const {
    wait();
    std::vector<Microseconds> times(occurrences_);
    for (std::size_t i = 0; i < occurrences_; ++i)
      if (pairs_[i].ended) times[i] = pairs_[i].end.since(pairs_[i].begin);
    return times;
  }

 private:
  struct Pair {
    CudaEvent begin, end;
    bool ended;
  };

  [[nodiscard]] c10::cuda::CUDAStream stream() const {
    return c10::cuda::getCurrentCUDAStream(device_);
  }

  c10::DeviceIndex wanted_, device_ = -1;
  std::vector<Pair> pairs_;  // at least as many as the longest run so far had occurrences
  std::size_t occurrences_ = 0;
};

static_assert(Timer<CudaEventTimer> && WaitingTimer<CudaEventTimer>);

}  // namespace reprise::cuda

namespace reprise {
using cuda::CudaEventTimer;
}  // namespace reprise
