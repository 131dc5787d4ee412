#pragma once
// Large blocks as pages of their own, while a step is kept inside a limit: what is freed goes back to the system, or waits for the next
// blocks that fit into it, and what the process holds follows what its tensors hold.
//
//   limit 100 MiB        live   waiting
//   conv's output 40     90
//   conv's output dies   50     40          it fits beside what is alive: it waits
//   another 25           75     15          taken from there: no page fault; the rest waits on
//   20 come              95      5          fresh pages: no run of 20 waits. 15 + 75 + 20 would pass the limit: 10 go back, what waited longest
//   the 25 die           70     26          next to what waits, they are one run again; never more than was alive at most
//
// glibc keeps what is freed and does not find room in its holes for aligned blocks: a process in which storages come and go would grow to
// several times what they hold (ResNet-152 inside 614 MiB: to 1.9 GiB).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <reprise/libtorch/memory_counter.hpp>
#include <reprise/units.hpp>

namespace reprise {

/// One for the process. Blocks that wait count as held: cpu_memory().reserved().
class PageBlocks {
 public:
  /// Smaller blocks would waste much of their last page, and a call to the system each.
  static constexpr std::size_t smallest = std::size_t{256} << 10;

  /// Pages for a block of this thread; nullptr where it is to come from the heap. `mapped` is what give() has to get back.
  std::byte* take(std::size_t bytes, std::size_t& mapped) {
    if (limit_here() <= Bytes{0} || limit_here() > machine()) return nullptr;
    if (bytes < smallest) {
      make_room(Bytes{static_cast<std::int64_t>(bytes)});
      return nullptr;
    }
    const std::size_t whole = round_up(bytes);
    const std::lock_guard lock(guard_);
    limit_ = limit_here();
    most_live_ = std::max(most_live_, cpu_memory().live() + Bytes{static_cast<std::int64_t>(bytes)});
    std::byte* pages = take_waiting(whole);
    if (pages == nullptr) {
      trim_to(limit_ - Bytes{static_cast<std::int64_t>(whole)});
      pages = map(whole);
    }
    if (pages == nullptr) {  // no more address space: what waits may be in the way
      trim_to(Bytes{-1});
      pages = map(whole);
    }
    if (pages != nullptr) mapped = whole;
    return pages;
  }

  /// The block is dead. On any thread.
  void give(std::byte* pages, std::size_t mapped) {
    const std::lock_guard lock(guard_);
    const Bytes bytes{static_cast<std::int64_t>(mapped)};
    const Bytes rounding{most_live_.count / 64};  // headers, and what whole pages are more than was asked for
    const Bytes most = std::min(limit_, most_live_ + rounding);
    trim_to(most - bytes);  // what died last is what comes next, more often than what has waited long
    if (cpu_memory().reserved() + bytes > most) return unmap(pages, mapped);
    add({pages, mapped, ++clock_});
    cpu_memory().add_spare(bytes.count);
  }

  /// Everything that waits goes back.
  void clear() {
    const std::lock_guard lock(guard_);
    trim_to(Bytes{-1});
  }

  /// The same, and nothing waits from now on.
  void stop() {
    const std::lock_guard lock(guard_);
    limit_ = most_live_ = {};
    trim_to(Bytes{-1});
  }

  /// Of this thread; 0: its blocks come from the heap.
  REPRISE_ONE_PER_PROCESS static Bytes& limit_here() {
    thread_local Bytes limit{};
    return limit;
  }

 private:
  // What waits must not stand in the way of a small block either.
  void make_room(Bytes bytes) {
    if (cpu_memory().reserved() + bytes <= limit_here()) return;
    const std::lock_guard lock(guard_);
    trim_to(limit_here() - bytes);
  }

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
  }

  using ByAddress = std::map<std::byte*, Run>;
  Run remove(ByAddress::iterator it) {
    const Run run = it->second;
    by_size_.erase({run.bytes, run.pages});
    by_address_.erase(it);
    return run;
  }

  // What has waited longest goes first, and no more than must.
  void trim_to(Bytes held) {
    while (!by_address_.empty() && cpu_memory().reserved() > held) {
      const auto oldest = std::ranges::min_element(by_address_, {}, [](const auto& entry) { return entry.second.freed; });
      Run run = remove(oldest);
      const auto excess = static_cast<std::size_t>((cpu_memory().reserved() - held).count);
      const std::size_t gone = std::min(run.bytes, round_up(excess));
      run.bytes -= gone;
      unmap(run.pages + run.bytes, gone);
      if (run.bytes > 0) add(run);
      cpu_memory().add_spare(-static_cast<std::int64_t>(gone));
    }
  }

#ifdef __linux__
  // A limit that the machine does not have bounds nothing.
  static Bytes machine() {
    static const Bytes all{static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE))};
    return all;
  }
  static std::size_t round_up(std::size_t bytes) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }
  static std::byte* map(std::size_t bytes) {
    void* pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    ::madvise(pages, bytes, MADV_HUGEPAGE);  // a wish: fewer faults where it is met
    return static_cast<std::byte*>(pages);
  }
  static void unmap(std::byte* pages, std::size_t bytes) { ::munmap(pages, bytes); }
#else
  static Bytes machine() { return {}; }
  static std::size_t round_up(std::size_t bytes) { return bytes; }
  static std::byte* map(std::size_t) { return nullptr; }  // everything comes from the heap
  static void unmap(std::byte*, std::size_t) {}
#endif

  std::mutex guard_;
  Bytes limit_{}, most_live_{};  // of the step that ran last; what was alive at most: what waits never makes the process larger
  std::uint64_t clock_ = 0;      // blocks that died
  ByAddress by_address_;         // what waits
  std::set<std::pair<std::size_t, std::byte*>> by_size_;
};

/// Never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline PageBlocks& page_blocks() {
  static auto& blocks = *new PageBlocks;
  return blocks;
}

}  // namespace reprise
