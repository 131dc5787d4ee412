#pragma once
// Many short lists in few blocks of memory: a list stays where it is until all of them go.
//
// ```cpp
// Chunks<int> chunks;
// const std::span<const int> a = chunks.keep(std::array{1, 2, 3});   // the first chunk: 1 2 3 · · ·
// const std::span<const int> b = chunks.keep(std::array{4, 5});      // behind it:       1 2 3 4 5 ·
// chunks.clear();                                                    // a and b are gone, the memory stays
// ```
//
// A vector of its own for each list would cost its header, the allocator's, and a hole between the
// blocks of the step's tensors.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <reprise/base/rooms.hpp>

namespace reprise::recording {

template <class T>
class Chunks {
 public:
  Chunks() = default;
  Chunks(const Chunks&) = delete;  // whoever has a span has it of this one
  Chunks& operator=(const Chunks&) = delete;
  Chunks(Chunks&&) = default;
  Chunks& operator=(Chunks&&) = default;

  /// Moves the items in.
  template <class List>
  std::span<T> keep(List&& items) {
    const std::size_t count = std::size(items);
    if (count == 0) return {};
    std::vector<T>& chunk = chunk_with_room(count);
    const std::size_t begin = chunk.size();
    std::move(std::begin(items), std::end(items), std::back_inserter(chunk));
    return {chunk.data() + begin, count};
  }
  T& keep_one(T item) { return chunk_with_room(1).emplace_back(std::move(item)); }

  /// All lists are gone; the memory is there for the next ones.
  void clear() {
    for (std::vector<T>& chunk : chunks_) chunk.clear();
    filling_ = 0;
  }
  /// Bytes that the chunks take.
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const std::vector<T>& chunk : chunks_) sum += chunk.capacity() * sizeof(T);
    return sum;
  }

 private:
  // The first is small; later ones are so large that they do not lie among the step's own blocks.
  static constexpr std::size_t first_bytes = std::size_t{4} << 10,
                               usual_bytes = std::size_t{256} << 10;

  std::vector<T>& chunk_with_room(std::size_t count) {
    for (; filling_ < chunks_.size(); ++filling_)
      if (chunks_[filling_].capacity() - chunks_[filling_].size() >= count)
        return chunks_[filling_];
    const std::size_t usual = (chunks_.empty() ? first_bytes : usual_bytes) / sizeof(T);
    filling_ = chunks_.size();
    chunks_.emplace_back().reserve(std::max(usual, count));
    return chunks_.back();
  }

  std::vector<std::vector<T>> chunks_;
  std::size_t filling_ = 0;  // chunks before it are full
};

}  // namespace reprise::recording
