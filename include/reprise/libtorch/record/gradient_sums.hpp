#pragma once
// summands_to_overwrite() finds sums of gradients that may overwrite one of their summands.
//
//   logits = h · wteᵀ, h = … embedding(wte) …         wte gets a gradient from both uses, and autograd adds them:
//
//   a = mm(…)                     147 MiB              eager:  c = add(a, b)            a, b and c are live: 442 MiB
//   b = embedding_dense_backward  147 MiB              here:   c = add(a, b) over b     a and c:            295 MiB
//
// With tied weights, autograd adds two gradients of one parameter. If a gradient is a view,
// autograd allocates a third tensor for the sum. The sum comes at the end of backward, when nearly
// all gradients are live. It can therefore set the peak, and a budget would have to recompute other
// gradients to make room for it. The kernel and its operands are the same, so every bit is.
//
// In the graph, such a sum overwrites the summand, and its node is not recomputable.
// block_donation.hpp carries this out.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/graph/step_graph.hpp>
#include <reprise/libtorch/record/recording.hpp>

namespace reprise::recording {

/// Whether the call is a + b on the CPU, and nothing else.
inline bool is_plain_sum(const Call& call) {
  if (call.kind != CallKind::op || call.phase != Phase::backward || !call.repeatable ||
      call.facts->name != "aten::add")
    return false;
  if (!call.keys.has_backend(c10::BackendComponent::CPUBit)) return false;
  if (call.op->schema().overload_name() != "Tensor" || call.reads.size() != 2 ||
      call.results.size() != 1 || call.args.size() != 3)
    return false;
  const c10::IValue& alpha = call.args[2];
  return (alpha.isInt() && alpha.toInt() == 1) || (alpha.isDouble() && alpha.toDouble() == 1);
}

/// Whether the sum would have the same geometry in the summand's storage as in its own.
inline bool lies_alike(const Recording& recording, ValueId sum, ValueId summand) {
  const RecordedValue& made = recording.values[sum.index];
  const RecordedValue& root = recording.values[recording.owner_of(summand).index];
  const Geometry &a = *made.geometry, &b = *recording.values[summand.index].geometry;
  return a == b && made.bytes == root.bytes && made.bytes > Bytes{0};
}

/// By storage (its owner's id): the last call that reads it; `never` if the storage outlives the
/// step, or if an op may keep it.
inline std::vector<std::size_t> last_reads(const Recording& recording, std::size_t never) {
  std::vector<std::size_t> last(recording.values.size(), 0);
  for (std::size_t i = 0; i < recording.calls.size(); ++i) {
    for (const ArgumentSlot& read : recording.calls[i].reads) {
      if (!read.value.valid()) continue;
      std::size_t& until = last[recording.owner_of(read.value).index];
      until = std::max(until, may_linger(recording.calls[i]) ? never : i);
    }
  }
  for (const auto* list : {&recording.outputs, &recording.kept})
    for (ValueId v : *list) last[recording.owner_of(v).index] = never;
  return last;
}

/// A sum that overwrites a summand is not recomputable. For a sum that the step returns, such as a
/// parameter's gradient, this costs nothing. Any other sum must be large to be worth it.
inline bool is_worth_it(const Recording& recording, ValueId sum, bool outlives_step) {
  return outlives_step ||
         64 * recording.values[sum.index].bytes.count >= (recording.peak - recording.base).count;
}

/// By value: the summand that it may overwrite; none for all others.
[[nodiscard]] inline std::vector<ValueId> summands_to_overwrite(const Recording& recording) {
  std::vector<ValueId> found(recording.values.size());
  if (std::ranges::none_of(recording.calls, is_plain_sum)) return found;
  const std::size_t never = recording.calls.size();
  const std::vector<std::size_t> last = last_reads(recording, never);
  for (std::size_t i = 0; i < recording.calls.size(); ++i) {
    const Call& call = recording.calls[i];
    if (!is_plain_sum(call)) continue;
    const ValueId sum = call.results[0].value, a = call.reads[0].value, b = call.reads[1].value;
    const bool fresh = !recording.values[sum.index].alias_of.valid() &&
                       !recording.values[sum.index].overwrites.valid();
    if (!fresh || !a.valid() || !b.valid() || recording.owner_of(a) == recording.owner_of(b))
      continue;
    // the op converts one operand first, in a block of its own
    if (recording.values[a.index].geometry->dtype != recording.values[b.index].geometry->dtype)
      continue;
    if (!is_worth_it(recording, sum, last[sum.index] == never)) continue;
    // the summand that was computed last is usually the cheapest to recompute
    for (ValueId summand : {b, a}) {
      const ValueId root = recording.owner_of(summand);
      const bool ends_here = recording.values[root.index].producer.valid() && last[root.index] == i;
      if (found[sum.index].valid() || !ends_here || !lies_alike(recording, sum, summand)) continue;
      found[sum.index] = summand;
    }
  }
  return found;
}

/// The summand that this value overwrites in the graph, but not in the recorded step; none for all
/// others.
[[nodiscard]] inline ValueId overwritten_summand(const StepGraph& graph, const Recording& recording,
                                                 ValueId v) {
  return recording.values[v.index].overwrites.valid() ? ValueId{} : graph.value(v).overwrites;
}

}  // namespace reprise::recording
