#pragma once
// Addresses in one arena for buffers whose lifetimes are known: no two that are alive at the same time overlap.
//
//   buffer  lower  upper  size      offset
//   a       0      3      4         0          alive in [0, 3)
//   b       1      5      2         4
//   c       3      6      4         0          a is gone by then
//                                   height 6 = the maximal load: nothing is wasted
//
// Buffers are placed as an allocator would in the course of time (hole_list.hpp), on top of each other (skyline.hpp), and one after
// the other, each at the lowest gap that is free for its whole life, in several orders (by size, by life, by the load that they
// meet, …). The best order is then improved by letting the buffers that ended up highest go first, within a fixed amount of work.
// Dynamic storage allocation is NP-hard: nested lifetimes reach the maximal load, others come close or stay some per cent above.

#include <algorithm>
#include <bit>
#include <limits>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <reprise/error.hpp>
#include <reprise/plan/hole_list.hpp>
#include <reprise/plan/simulate.hpp>
#include <reprise/plan/skyline.hpp>
#include <reprise/units.hpp>

namespace reprise {

struct Buffer {
  std::int64_t lower = 0;  ///< alive in [lower, upper)
  std::int64_t upper = 0;
  Bytes size{};
};

struct ArenaPlan {
  std::vector<Bytes> offsets{};  ///< beside the buffers
  Bytes height{};                ///< of the arena
  Bytes load{};                  ///< the most that is alive at once, sizes rounded up to the alignment: no arena is smaller
  [[nodiscard]] double ratio() const {
    return load.count > 0 ? static_cast<double>(height.count) / static_cast<double>(load.count) : 1;
  }
};

struct ArenaOptions {
  Bytes alignment{1};
  Bytes enough{0};              ///< stop at an arena of this height; 0 for the load
  std::size_t rounds = 0;       ///< of improvement; 0 for what takes well under a second
};

namespace detail {

class ArenaPacker {
 public:
  ArenaPacker(std::span<const Buffer> buffers, const ArenaOptions& options) : options_(options) {
    if (options.alignment.count <= 0) throw Error(Errc::bad_argument, "alignment: must be greater than zero");
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const Buffer& b = buffers[i];
      if (b.size.count < 0 || b.upper < b.lower)
        throw Error(Errc::bad_argument, "buffer " + std::to_string(i) + ": size is negative or upper is less than lower");
      const std::int64_t a = options.alignment.count;
      items_.push_back({b.lower, b.upper, (b.size.count + a - 1) / a * a, 0});
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
    std::vector<std::uint32_t> best = order;
    const auto attempt = [&](std::vector<std::uint32_t>& list) {
      if (result_.height.count <= enough) return false;
      if (!place(list, result_.height.count)) return false;
      best = list;
      return true;
    };
    in_time(order, true);
    in_time(order, false);
    for (int key : {2, 0, 1, 3, 4}) {
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return rank(items_[a], key) > rank(items_[b],
          key); });
      stack(order);
      if (result_.height.count > enough) attempt(order);
    }
    improve(best, enough, attempt);
    return std::move(result_);
  }

 private:
  static constexpr std::uint64_t most_work = 12'000'000;  // well under a second

  struct Item {
    std::int64_t lower, upper, size, met;  // met: the largest load during its life
  };

  // Lifetimes in terms of the moments at which anything changes: places in time are then few and dense.
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
      i.met = std::max(table[k][static_cast<std::size_t>(i.lower)], table[k][static_cast<std::size_t>(i.upper) - (std::size_t{1} << k)]);
    }
    return most;
  }

  static double rank(const Item& i, int key) {
    const auto size = static_cast<double>(i.size), life = static_cast<double>(i.upper - i.lower);
    switch (key) {
      case 0: return size;
      case 1: return size * life;
      case 2: return life;
      case 3: return static_cast<double>(i.met) * 1e3 + size / (1 + static_cast<double>(i.met)) + life * 1e-6;
      default: return -static_cast<double>(i.lower) + size * 1e-15;
    }
  }

  // Each buffer on top of all that are below it, gaps or not: fast for any number, and exact where lifetimes nest.
  void stack(const std::vector<std::uint32_t>& order) {
    Skyline line(static_cast<std::size_t>(moments_));
    std::vector<std::int64_t> offset(items_.size(), 0);
    for (std::uint32_t i : order)
      offset[i] = line.put(static_cast<std::size_t>(items_[i].lower), static_cast<std::size_t>(items_[i].upper), items_[i].size);
    accept(offset, line.height());
  }

  // As an allocator would, moment by moment: the tightest hole that is large enough, else the end. Backwards in time as well, since
  // training steps grow on one side and shrink on the other.
  void in_time(const std::vector<std::uint32_t>& order, bool forward) {
    std::vector<std::uint32_t> starts = order, ends = order;
    const auto begin = [&](std::uint32_t i) { return forward ? items_[i].lower : -items_[i].upper; };
    const auto end = [&](std::uint32_t i) { return forward ? items_[i].upper : -items_[i].lower; };
    std::stable_sort(starts.begin(), starts.end(), [&](std::uint32_t a, std::uint32_t b) {
      return begin(a) != begin(b) ? begin(a) < begin(b) : end(a) > end(b);
    });
    std::stable_sort(ends.begin(), ends.end(), [&](std::uint32_t a, std::uint32_t b) { return end(a) < end(b); });
    std::vector<std::int64_t> offset(items_.size(), 0);
    HoleList holes;
    std::size_t gone = 0;
    for (std::uint32_t i : starts) {
      for (; end(ends[gone]) <= begin(i); ++gone) holes.give(offset[ends[gone]], items_[ends[gone]].size);
      offset[i] = holes.take(items_[i].size);
    }
    accept(offset, holes.height());
  }

  void accept(const std::vector<std::int64_t>& offset, std::int64_t height) {
    if (height >= result_.height.count) return;
    for (std::size_t i = 0; i < items_.size(); ++i) result_.offsets[i] = {offset[i]};
    result_.height = {height};
  }

  // First fit: the lowest gap among those already placed that are alive at the same time. They are found by stretches of time:
  // all that live in the stretch where the buffer starts, and those that start in a later one. Gives up where the arena would be
  // no smaller than `limit`, or where the work is used up.
  bool place(const std::vector<std::uint32_t>& order, std::int64_t limit) {
    const std::int64_t width = moments_ / 256 + 1;
    const auto count = static_cast<std::size_t>(moments_ / width + 1);
    living_.assign(count, {});
    starting_.assign(count, {});
    offset_.assign(items_.size(), 0);
    std::int64_t height = 0;
    for (std::uint32_t i : order) {
      const Item& x = items_[i];
      const auto first = static_cast<std::size_t>(x.lower / width), last = static_cast<std::size_t>((x.upper - 1) / width);
      near_.clear();
      collect(living_[first], x);
      for (std::size_t b = first + 1; b <= last; ++b) collect(starting_[b], x);
      offset_[i] = lowest_gap(x.size);
      height = std::max(height, offset_[i] + x.size);
      work_ += near_.size() + (last - first) / 2;
      if (height >= limit || (work_ > most_work && result_.height.count < std::numeric_limits<std::int64_t>::max())) {
        blocked_ = i;
        return false;
      }
      starting_[first].push_back(i);
      for (std::size_t b = first; b <= last; ++b) living_[b].push_back(i);
    }
    accept(offset_, height);
    return true;
  }

  void collect(const std::vector<std::uint32_t>& list, const Item& x) {
    for (std::uint32_t j : list)
      if (items_[j].lower < x.upper && x.lower < items_[j].upper) near_.push_back({offset_[j], offset_[j] + items_[j].size});
  }

  // A heap instead of a sort: the gap is mostly found before all have been looked at.
  std::int64_t lowest_gap(std::int64_t size) {
    std::make_heap(near_.begin(), near_.end(), std::greater<>{});
    std::int64_t at = 0;
    for (auto end = near_.end(); end != near_.begin(); --end) {
      if (near_.front().first - at >= size) break;
      at = std::max(at, near_.front().second);
      std::pop_heap(near_.begin(), end, std::greater<>{});
    }
    return at;
  }

  // What did not fit below the best height moves forward in the order; now and then a random swap.
  template <class Attempt>
  void improve(std::vector<std::uint32_t> order, std::int64_t enough, const Attempt& attempt) {
    const std::size_t rounds = options_.rounds > 0 ? options_.rounds : std::size_t{4000};
    std::uint64_t state = 1;
    const auto random = [&](std::size_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::size_t>((state >> 33) % n);
    };
    for (std::size_t k = 0; k < rounds && work_ < most_work && order.size() > 1 && result_.height.count > enough; ++k) {
      if (attempt(order)) continue;
      const auto at = static_cast<std::size_t>(std::find(order.begin(), order.end(), blocked_) - order.begin());
      if (at == 0 || at >= order.size()) {
        std::swap(order[random(order.size())], order[random(order.size())]);
        continue;
      }
      const std::size_t to = k % 3 == 0 ? 0 : random(at);
      std::rotate(order.begin() + static_cast<std::ptrdiff_t>(to), order.begin() + static_cast<std::ptrdiff_t>(at),
                  order.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
  }

  ArenaOptions options_;
  std::vector<Item> items_;
  std::int64_t moments_ = 0;
  ArenaPlan result_;
  std::vector<std::vector<std::uint32_t>> living_, starting_;
  std::vector<std::int64_t> offset_;
  std::uint64_t work_ = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> near_;
  std::uint32_t blocked_ = 0;
};

}  // namespace detail

/// Buffers of size 0 and those that never live get offset 0. Throws Errc::bad_argument for a negative size or a life that ends before it
/// starts.
[[nodiscard]] inline ArenaPlan assign_offsets(std::span<const Buffer> buffers, const ArenaOptions& options = {}) {
  return detail::ArenaPacker{buffers, options}.run();
}

/// The storages of a schedule that are neither persistent nor there at the start, in the order of Resolution::storages.
[[nodiscard]] inline std::vector<Buffer> buffers_of(const Resolution& resolution) {
  std::vector<Buffer> buffers;
  for (const StorageInstance& s : resolution.storages)
    if (!s.persistent && s.made_by != no_index) buffers.push_back({s.first, std::int64_t{s.last} + 1, s.bytes});
  return buffers;
}

}  // namespace reprise
