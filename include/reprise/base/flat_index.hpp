#pragma once
// FlatIndex maps keys to numbers in one array, without an allocation per key. The recorder asks it
// for every operand of every op.
//
// ```cpp
// FlatIndex index;
// index.insert(key, 7);        // if the key is new
// index.find(key);             // 7; FlatIndex::none for an unknown key
// index.assign(key, 9);        // new or not: 9 from now on
// ```
//
// Open addressing, at most half full. Keys are never removed, because they live as long as the
// step.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <reprise/base/rooms.hpp>

namespace reprise::base {

class FlatIndex {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  [[nodiscard]] std::uint32_t find(std::uint64_t key) const {
    if (slots_.empty()) return none;
    return slots_[place_of(slots_, key)].number;
  }

  /// Does not change the number of a known key. `number` is not `none`.
  void insert(std::uint64_t key, std::uint32_t number) {
    if (Slot& slot = slot_for(key); slot.number == none) fill(slot, key, number);
  }
  /// Also changes the number of a known key.
  void assign(std::uint64_t key, std::uint32_t number) {
    if (Slot& slot = slot_for(key); slot.number == none) fill(slot, key, number);
    else slot.number = number;
  }
  /// Reserves memory for `keys` keys.
  void reserve(std::size_t keys) {
    while (2 * (keys + 1) > slots_.size()) grow();
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    std::uint32_t number = none;  // none: free
  };

  // The slot with the key, or the free slot for it. Keys are addresses and counters: they are
  // multiplied so that the upper bits depend on all bits.
  static std::size_t place_of(const std::vector<Slot>& slots, std::uint64_t key) {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ull) >> 32) & mask;
    while (slots[at].number != none && slots[at].key != key) at = (at + 1) & mask;
    return at;
  }

  Slot& slot_for(std::uint64_t key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    return slots_[place_of(slots_, key)];
  }
  void fill(Slot& slot, std::uint64_t key, std::uint32_t number) {
    slot = {key, number};
    ++count_;
  }

  void grow() {
    std::vector<Slot> larger(slots_.empty() ? 64 : 2 * slots_.size());
    for (const Slot& slot : slots_)
      if (slot.number != none) larger[place_of(larger, slot.key)] = slot;
    slots_ = std::move(larger);
  }

  std::vector<Slot> slots_;  // a power of two
  std::size_t count_ = 0;
};

}  // namespace reprise::base
