#pragma once
// LiveBytes keeps the live bytes on each place of a schedule while lifetimes change: the peak, and
// the bytes above a limit.
//
//   LiveBytes live;
//   live.assign(…);                       8 places, on which nothing runs
//   live.activate(3, 16);                 something runs on place 3, with a workspace of 16 B
//   live.add(2, 5, 100);                  a storage of 100 B lives on places 2 … 5
//   live.tree().max()                     116, on place 3: only places on which something runs count

#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/plan/search/overload_sum.hpp>
#include <reprise/plan/search/peak_tree.hpp>

namespace reprise::planning {

class LiveBytes {
 public:
  /// Sets all places: live bytes by place, plus PeakTree::inactive if nothing runs there.
  void assign(const std::vector<std::int64_t>& live) {
    tree_.reset(static_cast<std::uint32_t>(live.size()));
    tree_.assign(live);
    if (watching_) overload_.assign(live, limit_);
  }
  void add(std::size_t first, std::size_t last, std::int64_t bytes) {
    ++changes_;
    tree_.add(first, last, bytes);
    if (watching_) overload_.add(first, last, bytes);
  }
  void activate(std::uint32_t place, std::int64_t own) {
    ++changes_;
    tree_.activate(place, own);
    if (watching_) overload_.activate(place, tree_.at(place));
  }
  void deactivate(std::uint32_t place, std::int64_t own) {
    tree_.deactivate(place, own);
    if (watching_) overload_.deactivate(place);
  }

  /// From the next assign() on, overload() is maintained: bytes above the limit, summed over all
  /// active places.
  void watch(std::int64_t limit) {
    watching_ = true;
    limit_ = limit;
  }
  [[nodiscard]] std::int64_t overload() const { return overload_.sum(); }
  [[nodiscard]] const PeakTree& tree() const { return tree_; }
  /// Number of lifetimes added and places activated.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  PeakTree tree_;
  OverloadSum overload_;
  bool watching_ = false;
  std::int64_t limit_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace reprise::planning
