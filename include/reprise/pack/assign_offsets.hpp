#pragma once
// assign_offsets() places buffers with known lifetimes in one arena: no two that are live at the
// same time overlap.
//
//   buffer  lower  upper  size      offset
//   a       0      3      4         0          alive in [0, 3)
//   b       1      5      2         4
//   c       3      6      4         0          a is dead by then
//                                   height 6 = the maximal load: no gaps
//
// Buffers are placed in three ways and many orders. The ways are: in the course of time, as an
// allocator would (hole_list.hpp); on top of each other (skyline.hpp); and each at the lowest gap
// that is free for its whole life (first_fit.hpp). The orders are by size, by life, by the load
// that the buffers meet, …, with large buffers first or not. The best order is then improved by
// moving the highest buffers forward, within a fixed amount of work. Dynamic storage allocation is
// NP-hard: nested lifetimes reach the maximal load, others come close or stay some per cent above.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/pack/first_fit.hpp>
#include <reprise/pack/hole_list.hpp>
#include <reprise/pack/skyline.hpp>

namespace reprise::packing {

struct Buffer {
  std::int64_t lower = 0;  ///< live in [lower, upper)
  std::int64_t upper = 0;
  Bytes size{};
};

struct ArenaPlan {
  std::vector<Bytes> offsets{};  ///< in the order of the buffers
  Bytes height{};                ///< of the arena
  /// the maximum of the live bytes, sizes rounded up to the alignment: no arena is smaller
  Bytes load{};
  [[nodiscard]] double ratio() const {
    return load.count > 0 ? static_cast<double>(height.count) / static_cast<double>(load.count) : 1;
  }
};

struct ArenaOptions {
  Bytes alignment{1};
  Bytes enough{0};         ///< stop at an arena of this height; 0 for the load
  std::size_t rounds = 0;  ///< of improvement; 0 for a number that takes well under a second
};

class ArenaPacker {
 public:
  ArenaPacker(std::span<const Buffer> buffers, const ArenaOptions& options) : options_(options) {
    // as in graph files; sums and rounding up stay far from overflow
    constexpr std::int64_t most = std::int64_t{1} << 53;
    const std::string from_to = " bytes; must be between ";
    if (options.alignment.count <= 0 || options.alignment.count > most)
      throw Error(Errc::bad_argument,
                  "alignment: " + std::to_string(options.alignment.count) + from_to + "1 and 2^53");
    std::int64_t all = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const Buffer& b = buffers[i];
      if (b.size.count < 0 || b.upper < b.lower)
        throw Error(Errc::bad_argument, "buffer " + std::to_string(i) +
                                            ": size is negative or upper is less than lower");
      const std::int64_t a = options.alignment.count;
      if (b.size.count > most)
        throw Error(Errc::bad_argument, "buffer " + std::to_string(i) + ": " +
                                            std::to_string(b.size.count) + from_to + "0 and 2^53");
      items_.push_back({b.lower, b.upper, (b.size.count + a - 1) / a * a, 0});
      if ((all += items_.back().size) > most * 256)
        throw Error(Errc::bad_argument,
                    "buffers: together more than 2^61 bytes, rounded up to the alignment");
    }
    compress_times();
    result_.offsets.assign(items_.size(), Bytes{0});
    result_.load = {load()};
  }

  ArenaPlan run() {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < items_.size(); ++i)
      if (items_[i].size > 0 && items_[i].upper > items_[i].lower) order.push_back(i);
    result_.height = {std::numeric_limits<std::int64_t>::max()};
    if (order.empty()) result_.height = {0};
    const std::int64_t enough = std::max(options_.enough.count, result_.load.count);
    in_time(order, true);
    in_time(order, false);
    for (int key = 0; key < keys; ++key) {
      sort_by(order, {.others = key});
      stack(order);
    }
    if (result_.height.count > enough) fit(order, enough);
    return std::move(result_);
  }

 private:
  static constexpr std::uint64_t most_work = 250'000'000;  // well under a second

  struct Item {
    std::int64_t lower, upper, size, met;  // met: the largest load during its life
  };

  // Replaces times by the index of the moment at which something changes: indices are few and
  // dense.
  void compress_times() {
    std::vector<std::int64_t> times;
    for (const Item& i : items_) times.insert(times.end(), {i.lower, i.upper});
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    for (Item& i : items_) {
      i.lower = std::lower_bound(times.begin(), times.end(), i.lower) - times.begin();
      i.upper = std::lower_bound(times.begin(), times.end(), i.upper) - times.begin();
    }
    moments_ = static_cast<std::int64_t>(times.size());
  }

  std::int64_t load() {
    std::vector<std::int64_t> level(static_cast<std::size_t>(moments_) + 1, 0);
    for (const Item& i : items_) {
      level[static_cast<std::size_t>(i.lower)] += i.size;
      level[static_cast<std::size_t>(i.upper)] -= i.size;
    }
    std::int64_t most = 0;
    for (std::size_t t = 1; t < level.size(); ++t) level[t] += level[t - 1];
    for (std::int64_t l : level) most = std::max(most, l);
    // Largest load in each life, by sparse table: 20,000 lives over 40,000 moments.
    std::vector<std::vector<std::int64_t>> table{level};
    for (std::size_t w = 1; 2 * w <= level.size(); w *= 2) {
      const auto& below = table.back();
      std::vector<std::int64_t> row(level.size() - 2 * w + 1);
      for (std::size_t t = 0; t < row.size(); ++t) row[t] = std::max(below[t], below[t + w]);
      table.push_back(std::move(row));
    }
    for (Item& i : items_) {
      const auto length = static_cast<std::uint64_t>(i.upper - i.lower);
      if (length == 0) continue;
      const auto k = static_cast<std::size_t>(std::bit_width(length) - 1);
      i.met = std::max(table[k][static_cast<std::size_t>(i.lower)],
                       table[k][static_cast<std::size_t>(i.upper) - (std::size_t{1} << k)]);
    }
    return most;
  }

  static constexpr int keys = 6;
  static double rank(const Item& i, int key) {
    const auto size = static_cast<double>(i.size), life = static_cast<double>(i.upper - i.lower);
    switch (key) {
      case 0: return size;
      case 1: return static_cast<double>(i.met);
      case 2: return size * life;
      case 3: return life;
      case 4: return -static_cast<double>(i.lower);
      default: return static_cast<double>(i.upper);
    }
  }

  // First the buffers of at least 1 / share of the load, by one key; then the others by another
  // key. Larger buffers come first if keys are equal.
  struct OrderBy {
    std::int64_t share = 0;  // 0: none is large
    int large = 0, others = 0;
  };
  void sort_by(std::vector<std::uint32_t>& order, const OrderBy& by) const {
    const auto is_large = [&](const Item& i) {
      return by.share > 0 && i.size >= result_.load.count / by.share;
    };
    std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Item &x = items_[a], &y = items_[b];
      if (is_large(x) != is_large(y)) return is_large(x);
      const int key = is_large(x) ? by.large : by.others;
      const double rx = rank(x, key), ry = rank(y, key);
      if (rx != ry) return rx > ry;
      if (x.size != y.size) return x.size > y.size;
      const std::int64_t lx = x.upper - x.lower, ly = y.upper - y.lower;
      return lx != ly ? lx > ly : a < b;
    });
  }

  void fit(const std::vector<std::uint32_t>& all, std::int64_t enough) {
    std::vector<FirstFit::Item> items;
    for (const Item& i : items_) items.push_back({i.lower, i.upper, i.size});
    FirstFit search{std::move(items), most_work};
    std::vector<std::uint32_t> order = all;
    for (std::int64_t share : {0, 8, 16, 128})
      for (int large : {0, 1})
        for (int others = 0; others < keys; ++others) {
          if (search.height() <= enough || search.work() > most_work || (share == 0 && large != 0))
            continue;
          sort_by(order, {share, large, others});
          search.attempt(order);
        }
    search.improve(enough, options_.rounds > 0 ? options_.rounds : std::size_t{20'000});
    accept(search.offsets(), search.height());
  }

  // Puts each buffer on top of all buffers below it, with or without gaps: fast for any number of
  // buffers, and exact if lifetimes nest.
  void stack(const std::vector<std::uint32_t>& order) {
    Skyline line(static_cast<std::size_t>(moments_));
    std::vector<std::int64_t> offset(items_.size(), 0);
    for (std::uint32_t i : order)
      offset[i] = line.put(static_cast<std::size_t>(items_[i].lower),
                           static_cast<std::size_t>(items_[i].upper), items_[i].size);
    accept(offset, line.height());
  }

  // Works as an allocator would, moment by moment: the tightest hole that is large enough, else the
  // end. Also backwards in time, because training steps grow on one side and shrink on the other.
  void in_time(const std::vector<std::uint32_t>& order, bool forward) {
    std::vector<std::uint32_t> starts = order, ends = order;
    const auto begin = [&](std::uint32_t i) {
      return forward ? items_[i].lower : -items_[i].upper;
    };
    const auto end = [&](std::uint32_t i) { return forward ? items_[i].upper : -items_[i].lower; };
    std::stable_sort(starts.begin(), starts.end(), [&](std::uint32_t a, std::uint32_t b) {
      return begin(a) != begin(b) ? begin(a) < begin(b) : end(a) > end(b);
    });
    std::ranges::stable_sort(ends, {}, end);
    std::vector<std::int64_t> offset(items_.size(), 0);
    HoleList holes;
    std::size_t gone = 0;
    for (std::uint32_t i : starts) {
      for (; end(ends[gone]) <= begin(i); ++gone)
        holes.give(offset[ends[gone]], items_[ends[gone]].size);
      offset[i] = holes.take(items_[i].size);
    }
    accept(offset, holes.height());
  }

  void accept(const std::vector<std::int64_t>& offset, std::int64_t height) {
    if (height >= result_.height.count) return;
    for (std::size_t i = 0; i < items_.size(); ++i) result_.offsets[i] = {offset[i]};
    result_.height = {height};
  }

  ArenaOptions options_;
  std::vector<Item> items_;
  std::int64_t moments_ = 0;
  ArenaPlan result_;
};

/// Buffers of size 0 and those that are never live get offset 0. Throws Errc::bad_argument for a
/// negative size or a life that ends before it starts.
[[nodiscard]] inline ArenaPlan assign_offsets(std::span<const Buffer> buffers,
                                              const ArenaOptions& options = {}) {
  return ArenaPacker{buffers, options}.run();
}

}  // namespace reprise::packing

namespace reprise {
using packing::ArenaPlan;
using packing::assign_offsets;
using packing::Buffer;
}  // namespace reprise
