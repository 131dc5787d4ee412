#pragma once
// The CPU as a DeviceMemory (interface/device_memory.hpp): blocks come from the counting allocator,
// leave in their place by page protection, and lie in a file meanwhile.

#include <cstddef>
#include <span>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/counted_blocks.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/device/cpu/memory_counter.hpp>
#include <reprise/libtorch/device/cpu/page_blocks.hpp>
#include <reprise/libtorch/device/cpu/protected_blocks.hpp>
#include <reprise/libtorch/device/cpu/spill_file.hpp>
#include <reprise/libtorch/device/cpu/thread_hooks.hpp>
#include <reprise/libtorch/device/interface/device_memory.hpp>

namespace reprise::cpu {

struct CpuMemory : CountedBlocks {
  using Store = SpillFile;
  static constexpr c10::DeviceType type = c10::DeviceType::CPU;

  [[nodiscard]] static MemoryCounter& counter() { return cpu_memory(); }
  [[nodiscard]] static c10::Allocator& allocator() { return counting_allocator(); }
  /// False where another library has put its own allocator in our place.
  [[nodiscard]] static bool is_counted() { return c10::GetCPUAllocator() == &counting_allocator(); }
  [[nodiscard]] static ThreadHooks& hooks() { return thread_hooks(); }

  [[nodiscard]] static bool keeps_addresses() { return ProtectedBlocks::available(); }
  [[nodiscard]] static std::span<std::byte> protected_part(void* data, Bytes bytes) {
    const auto pages = ProtectedBlocks::pages_in(data, static_cast<std::size_t>(bytes.count));
    return {pages.begin, pages.bytes};
  }

  static void begin_step() { page_blocks().begin_step(); }
  static void end_step() { page_blocks().end_step(); }
  static void abandon_step() { page_blocks().abandon_step(); }
  static void release_cached() { page_blocks().clear(); }
  static void stop_caching() { page_blocks().stop(); }
};
static_assert(is_device_memory<CpuMemory>());

}  // namespace reprise::cpu
