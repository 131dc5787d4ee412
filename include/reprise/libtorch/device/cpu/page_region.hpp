#pragma once
// Addresses for many blocks side by side, whose pages come when they are first written and stay
// when a block dies.
//
//   reserve(100)          [......................]        vacant: addresses, no memory
//   take(0, 40)           [########..............]
//   take(40, 25)          [#############.........]
//   give(0, 40)           [wwwwwwww#####.........]        waits: its pages are there for whoever comes next
//   take(0, 30)           [######ww#####.........]        30 of 30 had pages
//   drop(10)              [######..#####.........]        the pages that waited went back to the system, the addresses did not
//
// Only the book-keeping and the calls to the system: what counts as held is page_blocks.hpp's
// business. Huge pages, where the system has them, and pages that somebody has locked may be there
// in vacant places too, up to the region's size.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>

#include <reprise/base/rooms.hpp>
#endif

namespace reprise::cpu {

class PageRegion {
 public:
  PageRegion() = default;
  PageRegion(const PageRegion&) = delete;
  PageRegion& operator=(const PageRegion&) = delete;

  [[nodiscard]] bool is_open() const { return begin_ != nullptr; }
  [[nodiscard]] std::byte* begin() const { return begin_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  /// What waits.
  [[nodiscard]] std::size_t waiting() const { return cached_bytes_; }
  [[nodiscard]] bool contains(const std::byte* pages) const {
    return is_open() && pages >= begin_ && pages < begin_ + bytes_;
  }

  /// False where there are no such addresses to be had. Sizes and offsets are whole pages, here and
  /// below.
  bool reserve(std::size_t bytes) {
    begin_ = map(bytes);
    if (begin_ == nullptr) return false;
    bytes_ = bytes;
    parts_.emplace(0, Part{bytes, false});
    return true;
  }

  /// Lets the addresses go that no block lies at, and tells which. Blocks keep theirs, and are
  /// nobody's here any more.
  template <class Gone>
  void release(const Gone& gone) {
    for (const auto& [offset, part] : parts_) {
      unmap(begin_ + offset, part.bytes);
      gone(begin_ + offset, part.bytes);
    }
    parts_.clear();
    begin_ = nullptr;
    bytes_ = cached_bytes_ = 0;
  }

  /// How many of these bytes had pages; nothing where a block lies in the way.
  std::optional<std::size_t> take(std::size_t offset, std::size_t bytes) {
    auto it = parts_.upper_bound(offset);
    if (it == parts_.begin()) return std::nullopt;
    const auto first = --it;
    for (std::size_t at = offset; at < offset + bytes; at = end_of(it++))
      if (it == parts_.end() || it->first > at || end_of(it) <= at) return std::nullopt;
    return cut(first, offset, bytes);
  }

  /// From the smallest part that waits and is large enough; nullptr where there is none.
  std::byte* take_waiting(std::size_t bytes) {
    auto best = parts_.end();
    for (auto it = parts_.begin(); it != parts_.end(); ++it)
      if (it->second.paged && it->second.bytes >= bytes &&
          (best == parts_.end() || it->second.bytes < best->second.bytes))
        best = it;
    if (best == parts_.end()) return nullptr;
    const std::size_t offset = best->first;
    static_cast<void>(cut(best, offset, bytes));
    return begin_ + offset;
  }

  /// The block is dead. Its pages wait, or go back to the system.
  void give(std::byte* pages, std::size_t bytes, bool wait = true) {
    if (wait) cached_bytes_ += bytes;
    else forget_pages(pages, bytes);
    add(static_cast<std::size_t>(pages - begin_), {bytes, wait});
  }

  /// Pages of so many bytes of what waits, or of all of it, go back to the system. Returns how many
  /// did.
  std::size_t drop(std::size_t bytes) {
    std::size_t gone = 0;
    while (gone < bytes && cached_bytes_ > 0) {
      auto last = std::prev(parts_.end());
      while (!last->second.paged) --last;
      const std::size_t some = std::min(last->second.bytes, bytes - gone),
                        offset = end_of(last) - some;
      forget_pages(begin_ + offset, some);
      static_cast<void>(cut(last, offset, some));
      add(offset, {some, false});
      gone += some;
    }
    return gone;
  }

 private:
  /// Where no block lies.
  struct Part {
    std::size_t bytes = 0;
    bool paged = false;
  };
  using Parts = std::map<std::size_t, Part>;  // by offset; neighbours differ in what they are

  [[nodiscard]] static std::size_t end_of(Parts::const_iterator it) {
    return it->first + it->second.bytes;
  }

  // Takes these bytes out of the parts that they lie in, `it` being the first of them. Returns how
  // many of them waited.
  std::size_t cut(Parts::iterator it, std::size_t offset, std::size_t bytes) {
    std::size_t paged = 0;
    while (it != parts_.end() && it->first < offset + bytes) {
      const std::size_t begin = it->first, end = end_of(it);
      const bool waited = it->second.paged;
      it = parts_.erase(it);
      if (waited) paged += std::min(end, offset + bytes) - std::max(begin, offset);
      if (begin < offset) parts_.emplace(begin, Part{offset - begin, waited});
      if (end > offset + bytes) parts_.emplace(offset + bytes, Part{end - offset - bytes, waited});
    }
    cached_bytes_ -= paged;
    return paged;
  }

  void add(std::size_t offset, Part part) {
    auto after = parts_.lower_bound(offset);
    if (after != parts_.end() && after->first == offset + part.bytes &&
        after->second.paged == part.paged) {
      part.bytes += after->second.bytes;
      after = parts_.erase(after);
    }
    if (after != parts_.begin())
      if (const auto before = std::prev(after);
          end_of(before) == offset && before->second.paged == part.paged) {
        before->second.bytes += part.bytes;
        return;
      }
    parts_.emplace(offset, part);
  }

#ifdef __linux__
  // Begins where a huge page may begin.
  static std::byte* map(std::size_t bytes) {
    constexpr std::size_t huge = std::size_t{2} << 20;
    void* found = ::mmap(nullptr, bytes + huge, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return nullptr;
    auto* const pages = static_cast<std::byte*>(found);
    const std::size_t before = (huge - reinterpret_cast<std::uintptr_t>(pages) % huge) % huge;
    if (before > 0) ::munmap(pages, before);
    ::munmap(pages + before + bytes, huge - before);
    ::madvise(pages + before, bytes, MADV_HUGEPAGE);  // a wish: fewer faults where it is met
    return pages + before;
  }
  static void unmap(std::byte* pages, std::size_t bytes) {
    // too many areas: the memory goes back all the same
    if (::munmap(pages, bytes) != 0) forget_pages(pages, bytes);
  }
  static void forget_pages(std::byte* pages, std::size_t bytes) {
    ::madvise(pages, bytes, MADV_DONTNEED);
  }
#else
  static std::byte* map(std::size_t) { return nullptr; }
  static void unmap(std::byte*, std::size_t) {}
  static void forget_pages(std::byte*, std::size_t) {}
#endif

  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0, cached_bytes_ = 0;
  Parts parts_;
};

}  // namespace reprise::cpu
