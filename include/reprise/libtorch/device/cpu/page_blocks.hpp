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
// time, in one region (pack/step_addresses.hpp): nothing is moved any more, and as long as the
// region fits into the limit nothing is asked of the system.
//
// glibc keeps what is freed and does not find room in its holes for aligned blocks: a process in
// which storages come and go would grow to several times what they hold (ResNet-152 inside 614 MiB:
// to 1.9 GiB).

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/memory_counter.hpp>
#include <reprise/libtorch/device/cpu/page_region.hpp>
#include <reprise/libtorch/device/cpu/thread_hooks.hpp>
#include <reprise/pack/step_addresses.hpp>

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
    const std::size_t whole = round_up(bytes);
    const std::lock_guard lock(guard_);
    limit_ = limit_here();
    most_live_ =
        std::max(most_live_, cpu_memory().live() + Bytes{static_cast<std::int64_t>(bytes)});
    const Bytes beside = most_held() - Bytes{static_cast<std::int64_t>(whole)};
    std::byte* pages = take_place(whole);
    if (pages == nullptr) pages = take_waiting(whole);
    const bool in_pieces = pages == nullptr && !by_size_.empty();
    if (!in_pieces) trim_to(beside);
    if (pages == nullptr) pages = in_pieces ? gather(whole, beside) : map(whole);
    if (pages == nullptr) {  // no more address space: what waits may be in the way
      close_region();
      addresses_.give_up();
      trim_to(Bytes{-1});
      pages = map(whole);
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
    if (!waits) return unmap(pages, mapped);
    add({pages, mapped, ++clock_});
    cpu_memory().add_spare(bytes.count);
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
    seams_.insert(pages);
    seams_.insert(pages + bytes);
  }

  /// A step begins on this thread: what it is going to ask for may be known. Between its beginning
  /// and its end blocks are taken note of.
  void begin_step() {
    const std::lock_guard lock(guard_);
    addresses_.begin();
    if (region_.is_open() || addresses_.height() == 0) return;
    trim_to(Bytes{-1});  // the region gets pages of its own, which are never moved
    if (region_.reserve(round_up(addresses_.height())))
      begin_area(region_.begin(), region_.bytes());
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
    if (bytes < smallest || waiting_.load(std::memory_order_relaxed) < bytes) return nullptr;
    const std::size_t whole = round_up(bytes);
    const std::lock_guard lock(guard_);
    if (waiting_.load(std::memory_order_relaxed) < whole) return nullptr;
    std::byte* pages = take_waiting(whole);
    if (pages == nullptr) pages = take_from_region(whole);
    // whatever it takes
    if (pages == nullptr && !by_size_.empty())
      pages = gather(whole, Bytes{std::numeric_limits<std::int64_t>::max()});
    if (pages != nullptr) mapped = whole;
    return pages;
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
    return map(whole);
  }

  void waits_in_region(std::int64_t bytes) {
    cpu_memory().add_spare(bytes);
    waiting_.fetch_add(static_cast<std::size_t>(bytes), std::memory_order_relaxed);
  }
  void drop_from_region(std::size_t bytes) {
    waits_in_region(-static_cast<std::int64_t>(region_.drop(bytes)));
  }

  void close_region() {
    if (!region_.is_open()) return;
    waits_in_region(-static_cast<std::int64_t>(region_.waiting()));
    region_.release([this](std::byte* pages, std::size_t bytes) { end_area(pages, bytes); });
  }
  void forget_addresses() {
    addresses_.forget();
    close_region();
  }

  // ── pages that wait elsewhere ──────────────────────────────────────────────────────────────────

  enum class Use { now, later };

  /// Pages that wait, one next to the other.
  struct Run {
    std::byte* pages;
    std::size_t bytes;
    std::uint64_t freed;  ///< when the last of them came
  };

  // From the smallest run that is large enough; the rest waits on.
  std::byte* take_waiting(std::size_t whole) {
    const auto found = by_size_.lower_bound({whole, nullptr});
    if (found == by_size_.end()) return nullptr;
    const Run run = remove(by_address_.find(found->second));
    if (run.bytes > whole) add({run.pages + whole, run.bytes - whole, run.freed});
    cpu_memory().add_spare(-static_cast<std::int64_t>(whole));
    return run.pages;
  }

  // No run is large enough, but there may be several: their pages go under fresh addresses, the
  // largest first, without being cleared by the system as fresh pages are. What is still missing is
  // fresh.
  std::byte* gather(std::size_t whole, Bytes beside) {
    std::byte* const block = map(whole, Use::later);
    if (block == nullptr) return nullptr;
    std::size_t moved = 0;
    for (int pieces = 0;
         pieces < most_pieces && moved < whole && !by_size_.empty() && seams_.size() < most_seams;
         ++pieces) {
      Run run = remove(by_address_.find(by_size_.rbegin()->second));
      const std::size_t piece = std::min(bytes_of_one_area(run), whole - moved);
      const bool worth_it = piece >= least_piece;  // else it is not worth a call next time either
      const bool there = worth_it && move(run.pages, piece, block + moved);
      if (there) moved += piece;
      else unmap(run.pages, piece);
      cpu_memory().add_spare(-static_cast<std::int64_t>(piece));
      if (run.bytes > piece) add({run.pages + piece, run.bytes - piece, run.freed});
      if (worth_it && !there) return give_up(block, whole, moved, piece);
    }
    trim_to(beside);
    if (moved == whole || open(block + moved, whole - moved)) return block;
    unmap(block, whole);
    return nullptr;
  }

  // Where a move fails (somebody has locked a part of it, or there is no memory for tables) its
  // target may be unmapped already, and be somebody else's by now: it is left alone.
  std::byte* give_up(std::byte* block, std::size_t whole, std::size_t moved, std::size_t piece) {
    if (moved > 0) unmap(block, moved);
    if (moved + piece < whole) unmap(block + moved + piece, whole - moved - piece);
    return nullptr;
  }

  // The system moves what it has mapped at once, not two such areas: where one begins is a seam.
  [[nodiscard]] std::size_t bytes_of_one_area(const Run& run) const {
    const auto seam = seams_.upper_bound(run.pages);
    const bool crosses = seam != seams_.end() && *seam < run.pages + run.bytes;
    return crosses ? static_cast<std::size_t>(*seam - run.pages) : run.bytes;
  }
  void begin_area(std::byte* pages, std::size_t bytes) {
    forget_seams(pages, bytes);
    seams_.insert(pages);
  }
  void end_area(std::byte* pages, std::size_t bytes) {
    forget_seams(pages, bytes);
    seams_.insert(pages + bytes);  // perhaps the rest of one
  }
  void forget_seams(std::byte* pages, std::size_t bytes) {
    seams_.erase(seams_.lower_bound(pages), seams_.lower_bound(pages + bytes));
  }

  // Neighbours become one run.
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
    waiting_.fetch_add(run.bytes, std::memory_order_relaxed);
  }

  using ByAddress = std::map<std::byte*, Run>;
  Run remove(ByAddress::iterator it) {
    const Run run = it->second;
    by_size_.erase({run.bytes, run.pages});
    by_address_.erase(it);
    waiting_.fetch_sub(run.bytes, std::memory_order_relaxed);
    return run;
  }

  // What has waited longest goes first, and no more than must; what has a place last.
  void trim_to(Bytes held) {
    while (!by_address_.empty() && cpu_memory().reserved() > held) {
      const auto oldest = std::ranges::min_element(
          by_address_, {}, [](const auto& entry) { return entry.second.freed; });
      Run run = remove(oldest);
      const auto excess = static_cast<std::size_t>((cpu_memory().reserved() - held).count);
      const std::size_t gone = std::min(run.bytes, round_up(excess));
      run.bytes -= gone;
      unmap(run.pages + run.bytes, gone);
      if (run.bytes > 0) add(run);
      cpu_memory().add_spare(-static_cast<std::int64_t>(gone));
    }
    if (region_.waiting() > 0 && cpu_memory().reserved() > held)
      drop_from_region(round_up(static_cast<std::size_t>((cpu_memory().reserved() - held).count)));
  }

#ifdef __linux__
  static std::size_t round_up(std::size_t bytes) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }
  // What is for later counts as address space, not as memory, until it is opened or pages are moved
  // there.
  std::byte* map(std::size_t bytes, Use use = Use::now) {
    void* pages = ::mmap(nullptr, bytes, use == Use::now ? PROT_READ | PROT_WRITE : PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    ::madvise(pages, bytes, MADV_HUGEPAGE);  // a wish: fewer faults where it is met
    begin_area(static_cast<std::byte*>(pages), bytes);
    return static_cast<std::byte*>(pages);
  }
  static bool open(std::byte* pages, std::size_t bytes) {
    return ::mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  void unmap(std::byte* pages, std::size_t bytes) {
    // too many areas: the memory goes back all the same
    if (::munmap(pages, bytes) != 0) ::madvise(pages, bytes, MADV_DONTNEED);
    end_area(pages, bytes);
  }
  bool move(std::byte* pages, std::size_t bytes, std::byte* to) {
    if (::mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
      return false;
    end_area(pages, bytes);
    begin_area(to, bytes);
    seams_.insert(to + bytes);
    return true;
  }
#else
  static std::size_t round_up(std::size_t bytes) { return bytes; }
  // everything comes from the heap
  static std::byte* map(std::size_t, Use = Use::now) { return nullptr; }
  static bool open(std::byte*, std::size_t) { return false; }
  static void unmap(std::byte*, std::size_t) {}
  static bool move(std::byte*, std::size_t, std::byte*) { return false; }
#endif

  static constexpr int most_pieces = 16;  // of one block: each is a call to the system
  static constexpr std::size_t least_piece = std::size_t{64} << 10;
  static constexpr std::size_t most_seams = 8192;  // Linux lets a process have 65530 areas

  std::mutex guard_;
  // of the step that ran last; what was alive at most: what waits never makes the process larger
  Bytes limit_{}, most_live_{};
  std::uint64_t clock_ = 0;  // blocks that died
  ByAddress by_address_;     // what waits
  // bytes of it, and of what waits in the region; written with the lock held
  std::atomic<std::size_t> waiting_{0};
  StepAddresses addresses_;
  PageRegion region_;  // for as long as a layout is known
  std::set<std::pair<std::size_t, std::byte*>> by_size_;
  // where areas begin, of what waits and of what is in use; some may lie where there is nothing any
  // more
  std::set<std::byte*> seams_;
};

/// Never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline PageBlocks& page_blocks() {
  static auto& blocks = *new PageBlocks;
  return blocks;
}

}  // namespace reprise::cpu
