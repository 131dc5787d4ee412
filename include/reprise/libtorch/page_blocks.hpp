#pragma once
// Large blocks as pages of their own, while a step is kept inside a limit: what is freed goes back to the system, or waits for the next
// block of its size, and what the process holds follows what its tensors hold.
//
//   limit 100 MiB        live   waiting
//   conv's output 40     90
//   conv's output dies   50     40          it fits beside what is alive: it waits
//   another 40           90      0          taken from there: no page fault
//   30 dies, 20 comes    80      0          30 + 80 would pass the limit: 30 goes back, 20 are fresh pages
//
// glibc keeps what is freed and does not find room in its holes for aligned blocks: a process in which storages come and go would grow to
// several times what they hold (ResNet-152 inside 614 MiB: to 1.9 GiB).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <mutex>
#include <unordered_map>

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
    std::byte* pages = waiting_block(whole);
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
    if (cpu_memory().reserved() + bytes > std::min(limit_, most_live_ + rounding)) return unmap(pages, mapped);
    waiting_.push_back({pages, mapped});
    by_size_.emplace(mapped, std::prev(waiting_.end()));
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

  struct Waiting {
    std::byte* pages;
    std::size_t mapped;
  };
  using BySize = std::unordered_multimap<std::size_t, std::list<Waiting>::iterator>;

  std::byte* waiting_block(std::size_t whole) {
    const auto it = by_size_.find(whole);
    if (it == by_size_.end()) return nullptr;
    std::byte* pages = it->second->pages;
    forget(it);
    return pages;
  }

  void forget(BySize::iterator it) {
    cpu_memory().add_spare(-static_cast<std::int64_t>(it->first));
    waiting_.erase(it->second);
    by_size_.erase(it);
  }

  // What has waited longest goes first.
  void trim_to(Bytes held) {
    while (!waiting_.empty() && cpu_memory().reserved() > held) {
      const Waiting oldest = waiting_.front();
      const auto [first, last] = by_size_.equal_range(oldest.mapped);
      forget(std::find_if(first, last, [&](const auto& entry) { return entry.second->pages == oldest.pages; }));
      unmap(oldest.pages, oldest.mapped);
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
    return pages == MAP_FAILED ? nullptr : static_cast<std::byte*>(pages);
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
  std::list<Waiting> waiting_;   // longest first
  BySize by_size_;
};

/// Never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline PageBlocks& page_blocks() {
  static auto& blocks = *new PageBlocks;
  return blocks;
}

}  // namespace reprise
