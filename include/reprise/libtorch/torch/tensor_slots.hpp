#pragma once
// for_each_tensor() visits the tensors inside a value, in a fixed order: a tensor, an optional, a
// pair or tuple, a list or array of these.
//
// ```cpp
// std::tuple args{x, std::optional{mask}, 3, std::vector{h, c}};
// for_each_tensor(args, [](at::Tensor& t) { t = t.detach(); });   // x, mask, h, c
// ```

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

template <class T>
concept TupleLike = requires {
  std::tuple_size<std::remove_cvref_t<T>>::value;
};

template <class T>
concept ListLike = requires(T& t) {
  t.begin() != t.end();
  requires std::is_lvalue_reference_v<decltype(*t.begin())>;
};

/// Calls `visit` with every defined tensor in `value`. Values that contain no tensors are skipped.
template <class T, class Visit>
void for_each_tensor(T& value, Visit&& visit) {
  if constexpr (std::is_same_v<std::remove_const_t<T>, at::Tensor>) {
    if (value.defined()) visit(value);
  } else if constexpr (TupleLike<T>) {
    std::apply([&](auto&... items) { (for_each_tensor(items, visit), ...); }, value);
  } else if constexpr (ListLike<T>) {
    for (auto& item : value) for_each_tensor(item, visit);
  } else if constexpr (requires {
                         value.has_value();
                         *value;
                       }) {
    if (value.has_value()) for_each_tensor(*value, visit);
  }
}

/// Calls `visit` with every defined tensor of an operator's argument or result.
template <class Visit>
void for_each_tensor_of(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef())
      if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
  }
}

}  // namespace reprise::tensors
