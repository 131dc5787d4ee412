#pragma once
// What stands in front of each block, in the 64 bytes that keep the alignment LibTorch asks for:
//
//   ┌──────────────── 64 B ───────────────┬───────────── bytes as requested ─────────────┐
//   │ bytes, serial, keeper               │ what the tensor sees, 64-byte aligned        │
//   └─────────────────────────────────────┴──────────────────────────────────────────────┘
//                                         ▲ data pointer = context of the DataPtr (so raw_allocate works)
//
// The serial tells which blocks are older than a given moment; a keeper is asked before its block
// is freed.

#include <cstddef>
#include <cstdint>

#include <c10/core/alignment.h>

#include <reprise/libtorch/device/cpu/protected_blocks.hpp>
#include <reprise/libtorch/device/interface/block_roles.hpp>
#include <reprise/libtorch/device/interface/step_bytes.hpp>

namespace reprise::cpu {

struct BlockHeader {
  /// In front of each block.
  static constexpr std::size_t bytes_in_front = c10::gAlignment;

  std::int64_t bytes;
  std::uint64_t serial;
  BlockKeeper* keeper = nullptr;
  std::uint32_t tag = 0;          ///< what the keeper calls it
  std::uint32_t number = 0;       ///< of `source`
  BlockSource* source = nullptr;  ///< where it lies in an arena
  std::size_t mapped = 0;         ///< bytes of its own pages; 0 where it lies in the heap
  StepBytes::Tag made_by{};       ///< the step that counts it
  bool is_protected = false;      ///< or was: protected_blocks.hpp knows

  [[nodiscard]] static BlockHeader* of(void* data) {
    return reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(data) - bytes_in_front);
  }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(bytes); }
  [[nodiscard]] ProtectedBlocks::Counted counted() const { return {made_by, serial}; }
};
static_assert(sizeof(BlockHeader) <= BlockHeader::bytes_in_front);

}  // namespace reprise::cpu
