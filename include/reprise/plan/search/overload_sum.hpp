#pragma once
// OverloadSum keeps the bytes above a limit, summed over all places. A search through schedules
// that do not fit pays for this sum. The maximum would not do, because most edits do not change the
// highest place.
//
// ```cpp
// OverloadSum o;
// o.assign({10, 50, 30, 70}, 40);   // four places, limit 40
// o.sum();                          // 10 + 30 = 40
// o.add(1, 3, -20);                 // 10 30 10 50
// o.sum();                          // 10
// ```
//
// Places are divided into blocks of 64. A block knows which of its places count (one bit each), and
// its largest value. If a block is below the limit before and after an addition, the addition
// changes the block as a whole. Otherwise only the places that count are visited.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/plan/search/peak_tree.hpp>

namespace reprise::planning {

class OverloadSum {
 public:
  /// Sets all places, in linear time, and the limit. Places at PeakTree::inactive do not count.
  void assign(const std::vector<std::int64_t>& values, std::int64_t limit) {
    limit_ = limit;
    values_ = values;
    values_.resize((values.size() + width - 1) / width * width, PeakTree::inactive);
    blocks_.assign(values_.size() / width, {});
    sum_ = 0;
    for (std::size_t p = 0; p < values_.size(); ++p)
      if (values_[p] > PeakTree::inactive / 2) blocks_[p / width].active |= bit(p);
    for (std::size_t b = 0; b < blocks_.size(); ++b) scan(blocks_[b], b);
  }

  /// Adds to every place that counts in first .. last, both included.
  void add(std::size_t first, std::size_t last, std::int64_t amount) {
    const std::size_t low = first / width, high = last / width;
    const std::uint64_t from = ~std::uint64_t{0} << first % width,
                        to = ~std::uint64_t{0} >> (width - 1 - last % width);
    if (low == high) return add_within(low, from & to, amount);
    add_within(low, from, amount);
    for (std::size_t b = low + 1; b < high; ++b) add_whole(b, amount);
    add_within(high, to, amount);
  }

  /// From now on, the place counts, with these bytes.
  void activate(std::size_t place, std::int64_t bytes) {
    Block& k = blocks_[place / width];
    k.active |= bit(place);
    values_[place] = bytes - k.added;
    k.most = std::max(k.most, bytes);
    set_over(k, k.over + std::max<std::int64_t>(bytes - limit_, 0));
  }
  void deactivate(std::size_t place) {
    Block& k = blocks_[place / width];
    k.active &= ~bit(place);
    set_over(k, k.over - std::max<std::int64_t>(values_[place] + k.added - limit_, 0));
  }

  /// Bytes above the limit, over all places.
  [[nodiscard]] std::int64_t sum() const { return sum_; }

 private:
  static constexpr std::size_t width = 64;
  struct Block {
    std::uint64_t active = 0;
    std::int64_t added = 0;                  // to every value in the block
    std::int64_t most = PeakTree::inactive;  // no value that counts is above this
    std::int64_t over = 0;
  };
  static std::uint64_t bit(std::size_t place) { return std::uint64_t{1} << place % width; }

  void add_within(std::size_t b, std::uint64_t places, std::int64_t amount) {
    Block& k = blocks_[b];
    places &= k.active;
    if (places == k.active) return add_whole(b, amount);
    std::int64_t* values = values_.data() + b * width;
    for (; places != 0; places &= places - 1) values[std::countr_zero(places)] += amount;
    if (k.most + std::max<std::int64_t>(amount, 0) > limit_) return scan(k, b);
    k.most += std::max<std::int64_t>(amount, 0);
  }

  void add_whole(std::size_t b, std::int64_t amount) {
    Block& k = blocks_[b];
    k.added += amount;
    k.most += amount;
    if (k.over != 0 || k.most > limit_) scan(k, b);
  }

  void scan(Block& k, std::size_t b) {
    std::int64_t most = PeakTree::inactive, over = 0;
    const std::int64_t* values = values_.data() + b * width;
    const std::int64_t limit = limit_ - k.added;
    for (std::uint64_t places = k.active; places != 0; places &= places - 1) {
      const std::int64_t v = values[std::countr_zero(places)];
      most = std::max(most, v);
      over += std::max<std::int64_t>(v - limit, 0);
    }
    k.most = most + k.added;
    set_over(k, over);
  }

  void set_over(Block& k, std::int64_t over) {
    sum_ += over - k.over;
    k.over = over;
  }

  std::int64_t limit_ = 0, sum_ = 0;
  std::vector<std::int64_t> values_;
  std::vector<Block> blocks_;
};

}  // namespace reprise::planning
