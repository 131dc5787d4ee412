#pragma once
// Lists of numbers among the arguments of ops (strides, paddings, shapes), each kept once.
//
//   convolution(x, w, b, [1, 1], [1, 1], [1, 1], …)      three lists that LibTorch makes anew for every call; all are this one:
//   kept_list([1, 1])                                     the list that was kept when it was first seen
//
// A recording keeps the arguments of its calls. A list of its own for each would lie in the heap between the blocks of the step's tensors
// until the step ends: holes that these leave behind then fit nothing, new memory is taken, and its pages are faulted in.

#include <array>
#include <cstddef>
#include <cstdint>

#include <ATen/core/ivalue.h>

namespace reprise {

/// The same list of integers, perhaps one that was kept earlier. Nobody may write to it.
[[nodiscard]] inline const c10::IValue& kept_list(const c10::IValue& list) {
  thread_local std::array<c10::IValue, 256> kept;  // by hash: a newer list takes an older one's place
  std::uint64_t hash = 14695981039346656037ull;
  const auto items = list.toListRef();
  for (const c10::IValue& item : items) hash = (hash ^ static_cast<std::uint64_t>(item.toInt())) * 1099511628211ull;
  c10::IValue& slot = kept[(hash >> 32) % kept.size()];
  const auto is_same = [&] {
    if (!slot.isIntList() || slot.toListRef().size() != items.size()) return false;
    for (std::size_t i = 0; i < items.size(); ++i)
      if (slot.toListRef()[i].toInt() != items[i].toInt()) return false;
    return true;
  };
  if (!is_same()) slot = list;
  return slot;
}

}  // namespace reprise
