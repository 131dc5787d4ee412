#pragma once
// call_again() recomputes a recorded call: it calls the same operator with the same numbers, over
// tensors of the caller.
//
//   std::vector<c10::IValue> results = call_again(call, tensors);     // tensors[i] stands for call.reads[i]
//
// It leaves out what a recomputation must not repeat: batch norm runs without the running
// statistics.

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/torch/dispatch_hook.hpp>

namespace reprise::recording {

// Fills one list from its slots, which are adjacent. Returns the index of the next slot.
template <class List, class Slots, class TensorAt>
std::size_t fill_list(c10::IValue& argument, List list, const Slots& slots, std::size_t k,
                      const TensorAt& tensor_at) {
  const std::uint32_t arg = slots[k].arg;
  for (; k < slots.size() && slots[k].arg == arg; ++k)
    if (const at::Tensor& tensor = tensor_at(k); tensor.defined())
      list.set(static_cast<std::size_t>(slots[k].element), tensor);
  argument = std::move(list);
  return k;
}

/// Inserts tensors into a recorded call's arguments. `slots` say where (an argument, or an element
/// of an argument that is a list), and `tensor_at(k)` gives the tensor for slots[k]. Undefined
/// tensors are left out.
template <class Slots, class TensorAt>
void fill_arguments(std::vector<c10::IValue>& arguments, const Slots& slots,
                    const TensorAt& tensor_at) {
  for (std::size_t k = 0; k < slots.size();) {
    c10::IValue& argument = arguments[slots[k].arg];
    if (slots[k].element < 0) {
      if (const at::Tensor& tensor = tensor_at(k); tensor.defined()) argument = tensor;
      ++k;
    } else if (argument.isTensorList()) {
      k = fill_list(argument, argument.toTensorList().copy(), slots, k, tensor_at);
    } else {
      k = fill_list(argument, argument.toOptionalTensorList().copy(), slots, k, tensor_at);
    }
  }
}

/// A wrapped number as a tensor over the recorded bytes.
[[nodiscard]] inline at::Tensor tensor_of_number(const RecordedValue& value) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
  // kernels only read operands that they may not write
  auto* bytes = const_cast<std::byte*>(value.scalar.data());
  const at::Tensor plain =
      at::from_blob(bytes, value.geometry.sizes, at::TensorOptions().dtype(value.geometry.dtype));
  return tensor_over(plain.storage(), value.geometry, plain);
}

/// Returns the results by the schema. Runs below autograd, and no recorder sees the call.
[[nodiscard]] inline std::vector<c10::IValue> call_again(const Call& call,
                                                         std::span<const at::Tensor> tensors) {
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(DispatchHook::above());
  const at::AutoGradMode as_then(call.grad_mode);
  std::optional<SwitchScope> switched;
  if (call.switches != nullptr && *call.switches != Switches::now())
    switched.emplace(*call.switches);
  std::vector<c10::IValue> stack(call.args.begin(), call.args.end());
  fill_arguments(stack, call.reads, [&](std::size_t k) -> const at::Tensor& { return tensors[k]; });
  call.op->redispatchBoxed(call.keys, &stack);
  return stack;
}

/// The tensor among the results that a slot refers to; one of `tensors` if it was written in place.
[[nodiscard]] inline at::Tensor result_again(const Call& call, const ResultSlot& slot,
                                             const std::vector<c10::IValue>& results,
                                             std::span<const at::Tensor> tensors) {
  if (slot.from == ResultSlot::From::argument) {
    for (std::size_t k = 0; k < call.reads.size(); ++k)
      if (call.reads[k].arg == slot.index && call.reads[k].element == slot.element)
        return tensors[k];
    return {};
  }
  return slot.element < 0
             ? results[slot.index].toTensor()
             : results[slot.index].toListRef()[static_cast<std::size_t>(slot.element)].toTensor();
}

}  // namespace reprise::recording
