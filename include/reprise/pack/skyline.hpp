#pragma once
// Skyline keeps the height of a stack of boxes over each part of a line: a box lies on the boxes
// below it.
//
// ```cpp
// Skyline s(6);
// s.put(0, 4, 10);     // 0: a box of height 10 over places 0 .. 3 lies on the ground
// s.put(2, 6, 5);      // 10: this one on top of it
// s.put(4, 6, 1);      // 15
// ```
//
// O(log n) for each box of any width: a tree node has the highest top below it, and a top that
// covers its whole range. Gaps under a box are lost. Nested lifetimes, placed from the longest to
// the shortest, leave no gaps.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/base/rooms.hpp>

namespace reprise::packing {

class Skyline {
 public:
  explicit Skyline(std::size_t places)
      : size_(std::bit_ceil(std::max<std::size_t>(places, 1))),
        most_(2 * size_, 0),
        whole_(2 * size_, 0) {}

  /// Puts a box over first .. last - 1 and returns the height of its bottom.
  std::int64_t put(std::size_t first, std::size_t last, std::int64_t height) {
    const std::int64_t bottom = top(1, 0, size_, first, last);
    cover(1, 0, size_, first, last, bottom + height);
    return bottom;
  }

  [[nodiscard]] std::int64_t height() const { return most_[1]; }

 private:
  [[nodiscard]] std::int64_t top(std::size_t i, std::size_t low, std::size_t high,
                                 std::size_t first, std::size_t last) const {
    if (first <= low && high <= last) return most_[i];
    const std::size_t middle = (low + high) / 2;
    std::int64_t result = whole_[i];
    if (first < middle) result = std::max(result, top(2 * i, low, middle, first, last));
    if (middle < last) result = std::max(result, top(2 * i + 1, middle, high, first, last));
    return result;
  }

  void cover(std::size_t i, std::size_t low, std::size_t high, std::size_t first, std::size_t last,
             std::int64_t level) {
    most_[i] = std::max(most_[i], level);
    if (first <= low && high <= last) {
      whole_[i] = std::max(whole_[i], level);
      return;
    }
    const std::size_t middle = (low + high) / 2;
    if (first < middle) cover(2 * i, low, middle, first, last, level);
    if (middle < last) cover(2 * i + 1, middle, high, first, last, level);
  }

  std::size_t size_;
  std::vector<std::int64_t> most_, whole_;
};

}  // namespace reprise::packing
