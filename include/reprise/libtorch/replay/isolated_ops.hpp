#pragma once
// Times each distinct op of a recording once, on tensors made for it. A model of many equal modules
// is profiled in a fraction of a step.
//
//   ResNet-152: 50 bottleneck blocks, 1900 nodes, some 200 distinct (op, shapes, dtypes, scalars)
//
// The tensors have contents that every op accepts: small positive numbers, and zeros for integers
// (valid indices). An op whose time depends on data (sparse indices, denormals) may take another
// time in the step. The sum of the isolated times is therefore shown next to the sum in the step.

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/torch/dispatch_hook.hpp>
#include <reprise/profile/profiler.hpp>

namespace reprise::replaying {

struct IsolatedTimes {
  std::vector<Microseconds> time{};                  ///< by NodeId
  std::vector<std::vector<Microseconds>> samples{};  ///< by NodeId
  std::size_t distinct = 0;                          ///< ops that were run
  /// ops that did not accept the tensors; they keep the time of the capture
  std::size_t failed = 0;
};

/// Everything that decides what an op does, except the data.
inline std::string op_signature(const Recording& recording, const Call& call) {
  std::string text = call.op_name() + node_extra(call);
  for (const ArgumentSlot& slot : call.reads) {
    text += '|' + std::to_string(slot.arg) + ':' + std::to_string(slot.element);
    if (slot.value.valid()) text += value_extra(recording, slot.value);
  }
  return text;
}

inline at::Tensor made_tensor(const Geometry& g) {
  std::int64_t extent = g.offset + 1;
  for (std::size_t d = 0; d < g.sizes.size(); ++d)
    extent += g.sizes[d] > 0 ? (g.sizes[d] - 1) * g.strides[d] : 0;
  at::Tensor flat = at::zeros({extent}, at::TensorOptions().dtype(g.dtype));
  if (flat.is_floating_point() || flat.is_complex()) flat.fill_(0.5);
  return tensor_over(flat.storage(), g, flat);
}

inline std::vector<c10::IValue> made_arguments(const Recording& recording, const Call& call) {
  std::vector<c10::IValue> stack(call.args.begin(), call.args.end());
  for (const ArgumentSlot& slot : call.reads) {
    const at::Tensor tensor = made_tensor(recording.values[slot.value.index].geometry);
    if (slot.element < 0) {
      stack[slot.arg] = tensor;
    } else if (stack[slot.arg].isTensorList()) {
      if (slot.element == 0 || stack[slot.arg].use_count() > 1)
        stack[slot.arg] = stack[slot.arg].toTensorList().copy();
      stack[slot.arg].toTensorList().set(static_cast<std::size_t>(slot.element), tensor);
    } else {
      if (stack[slot.arg].use_count() > 1)
        stack[slot.arg] = stack[slot.arg].toOptionalTensorList().copy();
      stack[slot.arg].toOptionalTensorList().set(static_cast<std::size_t>(slot.element), tensor);
    }
  }
  return stack;
}

inline std::vector<Microseconds> time_one(const Recording& recording, const Call& call,
                                          const ProfileOptions& options) {
  std::vector<Microseconds> samples;
  const std::vector<c10::IValue> arguments = made_arguments(recording, call);
  for (std::size_t r = 0; r < options.warmup + options.runs; ++r) {
    std::vector<c10::IValue> stack = arguments;
    const auto start = std::chrono::steady_clock::now();
    call.op->redispatchBoxed(call.keys, &stack);
    const Microseconds time{
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count()};
    if (r >= options.warmup) samples.push_back(time);
  }
  return samples;
}

[[nodiscard]] inline IsolatedTimes time_isolated_ops(const Recording& recording,
                                                     const ProfileOptions& options) {
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(DispatchHook::above());
  IsolatedTimes result;
  result.time.resize(recording.calls.size());
  result.samples.resize(recording.calls.size());
  std::map<std::string, std::size_t> first;  // signature -> the call that was timed
  for (std::size_t i = 0; i < recording.calls.size(); ++i) {
    if (options.stop.stop_requested())
      throw Error(Errc::cancelled, "profiling was cancelled; the model is as it was");
    if (options.progress) options.progress(i, recording.calls.size());
    const Call& call = recording.calls[i];
    if (call.kind != CallKind::op) continue;
    const auto [it, added] = first.emplace(op_signature(recording, call), i);
    if (added) {
      ++result.distinct;
      try {
        result.samples[i] = time_one(recording, call, options);
      } catch (const c10::Error&) {  // an op may reject its arguments
        ++result.failed;
        result.samples[i].assign(options.runs, call.time);
      }
      result.time[i] = aggregate(result.samples[i], options.aggregate);
    } else {
      result.samples[i] = result.samples[it->second];
      result.time[i] = result.time[it->second];
    }
  }
  return result;
}

}  // namespace reprise::replaying
