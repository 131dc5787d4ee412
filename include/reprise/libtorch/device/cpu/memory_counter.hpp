#pragma once
// How many bytes LibTorch's CPU tensors hold: counted where they are allocated
// (counting_allocator.hpp), to the byte, as requested.
//
//   cpu_memory().live();                       // now
//   cpu_memory().reset_peak();
//   auto y = torch::relu(x);                   // 4 KiB
//   cpu_memory().peak();                       // live() before + 4096

#include <reprise/base/one_per_process.hpp>
#include <reprise/libtorch/device/interface/memory_counter.hpp>

namespace reprise::cpu {

/// What LibTorch's CPU allocator holds in this process.
REPRISE_ONE_PER_PROCESS inline MemoryCounter& cpu_memory() {
  static MemoryCounter counter;
  return counter;
}

}  // namespace reprise::cpu

namespace reprise {
using cpu::cpu_memory;
}  // namespace reprise
