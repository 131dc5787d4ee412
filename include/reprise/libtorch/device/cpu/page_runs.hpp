#pragma once
// Pages that wait for the next block, as runs: neighbours are one. Only the book-keeping.
//
//   runs.add({a, 40, 1});  runs.add({a + 40, 25, 2});       one run of 65, freed at 2
//   runs.take(30)                                           a: from the smallest run that is large enough; 35 wait on
//   runs.take_largest(), runs.take_oldest()

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include <reprise/base/rooms.hpp>

namespace reprise::cpu {

class PageRuns {
 public:
  /// Pages that wait, one next to the other.
  struct Run {
    std::byte* pages;
    std::size_t bytes;
    std::uint64_t freed;  ///< when the last of them came
  };

  [[nodiscard]] bool empty() const { return by_address_.empty(); }
  /// Of all runs. On any thread, while the runs change on another.
  [[nodiscard]] std::size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  void add(Run run) {
    const auto after = by_address_.lower_bound(run.pages);
    if (after != by_address_.end() && run.pages + run.bytes == after->first) {
      const Run other = remove(after);
      run = {run.pages, run.bytes + other.bytes, std::max(run.freed, other.freed)};
    }
    const auto next = by_address_.lower_bound(run.pages);
    if (next != by_address_.begin())
      if (const auto before = std::prev(next); before->first + before->second.bytes == run.pages) {
        const Run other = remove(before);
        run = {other.pages, other.bytes + run.bytes, std::max(run.freed, other.freed)};
      }
    by_address_.emplace(run.pages, run);
    by_size_.emplace(run.bytes, run.pages);
    bytes_.fetch_add(run.bytes, std::memory_order_relaxed);
  }

  /// From the smallest run that is large enough, whose rest stays; nullptr where there is none.
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    const auto found = by_size_.lower_bound({bytes, nullptr});
    if (found == by_size_.end()) return nullptr;
    const Run run = remove(by_address_.find(found->second));
    if (run.bytes > bytes) add({run.pages + bytes, run.bytes - bytes, run.freed});
    return run.pages;
  }
  /// Not of none.
  [[nodiscard]] Run take_largest() { return remove(by_address_.find(by_size_.rbegin()->second)); }
  [[nodiscard]] Run take_oldest() {
    return remove(std::ranges::min_element(by_address_, {},
                                           [](const auto& entry) { return entry.second.freed; }));
  }

 private:
  using ByAddress = std::map<std::byte*, Run>;

  Run remove(ByAddress::iterator it) {
    const Run run = it->second;
    by_size_.erase({run.bytes, run.pages});
    by_address_.erase(it);
    bytes_.fetch_sub(run.bytes, std::memory_order_relaxed);
    return run;
  }

  ByAddress by_address_;
  std::set<std::pair<std::size_t, std::byte*>> by_size_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace reprise::cpu
