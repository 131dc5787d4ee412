#pragma once
// Hashes: a quick one of contents, to tell whether they are the same again, which depends on the
// machine's byte order; and FNV-1a for digests that are kept.
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

/// FNV-1a, item by item: the same on every machine, so that a digest can be kept in a file.
inline constexpr std::uint64_t fnv_start = 0xcbf29ce484222325u;
[[nodiscard]] constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t item) {
  return (hash ^ item) * 0x100000001b3u;
}

}  // namespace reprise::base
