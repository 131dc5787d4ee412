#pragma once
// Counts what this thread takes from operator new, for tests that bound what something keeps or
// needs. It replaces the operators: to be included by one file of a program.
//
//   const reprise_test::CountedNew counted;
//   std::vector<int> v(1000);
//   counted.live();          // 4000 and a little: what the allocator gave
//   v = {};
//   counted.peak();          // the same, though it has gone

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include <malloc.h>

namespace reprise_test {

struct NewCounts {
  std::int64_t live = 0, peak = 0;
};
inline NewCounts& new_counts() {
  thread_local NewCounts counts;
  return counts;
}

/// From its making on, on this thread; one at a time.
class CountedNew {
 public:
  CountedNew() : before_(new_counts().live) { new_counts().peak = before_; }
  CountedNew(const CountedNew&) = delete;
  CountedNew& operator=(const CountedNew&) = delete;

  [[nodiscard]] std::int64_t live() const { return new_counts().live - before_; }
  [[nodiscard]] std::int64_t peak() const { return new_counts().peak - before_; }

 private:
  std::int64_t before_;
};

inline void* counted(void* block) {
  if (block == nullptr) throw std::bad_alloc{};
  NewCounts& counts = new_counts();
  counts.live += static_cast<std::int64_t>(malloc_usable_size(block));
  counts.peak = std::max(counts.peak, counts.live);
  return block;
}
inline void uncount(void* block) noexcept {
  new_counts().live -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace reprise_test

void* operator new(std::size_t bytes) {
  return reprise_test::counted(std::malloc(std::max<std::size_t>(bytes, 1)));
}
// Sanitizers have an operator of their own for this one, which does not call the one above.
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* block) noexcept { reprise_test::uncount(block); }
void operator delete(void* block, std::size_t /*bytes*/) noexcept { reprise_test::uncount(block); }
