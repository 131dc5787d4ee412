#pragma once
// FirstFit places each buffer of an order at the lowest gap that is free for its whole life, and
// searches for a good order.
//
//   FirstFit fit(items, work);
//   fit.attempt(order)               true if the arena became lower than any before
//   fit.improve(load, rounds)        moves buffers above the best height forward, again and again ("squeaky wheel")
//   fit.height(), fit.offsets()      the best so far
//
// Placed buffers are in a list by offset, so a gap is found by reading the list from the start. An
// attempt only places anew the buffers after the first change in the order. Both make attempts
// fast.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <reprise/base/rooms.hpp>

namespace reprise::packing {

class FirstFit {
 public:
  struct Item {
    std::int64_t lower = 0, upper = 0, size = 0;
  };

  FirstFit(std::vector<Item> items, std::uint64_t most_work)
      : items_(std::move(items)),
        most_work_(most_work),
        place_(items_.size()),
        offset_(items_.size(), 0) {}

  [[nodiscard]] std::uint64_t work() const { return work_; }
  [[nodiscard]] std::int64_t height() const { return best_height_; }
  [[nodiscard]] const std::vector<std::int64_t>& offsets() const { return best_; }

  bool attempt(const std::vector<std::uint32_t>& order) {
    order_ = order;
    for (std::uint32_t p = 0; p < order_.size(); ++p) place_[order_[p]] = p;
    return put_from(0);
  }

  void improve(std::int64_t enough, std::size_t rounds) {
    if (best_order_.size() < 2) return;
    std::size_t patience = 0, since = 0;  // rounds since the last improvement
    for (std::size_t k = 0; k < rounds && work_ < most_work_ && best_height_ > enough; ++k) {
      if (since++ >= patience || place_[blocked_] == 0) {
        // some ways to a better order are long
        patience = attempt(shaken(k == 0 ? 0 : random(4))) ? 0 : 10u << random(6);
        since = 0;
        continue;
      }
      const std::uint32_t at = place_[blocked_], to = target(at);
      std::rotate(order_.begin() + to, order_.begin() + at, order_.begin() + at + 1);
      for (std::uint32_t p = to; p <= at; ++p) place_[order_[p]] = p;
      if (put_from(to)) patience = 0;
    }
  }

 private:
  struct Placed {
    std::int64_t offset, end, lower, upper;
    std::uint32_t item;
  };

  bool put_from(std::uint32_t first) {
    if (first == 0) placed_.clear();
    else std::erase_if(placed_, [&](const Placed& p) { return place_[p.item] >= first; });
    for (std::uint32_t p = first; p < order_.size(); ++p) {
      const std::uint32_t i = order_[p];
      put(i);
      if (offset_[i] + items_[i].size >= best_height_) {
        blocked_ = i;
        return false;
      }
      if (work_ > most_work_ && !best_.empty()) return false;
    }
    best_ = offset_;
    best_order_ = order_;
    best_height_ = 0;
    for (std::uint32_t i : order_)
      best_height_ = std::max(best_height_, offset_[i] + items_[i].size);
    return true;
  }

  // Into the lowest gap: all buffers that begin below it have been read by then.
  void put(std::uint32_t i) {
    const Item& x = items_[i];
    std::int64_t at = 0;
    std::size_t k = 0;
    for (; k < placed_.size() && placed_[k].offset < at + x.size; ++k)
      if (placed_[k].lower < x.upper && x.lower < placed_[k].upper)
        at = std::max(at, placed_[k].end);
    work_ += k + 16;
    offset_[i] = at;
    const auto before =
        std::upper_bound(placed_.begin(), placed_.begin() + static_cast<std::ptrdiff_t>(k), at,
                         [](std::int64_t offset, const Placed& p) { return offset < p.offset; });
    placed_.insert(before, {at, at + x.size, x.lower, x.upper, i});
  }

  // Usually a little earlier, so that much of the order stays; sometimes at a random place, or
  // first of all.
  std::uint32_t target(std::uint32_t at) {
    switch (random(4)) {
      case 0: return random(at);
      case 1: return 0;
      default: return at - 1 - random(1 + at / 4);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> shaken(std::uint32_t swaps) {
    std::vector<std::uint32_t> order = best_order_;
    for (; swaps > 0; --swaps) std::swap(order[random(order.size())], order[random(order.size())]);
    return order;
  }

  std::uint32_t random(std::size_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>((state_ >> 33) % n);
  }

  std::vector<Item> items_;
  std::uint64_t most_work_, work_ = 0, state_ = 1;
  std::vector<std::uint32_t> order_, best_order_, place_;
  std::vector<std::int64_t> offset_, best_;
  std::vector<Placed> placed_;
  std::int64_t best_height_ = std::numeric_limits<std::int64_t>::max();
  std::uint32_t blocked_ = 0;
};

}  // namespace reprise::packing
