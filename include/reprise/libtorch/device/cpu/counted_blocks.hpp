#pragma once
// The blocks that the counting allocator made: what is known of each, who keeps it, and how it is
// freed.
//
//   const c10::DataPtr& data = tensor.storage().data_ptr();
//   CountedBlocks::owns(data)                // false of from_blob(), mmap
//   CountedBlocks::bytes_of(data)            // as requested
//   CountedBlocks::serial_of(data)           // blocks are numbered as they are allocated

#include <cstddef>
#include <cstdint>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <reprise/base/one_per_process.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/block_header.hpp>
#include <reprise/libtorch/device/cpu/block_keepers.hpp>
#include <reprise/libtorch/device/cpu/heap_blocks.hpp>
#include <reprise/libtorch/device/cpu/in_place_blocks.hpp>
#include <reprise/libtorch/device/cpu/memory_counter.hpp>
#include <reprise/libtorch/device/cpu/page_blocks.hpp>
#include <reprise/libtorch/device/cpu/thread_hooks.hpp>

namespace reprise::cpu {

class CountedBlocks : public BlockKeepers, public InPlaceBlocks {
 public:
  /// Whether this allocator made the block: only such blocks are ever emptied or moved.
  [[nodiscard]] static bool owns(const c10::DataPtr& data) {
    return data.get_deleter() == &release && data.get() != nullptr;
  }
  /// Whether the block lies in an arena, whose next run writes over it.
  [[nodiscard]] static bool in_arena(const c10::DataPtr& data) {
    return owns(data) && BlockHeader::of(data.get())->source != nullptr;
  }
  /// Bytes as requested; 0 for what another allocator made.
  [[nodiscard]] static Bytes bytes_of(const c10::DataPtr& data) {
    return owns(data) ? Bytes{BlockHeader::of(data.get())->bytes} : Bytes{0};
  }
  [[nodiscard]] static std::uint64_t serial_of(const c10::DataPtr& data) {
    return owns(data) ? BlockHeader::of(data.get())->serial : 0;
  }
  /// A block that was kept, as something that frees it.
  [[nodiscard]] static c10::DataPtr take_over(void* data) {
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  /// What stands in front of each block.
  static constexpr std::size_t header_bytes = BlockHeader::bytes_in_front;

 protected:
  REPRISE_ONE_PER_PROCESS static void release(void* data) {
    if (data == nullptr) return;
    BlockHeader* header = BlockHeader::of(data);
    const bool known = header->keeper != nullptr;
    if (kept(data)) return;
    const Bytes bytes{header->bytes};
    const std::uint64_t serial = header->serial;
    const bool spilled = header->is_protected && protected_blocks().forget(data, header->size());
    if (!spilled) {
      cpu_memory().remove(bytes.count);
      StepBytes::freed(header->made_by, serial, bytes.count);
    }
    c10::profiledCPUMemoryReporter().Delete(data);
    if (BlockSource* source = header->source) {
      cpu_memory().add_reserved_unused(bytes.count);
      source->give_back(header->number);
    } else {
      to_system(header, !spilled);
      if (BlockSource* current = thread_hooks().source) current->freed(serial);
    }
    if (MemoryGate* gate = thread_hooks().gate; gate != nullptr && !known)
      gate->after_release(bytes, serial);
  }

 private:
  static void to_system(BlockHeader* header, bool has_pages) {
    if (header->mapped > 0)
      page_blocks().give(reinterpret_cast<std::byte*>(header), header->mapped, has_pages);
    else
      HeapBlocks::give(reinterpret_cast<std::byte*>(header),
                       static_cast<std::size_t>(header->bytes) + header_bytes);
  }
};

}  // namespace reprise::cpu
