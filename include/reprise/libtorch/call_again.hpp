#pragma once
// A recorded call, run again: the same operator with the same numbers, over tensors that the caller supplies.
//
//   std::vector<c10::IValue> results = call_again(call, tensors);     // tensors[i] stands for call.reads[i]
//
// What a recomputation must not repeat is left out: batch norm runs without the running statistics.

#include <algorithm>
#include <span>
#include <vector>

#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <reprise/libtorch/dispatch_hook.hpp>
#include <reprise/libtorch/recording.hpp>

namespace reprise {

/// Whether the call moves what this argument holds, behind the schema's back: running statistics in training mode.
[[nodiscard]] inline bool is_moved_statistic(const Call& call, const ArgumentSlot& read) {
  if (call.kind != CallKind::op || !call.facts->moves_statistics()) return false;
  const c10::IValue& training = call.args[call.facts->training];
  if (!training.isBool() || !training.toBool()) return false;
  return std::ranges::find(call.facts->statistics, std::size_t{read.arg}) != call.facts->statistics.end();
}

namespace detail {

template <class List>
std::size_t fill_again(c10::IValue& argument, List list, const Call& call, std::size_t k, std::span<const at::Tensor> tensors) {
  const std::uint32_t arg = call.reads[k].arg;
  for (; k < call.reads.size() && call.reads[k].arg == arg; ++k)
    if (tensors[k].defined()) list.set(static_cast<std::size_t>(call.reads[k].element), tensors[k]);
  argument = std::move(list);
  return k;
}

}  // namespace detail

/// Results beside the schema's returns. Runs below autograd and unseen by any recorder.
[[nodiscard]] inline std::vector<c10::IValue> call_again(const Call& call, std::span<const at::Tensor> tensors) {
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(DispatchHook::above());
  const at::AutoGradMode as_then(call.grad_mode);
  std::vector<c10::IValue> stack(call.args.begin(), call.args.end());
  for (std::size_t k = 0; k < call.reads.size();) {
    const ArgumentSlot& read = call.reads[k];
    c10::IValue& argument = stack[read.arg];
    if (read.element < 0) {
      if (tensors[k].defined()) argument = tensors[k];
      ++k;
    } else if (argument.isTensorList()) {
      k = detail::fill_again(argument, argument.toTensorList().copy(), call, k, tensors);
    } else {
      k = detail::fill_again(argument, argument.toOptionalTensorList().copy(), call, k, tensors);
    }
  }
  call.op->redispatchBoxed(call.keys, &stack);
  return stack;
}

/// The tensor among the results that a slot speaks of; `tensors` for what was written in place.
[[nodiscard]] inline at::Tensor result_again(const Call& call, const ResultSlot& slot, const std::vector<c10::IValue>& results,
                                             std::span<const at::Tensor> tensors) {
  if (slot.from == ResultSlot::From::argument) {
    for (std::size_t k = 0; k < call.reads.size(); ++k)
      if (call.reads[k].arg == slot.index && call.reads[k].element == slot.element) return tensors[k];
    return {};
  }
  return slot.element < 0 ? results[slot.index].toTensor()
                          : results[slot.index].toListRef()[static_cast<std::size_t>(slot.element)].toTensor();
}

}  // namespace reprise
