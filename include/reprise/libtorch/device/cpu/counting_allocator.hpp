#pragma once
// Memory is counted where it is allocated: including this header puts one counting allocator in the
// place of LibTorch's CPU allocator, before main and for good.
//
//   cpu_memory().live();                       // bytes that LibTorch's CPU tensors hold now, as requested
//   cpu_memory().reset_peak();
//   auto y = torch::relu(x);                   // 4 KiB
//   cpu_memory().peak();                       // live() before + 4096
//
// Every block carries a header in front of it (block_header.hpp). What did not come through here
// (from_blob, mmap) is not counted.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <reprise/base/one_per_process.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/counted_blocks.hpp>
#include <reprise/libtorch/device/cpu/heap_blocks.hpp>

namespace reprise::cpu {

class CountingAllocator final : public c10::Allocator, public CountedBlocks {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    if (DonatedBlock& handed = thread_hooks().handed; handed.bytes == bytes) {
      handed.bytes = 0;
      cpu_memory().note_beside(static_cast<std::int64_t>(bytes));
      return take_over(handed.data);
    }
    if (MemoryGate* gate = thread_hooks().gate)
      gate->before_allocation({static_cast<std::int64_t>(bytes)});
    BlockSource* source = thread_hooks().source;
    std::uint32_t number = 0;
    std::size_t mapped = 0;
    auto* base = source != nullptr ? source->take(bytes, number) : nullptr;
    if (base == nullptr) {
      source = nullptr;
      base = from_system(bytes + header_bytes, mapped);
    }
    std::byte* data = base + header_bytes;
    if (source != nullptr) cpu_memory().add_reserved_unused(-static_cast<std::int64_t>(bytes));
    const std::uint64_t serial = cpu_memory().add(static_cast<std::int64_t>(bytes));
    const StepBytes::Tag made_by = StepBytes::allocated(static_cast<std::int64_t>(bytes));
    new (base) BlockHeader{
        static_cast<std::int64_t>(bytes), serial, nullptr, 0, number, source, mapped, made_by};
    if (BlockSource* notes = thread_hooks().source; notes != nullptr && source == nullptr)
      notes->came_from_system(serial);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

 private:
  static std::byte* from_system(std::size_t bytes, std::size_t& mapped) {
    if (std::byte* pages = page_blocks().take(bytes, mapped)) return pages;
    return HeapBlocks::take(bytes);
  }
};

/// The one instance. It is never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline CountingAllocator& counting_allocator() {
  static CountingAllocator& allocator = *new CountingAllocator;
  return allocator;
}

// LibTorch keeps the allocator of the highest priority; its own has 0.
inline constexpr std::uint8_t allocator_priority = 10;
REPRISE_ONE_PER_PROCESS inline const bool allocator_installed = [] {
  c10::SetCPUAllocator(&counting_allocator(), allocator_priority);
  return true;
}();

}  // namespace reprise::cpu
