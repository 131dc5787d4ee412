#pragma once
// Ids in a row, to loop over, to filter, and as the iterators that Boost.Graph asks of a graph.
//
//   for (NodeId n : ids<NodeId>(count)) …        // 0, 1, 2, … count - 1
//   ids<NodeId>(count) | ranges::views::filter(is_cheap)
//
// A type with a name, not a pipe of views: a pipe costs every file that includes it a third of a
// second for each kind of id.

#include <compare>
#include <cstddef>
#include <iterator>

#include <range/v3/range_fwd.hpp>

#include <reprise/base/ids.hpp>
#include <reprise/base/rooms.hpp>

namespace reprise::base {

/// Counts through ids: 0, 1, 2, …
template <class IdType>
class IdIterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = IdType;
  using difference_type = std::ptrdiff_t;
  using pointer = const IdType*;
  using reference = IdType;

  IdIterator() = default;
  explicit IdIterator(std::size_t i) : id_(i) {}

  IdType operator*() const { return id_; }
  const IdType* operator->() const { return &id_; }
  IdType operator[](difference_type n) const { return *(*this + n); }

  IdIterator& operator++() { return *this += 1; }
  IdIterator& operator--() { return *this += -1; }
  IdIterator operator++(int) {
    IdIterator old = *this;
    ++*this;
    return old;
  }
  IdIterator operator--(int) {
    IdIterator old = *this;
    --*this;
    return old;
  }
  IdIterator& operator+=(difference_type n) {
    id_.index += static_cast<decltype(id_.index)>(n);
    return *this;
  }
  IdIterator& operator-=(difference_type n) { return *this += -n; }

  friend IdIterator operator+(IdIterator i, difference_type n) { return i += n; }
  friend IdIterator operator+(difference_type n, IdIterator i) { return i += n; }
  friend IdIterator operator-(IdIterator i, difference_type n) { return i -= n; }
  friend difference_type operator-(IdIterator a, IdIterator b) {
    return static_cast<difference_type>(a.id_.index) - static_cast<difference_type>(b.id_.index);
  }
  auto operator<=>(const IdIterator&) const = default;

 private:
  IdType id_{std::size_t{0}};
};

/// Ids from `begin` to before `end`: a view, with what range-v3's pipes and its loops need.
template <class IdType>
class IdRange : public ranges::view_base {
 public:
  IdRange() = default;
  IdRange(std::size_t begin, std::size_t end) : begin_(begin), end_(end) {}

  [[nodiscard]] IdIterator<IdType> begin() const { return begin_; }
  [[nodiscard]] IdIterator<IdType> end() const { return end_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  [[nodiscard]] bool empty() const { return begin_ == end_; }

 private:
  IdIterator<IdType> begin_{}, end_{};
};

/// 0, 1, 2, … as ids: for (NodeId n : ids<NodeId>(count)).
template <class IdType>
[[nodiscard]] IdRange<IdType> ids(std::size_t count) {
  return {0, count};
}

}  // namespace reprise::base
