#pragma once
// The pages inside of a block: whether they may be read and written, and whether they have memory.
//
//   const auto pages = PageProtection::pages_in(data, bytes);          header│ edge │ whole pages │ edge
//   PageProtection::protect(pages, PageProtection::nothing);           every access faults
//   PageProtection::give_memory_back(pages);                           their bytes are lost
//   PageProtection::refill(pages, PageProtection::writable, fill);     filled elsewhere, put in place at once
//
// Only the calls to the system. Elsewhere than on Linux nothing can be protected.

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <reprise/base/rooms.hpp>

namespace reprise::cpu {

class PageProtection {
 public:
  /// Fewer whole pages are not worth two calls to the system.
  static constexpr std::size_t least_pages = 2;

  struct Pages {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;  ///< 0: none
  };
  /// Whether anything can be protected here.
  [[nodiscard]] static bool available() { return page_bytes() > 0; }
  /// The whole pages inside of a block; none where they are too few.
  [[nodiscard]] static Pages pages_in(void* data, std::size_t bytes) {
    const std::size_t page = page_bytes();
    if (page == 0) return {};
    const auto begin = reinterpret_cast<std::uintptr_t>(data),
               first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
    if (end < first + least_pages * page) return {};
    return {static_cast<std::byte*>(data) + (first - begin), end - first};
  }

#ifdef __linux__
  static constexpr int nothing = PROT_NONE, readable = PROT_READ, writable = PROT_READ | PROT_WRITE;

  static bool protect(Pages pages, int access) {
    return ::mprotect(pages.begin, pages.bytes, access) == 0;
  }
  [[nodiscard]] static bool give_memory_back(Pages pages) {
    return ::madvise(pages.begin, pages.bytes, MADV_DONTNEED) == 0;
  }
  /// Gives pages without access their bytes, and this access. No thread sees them half filled: they
  /// are filled elsewhere, then put in place at once. Where `fill` throws, they are as they were.
  template <class Fill>
  static void refill(Pages pages, int access, const Fill& fill) {
    std::byte* const from = elsewhere(pages);
    if (from == nullptr) {  // no address space for a second one: in its place
      protect(pages, writable);
      try {
        fill(pages.begin);
      } catch (...) {
        protect(pages, nothing);
        throw;
      }
      protect(pages, access);
    } else {
      try {
        fill(from);
      } catch (...) {
        ::munmap(from, pages.bytes);
        throw;
      }
      put_in_place(from, pages, access);
    }
  }

 private:
  static std::size_t page_bytes() {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return page;
  }

  // Pages to fill. Where the system can (Linux 5.7), they are the block's own, moved away, so that
  // they become one area with their neighbours again when they come back: a process has only so
  // many areas.
  static std::byte* elsewhere(Pages pages) {
    constexpr int keep_the_old = 4;  // MREMAP_DONTUNMAP, which older headers lack
    void* found = ::mremap(pages.begin, pages.bytes, pages.bytes, MREMAP_MAYMOVE | keep_the_old);
    if (found != MAP_FAILED && ::mprotect(found, pages.bytes, writable) == 0)
      return static_cast<std::byte*>(found);
    if (found != MAP_FAILED) ::munmap(found, pages.bytes);
    found = ::mmap(nullptr, pages.bytes, writable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found == MAP_FAILED ? nullptr : static_cast<std::byte*>(found);
  }
  static void put_in_place(std::byte* from, Pages pages, int access) {
    if (access != writable) ::mprotect(from, pages.bytes, access);
    if (::mremap(from, pages.bytes, pages.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages.begin) !=
        MAP_FAILED)
      return;
    // No memory for the system's tables: the target may be unmapped by now.
    static_cast<void>(
        ::mmap(pages.begin, pages.bytes, writable, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    std::memcpy(pages.begin, from, pages.bytes);
    ::munmap(from, pages.bytes);
    if (access != writable) protect(pages, access);
  }
#else
  static constexpr int nothing = 0, readable = 1, writable = 2;
  static bool protect(Pages, int) { return false; }
  [[nodiscard]] static bool give_memory_back(Pages) { return false; }
  template <class Fill>
  static void refill(Pages, int, const Fill&) {}

 private:
  static std::size_t page_bytes() { return 0; }
#endif
};

}  // namespace reprise::cpu
