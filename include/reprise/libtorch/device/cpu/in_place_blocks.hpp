#pragma once
// Blocks of the CPU's allocator that lose their memory, or are watched, and keep their address
// (protected_blocks.hpp): the same by block, with what its header knows.
//
//   InPlaceBlocks::spill(data, owner, 3, file)       // live() is less by the block's bytes
//   InPlaceBlocks::restore(data)                     // and what it was

#include <cstdint>
#include <utility>

#include <c10/core/Allocator.h>

#include <reprise/libtorch/device/cpu/block_header.hpp>
#include <reprise/libtorch/device/cpu/page_blocks.hpp>
#include <reprise/libtorch/device/cpu/protected_blocks.hpp>

namespace reprise::cpu {

/// Only of blocks that the counting allocator made.
class InPlaceBlocks {
 public:
  /// Whether the block can be spilled where it lies.
  [[nodiscard]] static bool can_spill(void* data) {
    const BlockHeader* header = BlockHeader::of(data);
    return header->source == nullptr && ProtectedBlocks::pages_in(data, header->size()).bytes > 0;
  }
  [[nodiscard]] static bool spill(void* data, BlockOwner& owner, std::uint32_t tag,
                                  SpillFile& file) {
    BlockHeader* header = BlockHeader::of(data);
    if (!can_spill(data) ||
        !protected_blocks().spill(data, header->size(), header->counted(), owner, tag, file))
      return false;
    return header->is_protected = true;
  }
  [[nodiscard]] static bool evict(void* data, BlockOwner& owner, std::uint32_t tag) {
    BlockHeader* header = BlockHeader::of(data);
    if (!can_spill(data) ||
        !protected_blocks().evict(data, header->size(), header->counted(), owner, tag))
      return false;
    return header->is_protected = true;
  }
  /// What was evicted gets the bytes of another block, which is freed.
  static void fill(void* data, c10::DataPtr&& from) {
    BlockHeader* header = BlockHeader::of(data);
    protected_blocks().fill(data, header->size(), from.get());
    from.clear();
    ProtectedBlocks::is_back(header->size(), header->counted());
    note_moved(header, data);
  }
  /// False where it was not spilled, or somebody has touched it since.
  static bool restore(void* data) {
    const BlockHeader* header = BlockHeader::of(data);
    page_blocks().make_room({header->bytes});
    const bool restored = protected_blocks().restore(data, header->size());
    if (restored) note_moved(header, data);
    return restored;
  }
  [[nodiscard]] static bool is_spilled(void* data) {
    return protected_blocks().is_spilled(data, BlockHeader::of(data)->size());
  }
  /// Of its whole pages only.
  static bool watch_writes(void* data, BlockOwner& owner, std::uint32_t tag) {
    BlockHeader* header = BlockHeader::of(data);
    if (header->source != nullptr ||
        !protected_blocks().watch_writes(data, header->size(), owner, tag))
      return false;
    return header->is_protected = true;
  }
  static void unwatch_writes(void* data) {
    protected_blocks().unwatch_writes(data, BlockHeader::of(data)->size());
  }

 private:
  static void note_moved(const BlockHeader* header, void* data) {
    if (header->mapped == 0) return;
    const ProtectedBlocks::Pages pages = ProtectedBlocks::pages_in(data, header->size());
    page_blocks().note_moved(pages.begin, pages.bytes);
  }
};

}  // namespace reprise::cpu
