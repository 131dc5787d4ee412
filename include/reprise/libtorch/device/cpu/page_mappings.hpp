#pragma once
// Pages that are mapped, moved and unmapped, and the seams between the areas that the system keeps
// of them: it moves what it has mapped at once, not two such areas.
//
//   std::byte* a = mappings.map(8 MiB);
//   std::byte* b = mappings.map(4 MiB, Use::later);        addresses, no memory
//   mappings.move(a, 4 MiB, b);                            a seam at a + 4 MiB, at b and at b + 4 MiB
//   mappings.one_area(a + 4 MiB, 4 MiB)                    how much of a run can be moved at once

#include <cstddef>
#include <set>

#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <reprise/base/rooms.hpp>

namespace reprise::cpu {

class PageMappings {
 public:
  enum class Use { now, later };

#ifdef __linux__
  static std::size_t round_up(std::size_t bytes) {
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
  }
  /// nullptr where there is no address space. What is for later counts as address space, not as
  /// memory, until it is opened or pages are moved there.
  [[nodiscard]] std::byte* map(std::size_t bytes, Use use = Use::now) {
    void* pages = ::mmap(nullptr, bytes, use == Use::now ? PROT_READ | PROT_WRITE : PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    ::madvise(pages, bytes, MADV_HUGEPAGE);  // a wish: fewer faults where it is met
    begin_area(static_cast<std::byte*>(pages), bytes);
    return static_cast<std::byte*>(pages);
  }
  [[nodiscard]] static bool open(std::byte* pages, std::size_t bytes) {
    return ::mprotect(pages, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  void unmap(std::byte* pages, std::size_t bytes) {
    // too many areas: the memory goes back all the same
    if (::munmap(pages, bytes) != 0) ::madvise(pages, bytes, MADV_DONTNEED);
    end_area(pages, bytes);
  }
  /// Puts pages under other addresses, which were mapped for later. False where the system does not
  /// let it: the target may be unmapped by then.
  [[nodiscard]] bool move(std::byte* pages, std::size_t bytes, std::byte* to) {
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
  [[nodiscard]] static std::byte* map(std::size_t, Use = Use::now) { return nullptr; }
  [[nodiscard]] static bool open(std::byte*, std::size_t) { return false; }
  static void unmap(std::byte*, std::size_t) {}
  [[nodiscard]] static bool move(std::byte*, std::size_t, std::byte*) { return false; }
#endif

  /// How much of these pages lies in one area, from the first on.
  [[nodiscard]] std::size_t one_area(std::byte* pages, std::size_t bytes) const {
    const auto seam = seams_.upper_bound(pages);
    const bool crosses = seam != seams_.end() && *seam < pages + bytes;
    return crosses ? static_cast<std::size_t>(*seam - pages) : bytes;
  }
  [[nodiscard]] std::size_t seams() const { return seams_.size(); }

  /// Somebody else has mapped these pages, or unmapped them.
  void begin_area(std::byte* pages, std::size_t bytes) {
    forget_seams(pages, bytes);
    seams_.insert(pages);
  }
  void end_area(std::byte* pages, std::size_t bytes) {
    forget_seams(pages, bytes);
    seams_.insert(pages + bytes);  // perhaps the rest of one
  }
  /// These have got other pages: the system may take them for an area of their own.
  void note_exchanged(std::byte* pages, std::size_t bytes) {
    seams_.insert(pages);
    seams_.insert(pages + bytes);
  }

 private:
  void forget_seams(std::byte* pages, std::size_t bytes) {
    seams_.erase(seams_.lower_bound(pages), seams_.lower_bound(pages + bytes));
  }

  // where areas begin; some may lie where there is nothing any more
  std::set<std::byte*> seams_;
};

}  // namespace reprise::cpu
