#pragma once
// same_sequence() compares the op sequences of two steps. They are equal if, node by node, the same
// operator reads the same values in the same shapes.
//
//   recorded   mm(x, w) -> h [32, 64]    relu(h) -> r [32, 64]    …        known.calls[1]
//   this step  mm(x, w) -> h [32, 64]    relu(h) -> r [32, 64]              same_reads(call, known.calls[1])
// Operands are compared by value id. The recorder numbers values in the order in which they appear,
// so equal sequences have equal ids. Numbers may differ (a learning rate): a recomputation uses the
// number of its own step.
// streams have equal ids. Numbers may differ (a learning rate): a recomputation uses this step's.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>

#include <reprise/libtorch/record/recording.hpp>
#include <reprise/plan/followed_plan.hpp>

namespace reprise::guided {

/// Whether both calls have the same op and read the same values.
[[nodiscard]] inline bool same_reads(const Call& a, const Call& b) {
  if (a.kind != b.kind || a.facts != b.facts || a.reads.size() != b.reads.size()) return false;
  return std::ranges::equal(a.reads, b.reads, [](const ArgumentSlot& x, const ArgumentSlot& y) {
    return x.arg == y.arg && x.element == y.element && x.value == y.value;
  });
}
[[nodiscard]] inline bool same_results(const Call& a, const Call& b) {
  return std::ranges::equal(a.updates, b.updates) &&
         std::ranges::equal(a.results, b.results, {}, &ResultSlot::value, &ResultSlot::value);
}
/// A batch's offset in its storage may differ, and so may whether a value from before the step
/// outlives the step.
[[nodiscard]] inline bool same_value(const RecordedValue& a, const RecordedValue& b) {
  return a.bytes == b.bytes && a.alias_of == b.alias_of && a.overwrites == b.overwrites &&
         a.producer == b.producer && a.geometry->sizes == b.geometry->sizes &&
         a.geometry->strides == b.geometry->strides && a.geometry->dtype == b.geometry->dtype;
}

/// Whether two steps made the same op sequence.
[[nodiscard]] inline bool same_sequence(const Recording& a, const Recording& b) {
  return std::ranges::equal(a.values, b.values, same_value) &&
         std::ranges::equal(a.calls, b.calls, [](const Call& x, const Call& y) {
           return same_reads(x, y) && same_results(x, y) && x.repeatable == y.repeatable;
         });
}

/// Whether two steps made the same stream of ops but for sizes and times: a schedule of the one is
/// one of the other.
[[nodiscard]] inline bool same_ops(const Recording& a, const Recording& b) {
  return a.values.size() == b.values.size() &&
         std::ranges::equal(a.calls, b.calls, [](const Call& x, const Call& y) {
           return same_reads(x, y) && same_results(x, y) && x.repeatable == y.repeatable;
         });
}

/// Whether the calls of `so_far` are the first calls of `known`.
[[nodiscard]] inline bool may_become(const Recording& known, const Recording& so_far) {
  const std::size_t calls = so_far.calls.size(), values = so_far.values.size();
  if (calls > known.calls.size() || values > known.values.size()) return false;
  for (std::size_t i = 0; i < calls; ++i)
    if (!same_reads(so_far.calls[i], known.calls[i]) ||
        !same_results(so_far.calls[i], known.calls[i]))
      return false;
  for (std::size_t i = 0; i < values; ++i)
    if (!same_value(so_far.values[i], known.values[i])) return false;
  return true;
}
/// The same, with `next` as the next call.
[[nodiscard]] inline bool may_become(const Recording& known, const Recording& so_far,
                                     const Call& next) {
  const std::size_t calls = so_far.calls.size();
  return calls < known.calls.size() && same_reads(next, known.calls[calls]) &&
         may_become(known, so_far);
}

/// A recorded op sequence with its graph, and the plan to follow when it repeats. Without a plan,
/// the step still follows the sequence, and nothing is evicted: the headroom is enough for the
/// whole step.
struct PlannedSequence {
  std::shared_ptr<const Recording> recording{};
  std::shared_ptr<const StepGraph> graph{};
  std::optional<FollowedPlan> plan{};
};

}  // namespace reprise::guided
