#pragma once
// AllocatorProbe reads the live bytes of LibTorch's CPU allocator around each op, to the byte.

#include <reprise/libtorch/device/device.hpp>
#include <reprise/profile/concepts.hpp>

namespace reprise::tensors {

class AllocatorProbe {
 public:
  void begin_run() { device_memory().reset_peak(); }
  void begin_op() {
    before_ = device_memory().existing();
    device_memory().open_window();
  }
  [[nodiscard]] MemorySample end_op() const {
    return {before_, device_memory().window_peak(), device_memory().existing()};
  }
  [[nodiscard]] Bytes end_run() const { return device_memory().peak(); }

 private:
  Bytes before_{};
};

static_assert(MemProbe<AllocatorProbe>);

}  // namespace reprise::tensors

namespace reprise {
using tensors::AllocatorProbe;
}  // namespace reprise
