#pragma once
// OccurrenceOrder keeps the occurrences of a schedule in order: on numbered places with gaps, so
// that another occurrence fits anywhere.
//
//   place        0       7       11      15      23      31
//   occurrence   start   a       x       b       c       end         three were spread over 32 places, x was inserted before b
//
//   order.place_before(b) == 11; then next(a) == x, slot(x) == 11, at(11) == x
//
// An occurrence keeps its handle while others are inserted and removed. Handles of removed
// occurrences are used again, last in, first out. If a gap is used up, roomy_around() finds the
// smallest range of places that is not crowded.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <reprise/plan/search/schedule_facts.hpp>

namespace reprise::planning {

class OccurrenceOrder {
 public:
  using Occurrence = std::uint32_t;
  static constexpr std::uint32_t none = ScheduleFacts::none;

  explicit OccurrenceOrder(std::size_t nodes) : runs_(nodes), spare_(nodes) {
    all_.push_back({none, 0, none, end(), none, true});
    all_.push_back({none, 0, start(), none, none, true});
  }

  [[nodiscard]] static constexpr Occurrence start() { return 0; }
  [[nodiscard]] static constexpr Occurrence end() { return 1; }
  [[nodiscard]] Occurrence next(Occurrence x) const { return all_[x].next; }
  [[nodiscard]] Occurrence previous(Occurrence x) const { return all_[x].previous; }
  [[nodiscard]] std::uint32_t slot(Occurrence x) const { return all_[x].slot; }
  [[nodiscard]] std::uint32_t node(Occurrence x) const { return all_[x].node; }
  [[nodiscard]] bool alive(Occurrence x) const { return all_[x].alive; }
  /// Kept for the owner: the first instance of the occurrence's outputs.
  [[nodiscard]] std::uint32_t instances(Occurrence x) const { return all_[x].instances; }
  /// The occurrences of a node, in running order.
  [[nodiscard]] std::span<const Occurrence> runs(std::uint32_t n) const { return runs_[n]; }
  /// Place of a node's first occurrence; none if the node does not run.
  [[nodiscard]] std::uint32_t first_slot(std::uint32_t n) const {
    return runs_[n].empty() ? none : slot(runs_[n].front());
  }
  /// The occurrence on a place; none if the place is free.
  [[nodiscard]] Occurrence at(std::uint32_t place) const { return at_[place]; }
  [[nodiscard]] std::uint32_t places() const { return static_cast<std::uint32_t>(at_.size()); }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Handles given out so far, start and end included.
  [[nodiscard]] std::size_t pool_size() const { return all_.size(); }

  /// The first occurrence of an ordered list at or after a place.
  [[nodiscard]] std::vector<Occurrence>::const_iterator lower(const std::vector<Occurrence>& list,
                                                              std::uint32_t place) const {
    return std::lower_bound(list.begin(), list.end(), place,
                            [&](Occurrence x, std::uint32_t s) { return all_[x].slot < s; });
  }

  /// The handle of a removed occurrence of the node; none without one.
  Occurrence take_spare(std::uint32_t n) {
    if (spare_[n].empty()) return none;
    const Occurrence x = spare_[n].back();
    spare_[n].pop_back();
    return x;
  }
  Occurrence make(std::uint32_t n, std::uint32_t instances) {
    all_.push_back({n, 0, none, none, instances, false});
    return static_cast<Occurrence>(all_.size() - 1);
  }
  void give_back(Occurrence x) { spare_[node(x)].push_back(x); }

  void link(Occurrence x, Occurrence before) {
    Occ& o = all_[x];
    o.alive = true;
    o.next = before;
    o.previous = all_[before].previous;
    all_[o.previous].next = x;
    all_[before].previous = x;
    ++size_;
  }
  void unlink(Occurrence x) {
    Occ& o = all_[x];
    all_[o.previous].next = o.next;
    all_[o.next].previous = o.previous;
    at_[o.slot] = none;
    o.alive = false;
    --size_;
  }
  void set_slot(Occurrence x, std::uint32_t place) { all_[x].slot = place; }
  /// Enters the occurrence at its own place.
  void settle(Occurrence x) { at_[slot(x)] = x; }
  void lift(Occurrence x) { at_[slot(x)] = none; }

  /// Adds an occurrence that has its place to the runs of its node, or removes it.
  void add_run(Occurrence x) { runs_[node(x)].insert(lower(runs_[node(x)], slot(x)), x); }
  void remove_run(Occurrence x) { runs_[node(x)].erase(lower(runs_[node(x)], slot(x))); }

  /// A free place right before an occurrence; none without one.
  [[nodiscard]] std::uint32_t place_before(Occurrence before) const {
    const std::uint32_t low = slot(previous(before)), high = slot(before);
    return high - low > 1 ? low + (high - low) / 2 : none;
  }

  /// The smallest range around a place that is not crowded: first place, and one past the last; {0,
  /// 0} if all are crowded.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> roomy_around(std::uint32_t place) const {
    std::uint32_t width = 32;
    for (double crowded = 0.35; width < places(); width *= 2, crowded *= 0.96) {
      const std::uint32_t low = place / width * width;
      std::uint32_t count = 0;
      for (std::uint32_t p = low; p < low + width; ++p) count += at_[p] != none ? 1u : 0u;
      if (count <= static_cast<std::uint32_t>(crowded * width))
        return {std::max(low, 1u), std::min(low + width, places() - 1)};
    }
    return {0, 0};
  }

  /// Gives every occurrence a place with the same gap to the next one.
  void spread() {
    const std::uint32_t count = std::bit_ceil(static_cast<std::uint32_t>(size_ + 2) * gap);
    const std::uint64_t step = (std::uint64_t{count - 1} << 16) / (size_ + 1);
    std::uint64_t place = 0;
    at_.assign(count, none);
    for (Occurrence x = start(); x != none; x = next(x), place += step) {
      set_slot(x, x == end() ? count - 1 : static_cast<std::uint32_t>(place >> 16));
      settle(x);
    }
  }

 private:
  struct Occ {
    std::uint32_t node = none;
    std::uint32_t slot = 0;
    Occurrence previous = none, next = none;
    std::uint32_t instances = none;
    bool alive = false;
  };
  // places for each occurrence: at least this many, at most twice as many
  static constexpr std::uint32_t gap = 4;

  std::vector<Occ> all_;
  std::vector<std::vector<Occurrence>> runs_;   // by node, in running order
  std::vector<std::vector<Occurrence>> spare_;  // by node: removed handles
  std::vector<Occurrence> at_;                  // by place
  std::size_t size_ = 0;
};

}  // namespace reprise::planning
