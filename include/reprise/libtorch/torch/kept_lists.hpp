#pragma once
// Lists among the arguments of ops, as a recording keeps them: of numbers (strides, paddings,
// shapes) each once, of tensors their lengths.
//
//   convolution(x, w, b, [1, 1], [1, 1], [1, 1], …)      three lists that LibTorch makes anew for every call; all are this one:
//   kept_list([1, 1])                                     the list that was kept when it was first seen
//
// A recording keeps the arguments of its calls. A list of its own for each would lie in the heap
// between the blocks of the step's tensors until the step ends: holes that these leave behind then
// fit nothing, new memory is taken, and its pages are faulted in. Tensors are never held beyond
// their op: the recording knows them as values.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <reprise/base/hash_bytes.hpp>
#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

/// The same list of integers, perhaps one that was kept earlier. Nobody may write to it.
[[nodiscard]] inline const c10::IValue& kept_list(const c10::IValue& list) {
  // by hash: a newer list takes an older one's place
  thread_local std::array<c10::IValue, 256> kept;
  std::uint64_t hash = fnv_start;
  const auto items = list.toListRef();
  for (const c10::IValue& item : items)
    hash = fnv_step(hash, static_cast<std::uint64_t>(item.toInt()));
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

[[nodiscard]] inline bool holds_tensors(const c10::IValue& list) {
  const auto items = list.toListRef();
  for (const c10::IValue& item : items)
    if (item.isTensor()) return true;
  return false;
}

/// The same list with nothing in it: undefined tensors, or none where the list holds optional ones.
[[nodiscard]] inline c10::IValue blank_list(const c10::IValue& list) {
  const std::size_t count = list.toListRef().size();
  if (list.isTensorList()) {
    c10::List<at::Tensor> blank;
    for (std::size_t i = 0; i < count; ++i) blank.emplace_back();
    return blank;
  }
  c10::List<std::optional<at::Tensor>> blank;
  for (std::size_t i = 0; i < count; ++i) blank.push_back(std::nullopt);
  return blank;
}

}  // namespace reprise::tensors
