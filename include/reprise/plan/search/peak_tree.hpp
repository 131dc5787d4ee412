#pragma once
// PeakTree stores the live bytes at each place of a schedule: range add, range maximum.
//
// ```cpp
// PeakTree t(8);         // places 0 .. 7, all inactive
// t.activate(1, 0);      // two occurrences run, at 1 and 5
// t.activate(5, 0);
// t.add(0, 3, 100);      // a storage of 100 bytes lives from 0 to 3
// t.max();               // 100
// t.add(3, 7, 50);
// t.at(5);               // 50
// ```
//
// Each tree node has the largest sum below it plus the additions to its whole range, so nothing is
// pushed down.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/base/rooms.hpp>

namespace reprise::planning {

class PeakTree {
 public:
  /// The value of an inactive place: far below any number of live bytes.
  static constexpr std::int64_t inactive = -(std::int64_t{1} << 60);

  explicit PeakTree(std::size_t places = 1) { reset(places); }

  /// At least this many places, all inactive, without live bytes.
  void reset(std::size_t places) {
    size_ = std::bit_ceil(std::max<std::size_t>(places, 2));
    cells_.assign(2 * size_, {inactive, 0});
  }

  [[nodiscard]] std::size_t size() const { return size_; }

  /// Adds to every place in first .. last, both included.
  void add(std::size_t first, std::size_t last, std::int64_t amount) {
    std::size_t l = first + size_, r = last + size_;
    cells_[l].max += amount;
    if (l != r) cells_[r].max += amount;
    while (l >> 1 != r >> 1) {
      if (!(l & 1)) grow(l ^ 1, amount);
      if (r & 1) grow(r ^ 1, amount);
      l >>= 1;
      r >>= 1;
      pull(l);
      pull(r);
    }
    for (l >>= 1; l > 0; l >>= 1) pull(l);
  }

  /// From now on, the place counts, with its own bytes (workspace).
  void activate(std::size_t place, std::int64_t own) { add(place, place, own - inactive); }
  void deactivate(std::size_t place, std::int64_t own) { add(place, place, inactive - own); }

  [[nodiscard]] std::int64_t max() const { return cells_[1].max; }

  /// The first place with the maximum.
  [[nodiscard]] std::size_t argmax() const {
    std::size_t i = 1;
    while (i < size_) i = 2 * i + (cells_[2 * i + 1].max > cells_[2 * i].max ? 1 : 0);
    return i - size_;
  }

  /// The first and the last place above a limit; there must be such a place.
  [[nodiscard]] std::size_t first_above(std::int64_t limit) const {
    std::size_t i = 1;
    while (i < size_) {
      limit -= cells_[i].added;
      i = 2 * i + (cells_[2 * i].max > limit ? 0 : 1);
    }
    return i - size_;
  }
  [[nodiscard]] std::size_t last_above(std::int64_t limit) const {
    std::size_t i = 1;
    while (i < size_) {
      limit -= cells_[i].added;
      i = 2 * i + (cells_[2 * i + 1].max > limit ? 1 : 0);
    }
    return i - size_;
  }

  [[nodiscard]] std::int64_t at(std::size_t place) const {
    std::size_t i = place + size_;
    std::int64_t sum = cells_[i].max;
    while (i >>= 1) sum += cells_[i].added;
    return sum;
  }

  /// The maximum over first .. last, both included.
  [[nodiscard]] std::int64_t max(std::size_t first, std::size_t last) const {
    std::size_t l = first + size_, r = last + size_;
    std::int64_t left = cells_[l].max, right = cells_[r].max;
    while (l >> 1 != r >> 1) {
      if (!(l & 1)) left = std::max(left, cells_[l ^ 1].max);
      if (r & 1) right = std::max(right, cells_[r ^ 1].max);
      l >>= 1;
      r >>= 1;
      left += cells_[l].added;
      right += cells_[r].added;
    }
    std::int64_t most = std::max(left, right);
    while (l >>= 1) most += cells_[l].added;
    return most;
  }

  /// Sets all places at once, in linear time.
  void assign(const std::vector<std::int64_t>& values) {
    for (std::size_t i = 0; i < size_; ++i)
      cells_[size_ + i] = {i < values.size() ? values[i] : inactive, 0};
    for (std::size_t i = size_ - 1; i > 0; --i)
      cells_[i] = {std::max(cells_[2 * i].max, cells_[2 * i + 1].max), 0};
  }

 private:
  struct Cell {
    std::int64_t max = 0;
    std::int64_t added = 0;  // to everything below; unused in leaves
  };

  void grow(std::size_t i, std::int64_t amount) {
    cells_[i].max += amount;
    cells_[i].added += amount;
  }
  void pull(std::size_t i) {
    cells_[i].max = std::max(cells_[2 * i].max, cells_[2 * i + 1].max) + cells_[i].added;
  }

  std::size_t size_ = 0;
  std::vector<Cell> cells_;
};

}  // namespace reprise::planning
