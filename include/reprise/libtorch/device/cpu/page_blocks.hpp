#pragma once
// Large blocks as pages of their own, while a step is kept inside a limit: what is freed goes back
// to the system, or waits for the next blocks that fit into it, and what the process holds follows
// what its tensors hold.
//
//   limit 100 MiB        live   waiting
//   conv's output 40     90
//   conv's output dies   50     40          it fits beside what is alive: it waits
//   another 25           75     15          taken from there: no page fault; the rest waits on
//   20 come              95      0          no run of 20 waits: the 15 are moved under the new addresses, and 5 fresh ones come behind them
//   the 25 die           70     25          they wait; next to others, they are one run with them; never more than was alive at most
//
// Steps that ask for the same blocks again and again have each of them at the same address every
// time, in one region (pack/learned_addresses.hpp): nothing is moved any more, and as long as the
// region fits into the limit nothing is asked of the system.
//
// glibc keeps what is freed and does not find room in its holes for aligned blocks: a process in
// which storages come and go would grow to several times what they hold (ResNet-152 inside 614 MiB:
// to 1.9 GiB).

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>

#include <reprise/base/one_per_process.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/memory_counter.hpp>
#include <reprise/libtorch/device/cpu/page_mappings.hpp>
#include <reprise/libtorch/device/cpu/page_region.hpp>
#include <reprise/libtorch/device/cpu/page_runs.hpp>
#include <reprise/libtorch/device/cpu/thread_hooks.hpp>
#include <reprise/pack/learned_addresses.hpp>

namespace reprise::cpu {

/// One for the process. Blocks that wait count as held: cpu_memory().reserved().
class PageBlocks {
 public:
  /// Smaller blocks would waste much of their last page, and a call to the system each.
  static constexpr std::size_t smallest = std::size_t{256} << 10;

  /// Pages for a block of this thread; nullptr where it is to come from the heap. `mapped` is what
  /// give() has to get back.
  std::byte* take(std::size_t bytes, std::size_t& mapped) {
    if (limit_here() <= Bytes{0}) return take_between_steps(bytes, mapped);
    if (bytes < smallest) {
      make_room(Bytes{static_cast<std::int64_t>(bytes)});
      return nullptr;
    }
    const std::size_t whole = PageMappings::round_up(bytes);
    const std::lock_guard lock(guard_);
    limit_ = limit_here();
    most_live_ =
        std::max(most_live_, cpu_memory().live() + Bytes{static_cast<std::int64_t>(bytes)});
    const Bytes beside = most_held() - Bytes{static_cast<std::int64_t>(whole)};
    std::byte* pages = take_place(whole);
    if (pages == nullptr) pages = take_waiting(whole);
    const bool in_pieces = pages == nullptr && !runs_.empty();
    if (!in_pieces) trim_to(beside);
    if (pages == nullptr) pages = in_pieces ? gather(whole, beside) : mappings_.map(whole);
    if (pages == nullptr) {  // no more address space: what waits may be in the way
      close_region();
      addresses_.give_up();
      trim_to(Bytes{-1});
      pages = mappings_.map(whole);
    }
    if (pages == nullptr) return nullptr;
    addresses_.born(pages, whole);
    mapped = whole;
    return pages;
  }

  /// The block is dead. On any thread. `has_pages` false: all but its edges have gone back to the
  /// system before.
  void give(std::byte* pages, std::size_t mapped, bool has_pages = true) {
    const std::lock_guard lock(guard_);
    addresses_.died(pages);
    const Bytes bytes{static_cast<std::int64_t>(mapped)};
    // what died last is what comes next, more often than what has waited long
    trim_to(most_held() - bytes);
    const bool waits = has_pages && cpu_memory().reserved() + bytes <= most_held();
    if (region_.contains(pages)) {
      region_.give(pages, mapped, waits);
      if (waits) waits_in_region(bytes.count);
      return;
    }
    if (!waits) return mappings_.unmap(pages, mapped);
    runs_.add({pages, mapped, ++clock_});
    cpu_memory().add_reserved_unused(bytes.count);
  }

  /// What waits must not stand in the way of a small block either, nor of one whose memory comes
  /// back where it lies.
  void make_room(Bytes bytes) {
    if (limit_here() <= Bytes{0} || cpu_memory().reserved() + bytes <= limit_here()) return;
    const std::lock_guard lock(guard_);
    trim_to(limit_here() - bytes);
  }
  /// A part of a block has got other pages: the system may take it for an area of its own.
  void note_moved(std::byte* pages, std::size_t bytes) {
    const std::lock_guard lock(guard_);
    mappings_.note_exchanged(pages, bytes);
  }

  /// A step begins on this thread: what it is going to ask for may be known. Between its beginning
  /// and its end blocks are taken note of.
  void begin_step() {
    const std::lock_guard lock(guard_);
    addresses_.begin();
    if (region_.is_open() || addresses_.height() == 0) return;
    trim_to(Bytes{-1});  // the region gets pages of its own, which are never moved
    if (region_.reserve(PageMappings::round_up(addresses_.height())))
      mappings_.begin_area(region_.begin(), region_.bytes());
    else addresses_.give_up();
  }
  void end_step() {
    const std::lock_guard lock(guard_);
    if (addresses_.end()) close_region();
  }
  /// It was broken off.
  void abandon_step() {
    const std::lock_guard lock(guard_);
    addresses_.abandon();
  }
  /// Whether blocks of steps have addresses of their own just now.
  [[nodiscard]] bool has_region() {
    const std::lock_guard lock(guard_);
    return region_.is_open();
  }

  /// Everything that waits goes back.
  void clear() {
    const std::lock_guard lock(guard_);
    forget_addresses();
    trim_to(Bytes{-1});
  }

  /// The same, and nothing waits from now on.
  void stop() {
    const std::lock_guard lock(guard_);
    limit_ = most_live_ = {};
    forget_addresses();
    trim_to(Bytes{-1});
  }

  /// Of this thread; 0: no step is under way here.
  static Bytes& limit_here() { return thread_hooks().limit; }

 private:
  /// At most, with what waits: the limit, and no more than was alive at most.
  [[nodiscard]] Bytes most_held() const {
    // headers, and what whole pages are more than was asked for
    const Bytes rounding{most_live_.count / 64};
    return std::min(limit_, most_live_ + rounding);
  }

  // Outside of a step what waits is used up before the heap grows, or a validation pass would need
  // its memory beside that of the steps.
  std::byte* take_between_steps(std::size_t bytes, std::size_t& mapped) {
    if (bytes < smallest || waiting() < bytes) return nullptr;
    const std::size_t whole = PageMappings::round_up(bytes);
    const std::lock_guard lock(guard_);
    if (waiting() < whole) return nullptr;
    std::byte* pages = take_waiting(whole);
    if (pages == nullptr) pages = take_from_region(whole);
    // whatever it takes
    if (pages == nullptr && !runs_.empty())
      pages = gather(whole, Bytes{std::numeric_limits<std::int64_t>::max()});
    if (pages != nullptr) mapped = whole;
    return pages;
  }

  // On any thread: what waits may change meanwhile.
  [[nodiscard]] std::size_t waiting() const {
    return runs_.bytes() + in_region_.load(std::memory_order_relaxed);
  }

  // ── the region in which blocks of steps have their places ──────────────────────────────────────

  // Where the block is to lie, if nothing lies there.
  std::byte* take_place(std::size_t whole) {
    const std::optional<std::size_t> offset = addresses_.next(whole);
    if (!offset || !region_.is_open()) return nullptr;
    const std::optional<std::size_t> waited = region_.take(*offset, whole);
    if (!waited) {
      addresses_.missed(whole);
      return nullptr;
    }
    waits_in_region(-static_cast<std::int64_t>(*waited));
    return region_.begin() + *offset;
  }

  // Between steps, for as long as nothing has its place there: as it lies, or as fresh pages for as
  // many of those that wait.
  std::byte* take_from_region(std::size_t whole) {
    if (std::byte* const pages = region_.take_waiting(whole)) {
      waits_in_region(-static_cast<std::int64_t>(whole));
      return pages;
    }
    if (region_.waiting() < whole) return nullptr;
    drop_from_region(whole);
    return mappings_.map(whole);
  }

  void waits_in_region(std::int64_t bytes) {
    cpu_memory().add_reserved_unused(bytes);
    in_region_.fetch_add(static_cast<std::size_t>(bytes), std::memory_order_relaxed);
  }
  void drop_from_region(std::size_t bytes) {
    waits_in_region(-static_cast<std::int64_t>(region_.drop(bytes)));
  }

  void close_region() {
    if (!region_.is_open()) return;
    waits_in_region(-static_cast<std::int64_t>(region_.waiting()));
    region_.release(
        [this](std::byte* pages, std::size_t bytes) { mappings_.end_area(pages, bytes); });
  }
  void forget_addresses() {
    addresses_.forget();
    close_region();
  }

  // ── pages that wait elsewhere ──────────────────────────────────────────────────────────────────

  using Run = PageRuns::Run;
  using Use = PageMappings::Use;

  std::byte* take_waiting(std::size_t whole) {
    std::byte* const pages = runs_.take(whole);
    if (pages != nullptr) cpu_memory().add_reserved_unused(-static_cast<std::int64_t>(whole));
    return pages;
  }

  // No run is large enough, but there may be several: their pages go under fresh addresses, the
  // largest first, without being cleared by the system as fresh pages are. What is still missing is
  // fresh.
  std::byte* gather(std::size_t whole, Bytes beside) {
    std::byte* const block = mappings_.map(whole, Use::later);
    if (block == nullptr) return nullptr;
    std::size_t moved = 0;
    for (int pieces = 0;
         pieces < most_pieces && moved < whole && !runs_.empty() && mappings_.seams() < most_seams;
         ++pieces) {
      const Run run = runs_.take_largest();
      const std::size_t piece = std::min(mappings_.one_area(run.pages, run.bytes), whole - moved);
      const bool worth_it = piece >= least_piece;  // else it is not worth a call next time either
      const bool there = worth_it && mappings_.move(run.pages, piece, block + moved);
      if (there) moved += piece;
      else mappings_.unmap(run.pages, piece);
      cpu_memory().add_reserved_unused(-static_cast<std::int64_t>(piece));
      if (run.bytes > piece) runs_.add({run.pages + piece, run.bytes - piece, run.freed});
      if (worth_it && !there) return give_up(block, whole, moved, piece);
    }
    trim_to(beside);
    if (moved == whole || PageMappings::open(block + moved, whole - moved)) return block;
    mappings_.unmap(block, whole);
    return nullptr;
  }

  // Where a move fails (somebody has locked a part of it, or there is no memory for tables) its
  // target may be unmapped already, and be somebody else's by now: it is left alone.
  std::byte* give_up(std::byte* block, std::size_t whole, std::size_t moved, std::size_t piece) {
    if (moved > 0) mappings_.unmap(block, moved);
    if (moved + piece < whole) mappings_.unmap(block + moved + piece, whole - moved - piece);
    return nullptr;
  }

  // What has waited longest goes first, and no more than must; what has a place last.
  void trim_to(Bytes held) {
    while (!runs_.empty() && cpu_memory().reserved() > held) {
      Run run = runs_.take_oldest();
      const auto excess = static_cast<std::size_t>((cpu_memory().reserved() - held).count);
      const std::size_t gone = std::min(run.bytes, PageMappings::round_up(excess));
      run.bytes -= gone;
      mappings_.unmap(run.pages + run.bytes, gone);
      if (run.bytes > 0) runs_.add(run);
      cpu_memory().add_reserved_unused(-static_cast<std::int64_t>(gone));
    }
    if (region_.waiting() > 0 && cpu_memory().reserved() > held)
      drop_from_region(
          PageMappings::round_up(static_cast<std::size_t>((cpu_memory().reserved() - held).count)));
  }

  static constexpr int most_pieces = 16;  // of one block: each is a call to the system
  static constexpr std::size_t least_piece = std::size_t{64} << 10;
  static constexpr std::size_t most_seams = 8192;  // Linux lets a process have 65530 areas

  std::mutex guard_;
  // of the step that ran last; what was alive at most: what waits never makes the process larger
  Bytes limit_{}, most_live_{};
  std::uint64_t clock_ = 0;  // blocks that died
  PageRuns runs_;            // what waits
  PageMappings mappings_;
  LearnedAddresses addresses_;
  PageRegion region_;                      // for as long as a layout is known
  std::atomic<std::size_t> in_region_{0};  // bytes that wait there; written with the lock held
};

/// Never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline PageBlocks& page_blocks() {
  static auto& blocks = *new PageBlocks;
  return blocks;
}

}  // namespace reprise::cpu
