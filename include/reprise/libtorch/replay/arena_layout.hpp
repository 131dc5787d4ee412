#pragma once
// layout_arena() computes the offset of each block of a program in the arena, from the ops'
// allocations (allocation_trace.hpp) and their lifetimes in the program.
//
//   time is counted in allocations        conv                          relu         backward
//   moment                                0         1         2         3            4
//   workspace, dead at 1                  [0, 1) at 0
//   workspace, dead when conv returns               [1, 3) at 0                                  the same address: never live together
//   output, until backward ends                               [2, 5) at 8256
//
// If packing makes the arena too high, pages that are dead for a while are given back to the system
// meanwhile (pack/page_give_backs.hpp). The reserved bytes are then the requested bytes.
//
// The step's results are outside of the arena. All bytes are counted as the allocator counts them,
// as requested. The 64-byte header of each block is Reprise's own, in the arena and elsewhere.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#ifdef __linux__
#include <unistd.h>
#endif

#include <reprise/graph/step_graph.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/record/allocation_trace.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/pack/assign_offsets.hpp>
#include <reprise/pack/page_give_backs.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::replaying {

struct PlannedBlock {
  static constexpr std::int64_t outside = -1;
  std::size_t bytes = 0;
  std::int64_t offset = outside;
};

/// Unit in which the system maps memory; 0 if Reprise cannot give pages back on this system.
[[nodiscard]] inline Bytes system_page() {
#ifdef __linux__
  static const Bytes page{::sysconf(_SC_PAGESIZE)};
  return page;
#else
  return {0};
#endif
}

/// Pages to give back before a block is taken, if their last blocks are dead.
struct GiveBack {
  PageRun pages{};
  std::uint32_t owners = 0;  ///< index of the list in ArenaLayout::owners
};

/// Addresses for the allocations of one program.
struct ArenaLayout {
  std::vector<PlannedBlock> blocks{};  ///< in the order of allocation
  std::vector<std::uint32_t> first{};  ///< by step: its first block; one more at the end
  FlatLists<std::uint32_t> before{};   ///< by block: the blocks that had part of its bytes last
  FlatLists<GiveBack> give_backs{};    ///< by block; empty if no pages are given back
  FlatLists<std::uint32_t> owners{};   ///< blocks that had the pages of a give-back last
  Bytes given_back{};  ///< in one run of the program: this many bytes are faulted in again
  /// pages below this offset are mapped when a run begins, headers included
  Bytes ground{};
  Bytes height{};  ///< of the arena, headers included
  /// bytes that are charged for the arena, in the unit of other blocks: requested bytes plus the
  /// gaps of packing, without headers
  Bytes counted{};
  Bytes outside{};          ///< maximum of the live bytes outside of the arena
  std::size_t planned = 0;  ///< blocks that have an address

  /// Reserved bytes of a run: the arena and everything outside of it.
  [[nodiscard]] Bytes reserved() const { return counted + outside; }
};

class ArenaLayouter {
 public:
  ArenaLayouter(const Recording& recording, const Rewriting& rewriting,
                const AllocationTrace& trace, std::size_t results)
      : recording_(recording), rewriting_(rewriting), trace_(trace) {
    set_moments();
    last_.assign(rewriting.allocations.size(), moment_.back() + 1);
    for (std::size_t i = 0; i < rewriting.steps.size(); ++i)
      for (AllocationId a : rewriting.steps[i].frees) last_[a.index] = moment_[i + 1];
    result_.resize(rewriting.allocations.size(), false);
    for (std::size_t k = 0; k < std::min(results, rewriting.outputs.size()); ++k)
      result_[rewriting.slots[rewriting.outputs[k].index].allocation.index] = true;
  }

  ArenaLayout make(Bytes enough) {
    for (std::size_t i = 0; i < rewriting_.steps.size(); ++i) add_step(i);
    layout_.first.push_back(static_cast<std::uint32_t>(layout_.blocks.size()));
    pack(enough);
    const std::vector<std::vector<PageRun>> runs = give_pages_back(enough);
    find_predecessors(runs);
    return std::move(layout_);
  }

 private:
  struct Life {
    std::int64_t lower, upper;
    bool leaves;  // returned by the step: never in the arena
  };

  void set_moments() {
    moment_.push_back(0);
    for (const ProgramStep& step : rewriting_.steps) {
      const AllocationTrace::Op* op = trace_.find(step.node);
      moment_.push_back(
          moment_.back() +
          std::max(std::int64_t{1},
                   op == nullptr ? 0 : static_cast<std::int64_t>(op->allocations.size())));
    }
  }

  void add_step(std::size_t i) {
    layout_.first.push_back(static_cast<std::uint32_t>(layout_.blocks.size()));
    const AllocationTrace::Op* op = trace_.find(rewriting_.steps[i].node);
    if (op == nullptr) return;
    for (std::size_t k = 0; k < op->allocations.size(); ++k) add_block(i, k, op->allocations[k]);
  }

  void add_block(std::size_t i, std::size_t k, const TracedAllocation& taken) {
    Life life{moment_[i] + static_cast<std::int64_t>(k), moment_[i + 1], false};
    if (taken.result != TracedAllocation::workspace) {
      const AllocationId a = allocation_of(i, taken);
      // block_donation.hpp
      if (a.valid() && std::ranges::find(rewriting_.steps[i].allocates, a) ==
                           rewriting_.steps[i].allocates.end())
        return;
      life.leaves = !a.valid() || result_[a.index];
      life.upper = a.valid() ? last_[a.index] : moment_.back() + 1;
    } else if (taken.dead_at != TracedAllocation::at_the_end) {
      life.upper = moment_[i] + taken.dead_at;
    }
    lives_.push_back(life);
    layout_.blocks.push_back({taken.bytes, PlannedBlock::outside});
  }

  [[nodiscard]] AllocationId allocation_of(std::size_t i, const TracedAllocation& taken) const {
    const ProgramStep& step = rewriting_.steps[i];
    const auto& results = recording_.calls[step.node.index].results;
    for (std::size_t k = 0; k < results.size(); ++k)
      if (results[k].from == ResultSlot::From::returned && results[k].index == taken.result &&
          results[k].element == taken.element && step.writes[k].valid())
        return rewriting_.slots[step.writes[k].index].allocation;
    return {};
  }

  // ── addresses ──────────────────────────────────────────────────────────────────────────────────

  static std::int64_t with_header(std::size_t bytes) {
    constexpr auto alignment = static_cast<std::int64_t>(c10::gAlignment);
    return (static_cast<std::int64_t>(bytes + ThisDevice::header_bytes) + alignment - 1) /
           alignment * alignment;
  }

  void pack(Bytes enough) {
    std::vector<Buffer> buffers;
    std::vector<std::size_t> block_of;
    for (std::size_t b = 0; b < lives_.size(); ++b) {
      if (lives_[b].leaves) continue;
      layout_.blocks[b].offset = 0;
      buffers.push_back(
          {lives_[b].lower, lives_[b].upper, Bytes{with_header(layout_.blocks[b].bytes)}});
      block_of.push_back(b);
    }
    count();
    ArenaOptions options{.alignment = Bytes{c10::gAlignment}};
    if (enough > Bytes{0}) options.enough = enough - layout_.outside + headers_;
    const ArenaPlan plan = assign_offsets(buffers, options);
    for (std::size_t k = 0; k < buffers.size(); ++k)
      layout_.blocks[block_of[k]].offset = plan.offsets[k].count;
    count();
  }

  // Sets the totals of the layout.
  void count() {
    layout_.height = {};
    layout_.planned = 0;
    for (const PlannedBlock& block : layout_.blocks) {
      if (block.offset == PlannedBlock::outside) continue;
      layout_.height = std::max(layout_.height, Bytes{block.offset + with_header(block.bytes)});
      ++layout_.planned;
    }
    const auto inside = [](const PlannedBlock& block) {
      return block.offset != PlannedBlock::outside;
    };
    const Bytes load =
        most_alive([&](const PlannedBlock& b) { return inside(b) ? with_header(b.bytes) : 0; });
    requested_ = most_alive(
        [&](const PlannedBlock& b) { return inside(b) ? static_cast<std::int64_t>(b.bytes) : 0; });
    headers_ = load - requested_;
    layout_.counted = layout_.height - headers_;
    layout_.outside = most_alive(
        [&](const PlannedBlock& b) { return inside(b) ? 0 : static_cast<std::int64_t>(b.bytes); });
  }

  template <class Size>
  [[nodiscard]] Bytes most_alive(const Size& size) const {
    std::vector<std::int64_t> change(static_cast<std::size_t>(moment_.back()) + 2, 0);
    for (std::size_t b = 0; b < lives_.size(); ++b) {
      change[static_cast<std::size_t>(lives_[b].lower)] += size(layout_.blocks[b]);
      change[static_cast<std::size_t>(lives_[b].upper)] -= size(layout_.blocks[b]);
    }
    std::int64_t now = 0, most = 0;
    for (const std::int64_t c : change) most = std::max(most, now += c);
    return {most};
  }

  // If the arena is higher than `enough` allows: the pages to give back, by block.
  std::vector<std::vector<PageRun>> give_pages_back(Bytes enough) {
    layout_.ground = layout_.height;
    if (enough <= Bytes{0} || system_page() == Bytes{0} || layout_.reserved() <= enough ||
        enough < layout_.outside + requested_)
      return {};
    layout_.counted = enough - layout_.outside;
    layout_.ground = layout_.counted + headers_;
    std::vector<PlacedBlock> placed;
    for (std::size_t b = 0; b < lives_.size(); ++b) {
      const PlannedBlock& block = layout_.blocks[b];
      const bool inside = block.offset != PlannedBlock::outside;
      placed.push_back({lives_[b].lower, lives_[b].upper, inside ? block.offset : 0,
                        inside ? with_header(block.bytes) : 0});
    }
    std::vector<std::vector<PageRun>> runs = page_give_backs(placed, layout_.ground, system_page());
    layout_.given_back = bytes_given_back(runs);
    return runs;
  }

  // start -> end, block
  using Owners = std::map<std::int64_t, std::pair<std::int64_t, std::uint32_t>>;

  // Finds the last owners of each byte, as ranges of the arena: each block replaces the owners of
  // its range, and each give-back removes them.
  void find_predecessors(const std::vector<std::vector<PageRun>>& runs) {
    Owners owners;
    std::vector<std::uint32_t> found;
    std::vector<GiveBack> going;
    for (std::uint32_t b = 0; b < layout_.blocks.size(); ++b) {
      if (!runs.empty()) {
        going.clear();
        for (const PageRun& pages : runs[b]) {
          going.push_back({pages, static_cast<std::uint32_t>(layout_.owners.size())});
          layout_.owners.push_back(owners_of(owners, pages));
        }
        layout_.give_backs.push_back(going);
      }
      found.clear();
      const PlannedBlock& block = layout_.blocks[b];
      if (block.offset != PlannedBlock::outside) take_over(owners, block, b, found);
      layout_.before.push_back(found);
    }
  }

  [[nodiscard]] static std::vector<std::uint32_t> owners_of(const Owners& owners,
                                                            const PageRun& pages) {
    std::vector<std::uint32_t> found;
    auto it = owners.upper_bound(pages.begin);
    if (it != owners.begin()) --it;
    for (; it != owners.end() && it->first < pages.end; ++it)
      if (it->second.first > pages.begin) found.push_back(it->second.second);
    return found;
  }

  static void take_over(Owners& owners, const PlannedBlock& block, std::uint32_t b,
                        std::vector<std::uint32_t>& found) {
    const std::int64_t low = block.offset, high = low + with_header(block.bytes);
    auto it = owners.upper_bound(low);
    if (it != owners.begin()) --it;
    while (it != owners.end() && it->first < high) {
      const auto [start, rest] = *it;
      const auto [until, owner] = rest;
      if (until <= low) {
        ++it;
        continue;
      }
      found.push_back(owner);
      it = owners.erase(it);
      if (start < low) owners[start] = {low, owner};
      if (until > high) owners[high] = {until, owner};
    }
    owners[low] = {high, b};
  }

  const Recording& recording_;
  const Rewriting& rewriting_;
  const AllocationTrace& trace_;
  std::vector<std::int64_t> moment_;  // by step: its begin; one more at the end
  std::vector<std::int64_t> last_;    // by allocation: its death
  std::vector<bool> result_;          // by allocation: the caller keeps it
  std::vector<Life> lives_;           // by block
  Bytes requested_{};                 // maximum of the requested bytes in the arena
  Bytes headers_{};  // headers and alignment: the arena's load minus the requested bytes
  ArenaLayout layout_;
};

/// `results`: number of the step's outputs that the loss function returns; the other outputs are
/// gradients. `enough`: packing may stop if ArenaLayout::reserved() is at most this; 0: as small as
/// possible.
[[nodiscard]] inline ArenaLayout layout_arena(const Recording& recording,
                                              const Rewriting& rewriting,
                                              const AllocationTrace& trace, std::size_t results,
                                              Bytes enough = {}) {
  return ArenaLayouter{recording, rewriting, trace, results}.make(enough);
}

}  // namespace reprise::replaying

namespace reprise {
using replaying::ArenaLayout;
}  // namespace reprise
