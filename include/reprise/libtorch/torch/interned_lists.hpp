#pragma once
// interned_list() stores lists among the arguments of recorded ops: a list of numbers (strides,
// paddings, shapes) once for all calls. blank_list() stores the length of a list of tensors.
//
//   convolution(x, w, b, [1, 1], [1, 1], [1, 1], …)      three lists, which LibTorch makes anew for every call
//   interned_list([1, 1])                                     the same list for all of them: the first that was seen
//
// A recording keeps the arguments of its calls. A list per call would be in the heap between the
// blocks of the step's tensors until the step ends. Freed blocks would leave holes that no block
// fits, and new memory would have to be faulted in. Tensors are never kept beyond their op, because
// the recording refers to them as values.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <reprise/base/hash_bytes.hpp>
#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

/// An equal list of integers, perhaps one that was kept earlier. It must not be written.
[[nodiscard]] inline const c10::IValue& interned_list(const c10::IValue& list) {
  // by hash: a newer list replaces an older one
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

/// A list of the same length without tensors: undefined tensors, or none for optional tensors.
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
