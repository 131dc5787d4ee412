#pragma once
// Lineage knows which values can be recomputed from which others, by the calls of this step.
//
//   h = mm(x, w); r = relu(h)        h: rematerializable, made from x and w;  r: from h
//   w.sub_(g)                        w is overwritten: neither h nor r can be recomputed afterwards
//
// A value is *rematerializable* while every call in its recompute cone may run again and every
// source of the cone is available. Only rematerializable values are evicted. It is *reproducible*
// while no source of its cone has been overwritten or freed: that depends on the op sequence only,
// not on what is evicted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>

#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/residency/residency.hpp>

namespace reprise::guided {

/// A source of values that no storage of the step has: a plan's copies.
struct ValueSource {
  virtual ~ValueSource() = default;
  /// Attaches the bytes to the storage. False if the source does not have the storage's contents.
  virtual bool materialize_from_plan(StorageIndex s) = 0;
  /// Whether the source has the value, and keeps it for what can only be recomputed from the value.
  [[nodiscard]] virtual bool plan_holds(ValueId v) const = 0;
  /// A recomputation is about to start from the step's storages.
  virtual void before_recompute() = 0;
};
/// A step without a plan.
struct NoValueSource final : ValueSource {
  bool materialize_from_plan(StorageIndex /*s*/) override { return false; }
  [[nodiscard]] bool plan_holds(ValueId /*v*/) const override { return false; }
  void before_recompute() override {}
};

class Lineage {
 public:
  using Readers = c10::SmallVector<NodeId, 2>;

  /// Values that can only be recomputed from this one, because no available value lies between.
  struct Dependants {
    std::vector<ValueId> evicted{};  ///< under the user's tensors
    std::vector<ValueId> others{};
  };

  Lineage(const RecordingTables& tables, Residency& residency)
      : tables_(tables), residency_(residency) {}
  Lineage(const Lineage&) = delete;
  Lineage& operator=(const Lineage&) = delete;

  /// Calls this source from now on.
  void ask(ValueSource& plan) { plan_ = &plan; }
  [[nodiscard]] ValueSource& plan() const { return *plan_; }

  void reserve(std::size_t values) { facts_.reserve(values); }
  /// Adds facts for the recording's new values.
  void grow() {
    if (facts_.size() < recording().values.size()) facts_.resize(recording().values.size());
  }

  [[nodiscard]] bool rematerializable(ValueId version) const {
    return version.index < facts_.size() && facts_[version.index].rematerializable;
  }
  [[nodiscard]] bool reproducible(ValueId version) const {
    return version.index < facts_.size() && facts_[version.index].reproducible;
  }
  /// Whether part of its storage has not been written yet.
  [[nodiscard]] bool uninitialized(ValueId version) const {
    return facts_[version.index].uninitialized;
  }
  /// For a value from before the step: whether a later call than `node` has written it.
  [[nodiscard]] bool updated_after(ValueId v, NodeId node) const {
    const NodeId updated = facts_[v.index].updated_at;
    return updated.valid() && updated > node;
  }
  [[nodiscard]] const Readers& readers_of(ValueId v) const { return facts_[v.index].readers; }

  /// Whether the value can be read without recomputation.
  [[nodiscard]] bool is_available(ValueId version) const {
    const RecordedValue& value = recording().values[version.index];
    if (value.origin == Origin::scalar) return true;
    const StorageIndex s = tables_.storage_of(version);
    if (s == no_storage || use(s).corrupt) return false;
    const ResidencyState state = residency_.state(s);
    if (!value.producer.valid()) return state != ResidencyState::dead;
    if (tables_.latest_version(s) != version) return false;
    return state != ResidencyState::evicted && state != ResidencyState::dead;
  }

  [[nodiscard]] Dependants dependants_of(ValueId source) const {
    Dependants found;
    std::unordered_set<std::uint32_t> seen;
    for_each_made_from(source, [&](ValueId v) {
      if (!rematerializable(v) || !seen.insert(v.index).second) return false;
      const StorageIndex s = tables_.storage_of(v);
      const bool evicted =
          residency_.state(s) == ResidencyState::evicted && tables_.latest_version(s) == v;
      (evicted ? found.evicted : found.others).push_back(v);
      return !evicted && !is_available(v) && !plan_->plan_holds(v);
    });
    return found;
  }
  /// Whether a value is evicted that can only be recomputed from this one.
  [[nodiscard]] bool has_evicted_dependants(ValueId source) const {
    return !dependants_of(source).evicted.empty();
  }

  // ── what ops do ────────────────────────────────────────────────────────────────────────────────

  void note_update(ValueId v, NodeId node) { facts_[v.index].updated_at = node; }
  void note_read(ValueId v, NodeId node) {
    Readers& readers = facts_[tables_.version_of(v).index].readers;
    if (readers.empty() || readers.back() != node) readers.push_back(node);
  }
  /// The call has made this version. `repeatable`: the call may be recomputed.
  void note_version(const Call& call, const ResultSlot& result, bool repeatable) {
    const ValueId before = recording().values[result.value.index].overwrites;
    const ValueId from = before.valid() ? tables_.version_of(before) : ValueId{};
    Facts& facts = facts_[result.value.index];
    facts.uninitialized = leaves_uninitialized(call, result, from);
    facts.rematerializable = repeatable && (!from.valid() || rematerializable(from));
    facts.reproducible = repeatable && (!from.valid() || reproducible(from));
  }

  // ── what ends ──────────────────────────────────────────────────────────────────────────────────

  /// The value becomes a source itself.
  void end_rematerializing(ValueId v) { facts_[v.index].rematerializable = false; }
  /// Only user code knows the contents.
  void end_reproducing(ValueId v) {
    facts_[v.index].rematerializable = facts_[v.index].reproducible = false;
  }
  void forget_readers(ValueId v) { facts_[v.index].readers.clear(); }
  /// Release calls are recorded for what was made from contents that end here. Depends on the op
  /// sequence only, so a step that follows its plan records the planned sequence.
  void record_deaths_of_dependants(ValueId source) {
    for_each_made_from(source, [&](ValueId v) {
      if (!reproducible(v)) return false;
      facts_[v.index].reproducible = false;
      const StorageIndex s = tables_.storage_of(v);
      if (residency_.records().alive(s) && tables_.latest_version(s) == v)
        residency_.records()[s].use.death_is_recorded = true;
      return true;
    });
  }

  // ── the cost of materializing a storage ────────────────────────────────────────────────────────

  /// Cost of a storage: time of its recompute cone and of the evicted results that depend on it, or
  /// of spilling and fetching. Both have a fixed part. Without the fixed part, a thousand tiny
  /// tensors would be evicted instead of one large tensor.
  [[nodiscard]] Microseconds cost_of(StorageIndex s, bool only_spills) {
    const ValueId latest = tables_.latest_version(s);
    const auto bytes = static_cast<double>(residency_.bytes(s).count);
    if (!rematerializable(latest) || only_spills)
      return {2 * (us_per_transfer + bytes / bytes_per_us)};
    return {us_per_recomputation + cone_cost(latest) + waiting_cost(latest)};
  }

 private:
  static constexpr double bytes_per_us = 1000;  // assumed for a disk: 1 GB/s
  // assumed for the file system
  static constexpr double us_per_transfer = 100;
  static constexpr double us_per_recomputation = 20;  // fixed cost of a recomputation
  static constexpr std::size_t max_cone = 64;
  static constexpr std::size_t max_neighbours = 8;

  /// By value, for values that are versions; for a view, only `readers` stays empty.
  struct Facts {
    bool rematerializable = false;
    bool reproducible = false;
    bool uninitialized = false;
    NodeId updated_at{};  ///< for a value from before the step: the last call that wrote it
    Readers readers{};
  };

  [[nodiscard]] const Recording& recording() const { return tables_.recording(); }
  [[nodiscard]] const StorageRecord::Use& use(StorageIndex s) const {
    return tables_.records()[s].use;
  }

  // Visits what calls have made from a value, and follows the results for which `visit` returns
  // true.
  template <class Visit>
  void for_each_made_from(ValueId source, const Visit& visit) const {
    std::vector<ValueId> stack{source};
    while (!stack.empty()) {
      const ValueId from = stack.back();
      stack.pop_back();
      if (from.index >= facts_.size()) continue;
      for (NodeId node : facts_[from.index].readers)
        for (const ResultSlot& slot : recording().calls[node.index].results)
          if (visit(slot.value)) stack.push_back(slot.value);
    }
  }

  // Whether part of the value's storage is uninitialized because no op has written it yet.
  [[nodiscard]] bool leaves_uninitialized(const Call& call, const ResultSlot& result,
                                          ValueId from) const {
    if (call.kind == CallKind::op && call.facts->unfilled) return true;
    if (!from.valid() || !uninitialized(from)) return false;
    const Geometry& g = *recording().values[result.value.index].geometry;
    std::int64_t written = static_cast<std::int64_t>(c10::elementSize(g.dtype));
    for (const std::int64_t size : g.sizes) written *= size;
    return written < residency_.bytes(tables_.storage_of(result.value)).count;
  }

  // Time of the calls in the value's recompute cone, each once. The search stops at a large cone,
  // which is expensive anyway.
  [[nodiscard]] double cone_cost(ValueId value) {
    counted_.resize(recording().calls.size(), 0);
    ++count_;
    c10::SmallVector<ValueId, 16> wanted{value};
    double cost = 0;
    for (std::size_t calls = 0; !wanted.empty() && calls < max_cone;) {
      const NodeId node = recording().values[wanted.pop_back_val().index].producer;
      if (!node.valid() || std::exchange(counted_[node.index], count_) == count_) continue;
      ++calls;
      const Call& call = recording().calls[node.index];
      cost += call.time.count;
      for (const ArgumentSlot& read : call.reads) {
        if (!read.value.valid() || is_running_stat(call, read)) continue;
        const ValueId from = tables_.version_of(read.value);
        if (tables_.storage_of(from) != no_storage && !is_available(from)) wanted.push_back(from);
      }
    }
    return cost;
  }

  // Time of the evicted values that were made directly from this value. Dead values are not
  // restored.
  [[nodiscard]] double waiting_cost(ValueId value) const {
    double cost = 0;
    std::size_t looked = 0;
    for (NodeId reader : readers_of(value)) {
      // a value with very many readers: its cost need not be exact
      if (++looked > max_neighbours) break;
      const Call& call = recording().calls[reader.index];
      const bool waits = std::ranges::any_of(call.results, [&](const ResultSlot& result) {
        const StorageIndex s = tables_.storage_of(result.value);
        return s != no_storage && residency_.state(s) == ResidencyState::evicted;
      });
      if (waits) cost += call.time.count;
    }
    return cost;
  }

  const RecordingTables& tables_;
  Residency& residency_;
  NoValueSource no_plan_;
  ValueSource* plan_ = &no_plan_;
  std::vector<Facts> facts_;            // by value
  std::vector<std::uint32_t> counted_;  // by call: the count of costs in which it was last included
  std::uint32_t count_ = 0;
};

}  // namespace reprise::guided
