#pragma once
// HoleList is an arena as an allocator sees it: the free ranges below its end, by offset and by
// size.
//
// ```cpp
// HoleList h;
// h.take(10);        // 0
// h.take(20);        // 10
// h.give(0, 10);     // a hole of 10
// h.take(4);         // 0: the tightest hole that is large enough
// h.take(8);         // 30: no hole is large enough, so the arena grows
// ```
//
// O(log n) each; neighbouring holes become one.

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <reprise/base/rooms.hpp>

namespace reprise::packing {

class HoleList {
 public:
  /// The offset of a new block of `size` bytes.
  std::int64_t take(std::int64_t size) {
    const auto it = by_size_.lower_bound({size, 0});
    if (it == by_size_.end()) return grow(size);
    const auto [have, place] = *it;
    remove(place, have);
    if (have > size) add(place + size, have - size);
    return place;
  }

  void give(std::int64_t place, std::int64_t size) {
    const auto after = by_place_.lower_bound(place);
    if (after != by_place_.end() && after->first == place + size) {
      const std::int64_t more = after->second;
      remove(place + size, more);
      size += more;
    }
    const auto next = by_place_.lower_bound(place);
    if (next != by_place_.begin()) {
      const auto [before, have] = *std::prev(next);
      if (before + have == place) {
        remove(before, have);
        place = before;
        size += have;
      }
    }
    add(place, size);
  }

  /// The largest end so far.
  [[nodiscard]] std::int64_t height() const { return end_; }

 private:
  // Uses a hole at the end, and grows the arena by the rest.
  std::int64_t grow(std::int64_t size) {
    std::int64_t place = end_;
    if (!by_place_.empty()) {
      const auto [last, have] = *by_place_.rbegin();
      if (last + have == end_) {
        remove(last, have);
        place = last;
      }
    }
    end_ = place + size;
    return place;
  }

  void add(std::int64_t place, std::int64_t size) {
    by_place_.emplace(place, size);
    by_size_.emplace(size, place);
  }
  void remove(std::int64_t place, std::int64_t size) {
    by_place_.erase(place);
    by_size_.erase({size, place});
  }

  std::map<std::int64_t, std::int64_t> by_place_;
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;
  std::int64_t end_ = 0;
};

}  // namespace reprise::packing
