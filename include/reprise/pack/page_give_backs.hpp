#pragma once
// page_give_backs() chooses pages of an arena to give back, for an arena that is larger than the
// memory that it may use. Pages whose blocks are dead for a while are given back to the system, and
// are mapped anew when they are touched.
//
//   arena of 5 pages, 4 may be mapped     page 4 |          c c c
//   a: [0, 2) on pages 0 to 2             page 3 |    b b b b b b
//   b: [1, 6) on page 3                   page 2 | a a          d
//   c: [3, 6) on page 4                   page 1 | a a          d       before c is taken, page 0 is given back: of the dead pages,
//   d: [5, 7) on pages 1 and 2            page 0 | a a . . . . .        it is needed last. c uses page 4 while page 0 is not mapped.
//
// Packing leaves gaps, because live blocks never fit together exactly; the gaps are dead pages. If
// the dead pages are given back, the arena uses only the live pages, whatever the packing. The cost
// is page faults for pages that are mapped anew.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <reprise/base/units.hpp>

namespace reprise::packing {

/// A block with its offset; live in [lower, upper).
struct PlacedBlock {
  std::int64_t lower = 0, upper = 0;
  std::int64_t offset = 0, size = 0;
};

/// Whole pages of an arena, in bytes.
struct PageRun {
  std::int64_t begin = 0, end = 0;
  bool operator==(const PageRun&) const = default;
};

class PageKeeper {
 public:
  PageKeeper(std::span<const PlacedBlock> blocks, std::int64_t ground, std::int64_t page)
      : blocks_(blocks), page_(page), ground_(ground / page) {
    std::int64_t height = 0;
    for (const PlacedBlock& b : blocks) height = std::max(height, b.offset + b.size);
    const auto pages = static_cast<std::size_t>((height + page - 1) / page);
    alive_.assign(pages, 0);
    held_.assign(pages, false);
    for (std::size_t p = 0; p < std::min(pages, static_cast<std::size_t>(ground_)); ++p)
      held_[p] = true;
    held_count_ = std::min(static_cast<std::int64_t>(pages), ground_);
    list_uses();
  }

  std::vector<std::vector<PageRun>> run() {
    std::vector<std::vector<PageRun>> runs(blocks_.size());
    std::vector<std::uint32_t> ends;
    for (std::uint32_t b = 0; b < blocks_.size(); ++b)
      if (is_real(blocks_[b])) ends.push_back(b);
    std::ranges::stable_sort(ends, {}, [&](std::uint32_t b) { return blocks_[b].upper; });
    std::size_t gone = 0;
    for (std::uint32_t b = 0; b < blocks_.size(); ++b) {
      if (!is_real(blocks_[b])) continue;
      for (; gone < ends.size() && blocks_[ends[gone]].upper <= blocks_[b].lower; ++gone)
        for_pages(blocks_[ends[gone]], [&](std::size_t p) { --alive_[p]; });
      take(b);
      runs[b] = give_back(held_count_ - ground_);
    }
    return runs;
  }

 private:
  static bool is_real(const PlacedBlock& b) { return b.size > 0 && b.upper > b.lower; }

  template <class Visit>
  void for_pages(const PlacedBlock& b, const Visit& visit) const {
    const auto end = static_cast<std::size_t>((b.offset + b.size + page_ - 1) / page_);
    for (auto p = static_cast<std::size_t>(b.offset / page_); p < end; ++p) visit(p);
  }

  // By page, the blocks that use it, in the order of time; one list after the other.
  void list_uses() {
    first_.assign(alive_.size() + 1, 0);
    for (const PlacedBlock& b : blocks_)
      if (is_real(b)) for_pages(b, [&](std::size_t p) { ++first_[p + 1]; });
    for (std::size_t p = 1; p < first_.size(); ++p) first_[p] += first_[p - 1];
    uses_.resize(first_.back());
    next_.assign(first_.begin(), first_.end() - 1);
    for (std::uint32_t b = 0; b < blocks_.size(); ++b)
      if (is_real(blocks_[b])) for_pages(blocks_[b], [&](std::size_t p) { uses_[next_[p]++] = b; });
    next_.assign(first_.begin(), first_.end() - 1);
  }

  void take(std::uint32_t b) {
    for_pages(blocks_[b], [&](std::size_t p) {
      ++alive_[p];
      ++next_[p];
      if (held_[p]) return;
      held_[p] = true;
      ++held_count_;
    });
  }

  // The next block that uses the page. A page without further use in this step is used next by the
  // following step.
  [[nodiscard]] std::uint64_t next_use(std::size_t p) const {
    if (next_[p] < first_[p + 1]) return uses_[next_[p]];
    return blocks_.size() + (first_[p] < first_[p + 1] ? uses_[first_[p]] : blocks_.size());
  }

  // The pages that are needed last; adjacent pages form one run.
  std::vector<PageRun> give_back(std::int64_t count) {
    if (count <= 0) return {};
    std::vector<std::pair<std::uint64_t, std::size_t>> dead;
    for (std::size_t p = 0; p < alive_.size(); ++p)
      if (held_[p] && alive_[p] == 0) dead.emplace_back(next_use(p), p);
    const auto wanted =
        static_cast<std::ptrdiff_t>(std::min(dead.size(), static_cast<std::size_t>(count)));
    const auto later = [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second > b.second;
    };
    std::nth_element(dead.begin(), dead.begin() + wanted, dead.end(), later);
    dead.resize(static_cast<std::size_t>(wanted));
    std::sort(dead.begin(), dead.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    std::vector<PageRun> runs;
    for (const auto& [use, p] : dead) {
      held_[p] = false;
      --held_count_;
      const std::int64_t begin = static_cast<std::int64_t>(p) * page_;
      if (!runs.empty() && runs.back().end == begin) runs.back().end += page_;
      else runs.push_back({begin, begin + page_});
    }
    return runs;
  }

  std::span<const PlacedBlock> blocks_;
  std::int64_t page_, ground_;  // the ground in pages: mapped when the step begins
  std::int64_t held_count_ = 0;
  std::vector<std::int32_t> alive_;  // by page: blocks on it
  std::vector<bool> held_;           // by page: mapped
  std::vector<std::size_t> first_, next_;
  std::vector<std::uint32_t> uses_;
};

/// By block, in the order of allocation: the pages to give back before it. When the step begins, at
/// most the pages below `ground` are mapped. From then on, at most `ground` bytes are mapped, or
/// the pages of all live blocks if these are more.
[[nodiscard]] inline std::vector<std::vector<PageRun>> page_give_backs(
    std::span<const PlacedBlock> blocks, Bytes ground, Bytes page) {
  return PageKeeper{blocks, ground.count, page.count}.run();
}

[[nodiscard]] inline Bytes bytes_given_back(std::span<const std::vector<PageRun>> runs) {
  Bytes sum{};
  for (const auto& list : runs)
    for (const PageRun& run : list) sum += Bytes{run.end - run.begin};
  return sum;
}

}  // namespace reprise::packing
