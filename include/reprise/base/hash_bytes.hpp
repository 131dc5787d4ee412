#pragma once
// hash_bytes() is a fast hash that tells whether contents have changed. Do not store it: it depends
// on the machine's byte order.
//
// ```cpp
// std::uint64_t hash = hash_bytes(first);
// hash = hash_bytes(second, hash);            // of both, in this order
// ```

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <reprise/base/rooms.hpp>

namespace reprise::base {

[[nodiscard]] inline std::uint64_t hash_bytes(std::span<const std::byte> bytes,
                                              std::uint64_t hash = 1) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min(sizeof word, bytes.size() - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return (hash ^ bytes.size()) * 0x9e3779b97f4a7c15u;
}

}  // namespace reprise::base
