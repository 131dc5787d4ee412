#pragma once
// AllocatorProbe reads the live bytes of LibTorch's CPU allocator around each op, to the byte.

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/profile/concepts.hpp>

namespace reprise::tensors {

class AllocatorProbe {
 public:
  void begin_run() { cpu_memory().reset_peak(); }
  void begin_op() {
    before_ = cpu_memory().existing();
    cpu_memory().open_window();
  }
  [[nodiscard]] MemorySample end_op() const {
    return {before_, cpu_memory().window_peak(), cpu_memory().existing()};
  }
  [[nodiscard]] Bytes end_run() const { return cpu_memory().peak(); }

 private:
  Bytes before_{};
};

static_assert(MemProbe<AllocatorProbe>);

}  // namespace reprise::tensors

namespace reprise {
using tensors::AllocatorProbe;
}  // namespace reprise
