#pragma once
// StepArguments are the arguments of a step: any mix of tensors, lists of tensors and plain values.
//
// ```cpp
// StepArguments a = arguments_of(x, std::vector{y, z}, 3);   // a.tensors {x, y, z}, a.plain "i3;"
// std::vector<at::Tensor> r = results_of(std::tuple{loss, logits});
// ```
//
// Plain values are part of a step's signature: another value is another step. Pass a value that
// changes in every step as a tensor.

#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

struct StepArguments {
  std::vector<at::Tensor> tensors{};
  /// the plain values and the arrangement of the tensors, as bytes to compare
  std::string plain{};
};

template <class T>
inline constexpr bool always_false = false;

template <class T>
concept TensorRange = requires(const T& t) {
  std::vector<at::Tensor>(t.begin(), t.end());
}
&&!std::is_convertible_v<const T&, at::Tensor>;

template <class T>
void add_argument(StepArguments& out, const T& argument) {
  if constexpr (std::is_convertible_v<const T&, at::Tensor>) {
    const at::Tensor& tensor = argument;
    out.plain += tensor.defined() ? 't' : 'u';
    if (tensor.defined()) out.tensors.push_back(tensor);
  } else if constexpr (TensorRange<T>) {
    out.plain += '[';
    for (const auto& item : argument) add_argument(out, item);
    out.plain += ']';
  } else if constexpr (requires { std::string_view(argument); }) {
    const std::string_view text(argument);
    out.plain += 's' + std::to_string(text.size()) + ':';
    out.plain += text;
  } else if constexpr (std::is_trivially_copyable_v<T> &&
                       std::has_unique_object_representations_v<T>) {
    out.plain += 'p' + std::to_string(sizeof argument) + ':';
    out.plain.append(reinterpret_cast<const char*>(&argument), sizeof argument);
  } else if constexpr (std::is_floating_point_v<T>) {
    out.plain += 'f' + std::to_string(sizeof argument) + ':';
    out.plain.append(reinterpret_cast<const char*>(&argument), sizeof argument);
  } else if constexpr (requires {
                         argument.has_value();
                         *argument;
                       }) {
    out.plain += argument.has_value() ? '1' : '0';
    if (argument.has_value()) add_argument(out, *argument);
  } else {
    static_assert(always_false<T>,
                  "a step's arguments are tensors, lists of tensors, numbers, strings and "
                  "optionals of these; "
                  "capture anything else in the loss function");
  }
}

template <class... Arguments>
[[nodiscard]] StepArguments arguments_of(const Arguments&... arguments) {
  StepArguments out;
  (add_argument(out, arguments), ...);
  return out;
}

/// The loss function's results, the loss first.
template <class Result>
[[nodiscard]] std::vector<at::Tensor> results_of(Result&& result) {
  using T = std::remove_cvref_t<Result>;
  if constexpr (std::is_convertible_v<Result, at::Tensor>) {
    return {at::Tensor(std::forward<Result>(result))};
  } else if constexpr (TensorRange<T>) {
    return {result.begin(), result.end()};
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply([](auto&&... items) { return std::vector<at::Tensor>{at::Tensor(items)...}; },
                      std::forward<Result>(result));
  } else {
    static_assert(
        always_false<T>,
        "a loss function returns the loss, or a tuple or list of tensors whose first is the loss");
  }
}

}  // namespace reprise::tensors
