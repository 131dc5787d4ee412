#pragma once
// The Rematerializer restores evicted storages of the current step. It recomputes them from the
// calls that the recorder saw in this step, with this step's arguments and generator states.
//
//   h = mm(x, w); r = relu(h); evict(r), evict(h)        r is read:  mm and relu are recomputed, h is freed as soon as relu has run,
//                                                        r's bytes go back under the user's tensor
//
// An op may overwrite a source: an optimizer step writes a parameter. Before such an op runs, the
// Rematerializer materializes every evicted value that needs this source. These values become
// sources themselves. They may be spilled, but no longer evicted (lineage.hpp).
//
// The number of recomputations has a bound. Each recomputation may evict what another one needs,
// and a step that recomputed the same values forever would not end. If memory has run out and the
// step has recomputed more ops than recompute_bound() allows, it recomputes every evicted storage
// once, in one pass. From then on it spills storages instead of evicting them: restoring a spilled
// storage needs only the storage's own bytes.

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>

#include <reprise/libtorch/guided/call_runner.hpp>
#include <reprise/libtorch/guided/lineage.hpp>
#include <reprise/libtorch/guided/recompute_cone.hpp>
#include <reprise/libtorch/guided/step_counters.hpp>
#include <reprise/libtorch/residency/storage_events.hpp>

namespace reprise::guided {

/// How the step reacts when the Rematerializer changes residency.
struct RematerializerListener {
  virtual ~RematerializerListener() = default;
  /// The storage is resident again, or may no longer be evicted.
  virtual void on_restored(StorageIndex s) = 0;
  /// From here on, storages are spilled and not evicted.
  virtual void on_only_spills() = 0;
  /// User code has written the storage, and LibTorch did not report it.
  virtual void on_user_write(StorageIndex s) = 0;
};

/// Thrown by a recomputation that cannot or must not go on. The outermost recomputation catches it
/// and tries another way.
struct GiveWay {};

class Rematerializer {
 public:
  Rematerializer(Recorder& recorder, StorageEvents& events, Lineage& lineage, CallRunner& runner,
                 GuidedStepCounters& counters, RematerializerListener& listener)
      : recorder_(recorder),
        tables_(recorder.tables()),
        records_(recorder.storages()),
        events_(events),
        residency_(events.residency()),
        lineage_(lineage),
        runner_(runner),
        counters_(counters),
        listener_(listener) {}
  Rematerializer(const Rematerializer&) = delete;
  Rematerializer& operator=(const Rematerializer&) = delete;

  /// Number of ops that a step with `calls` recorded calls may recompute outside of any plan before
  /// it spills.
  [[nodiscard]] static constexpr std::int64_t recompute_bound(std::size_t calls) {
    return 2 * static_cast<std::int64_t>(calls) + 128;
  }

  /// Memory has run out in this step: the bound applies from now on.
  void note_out_of_memory() { ran_out_ = true; }
  /// Whether the outermost recomputation can try another way. Inner recomputations then remove
  /// their pins.
  [[nodiscard]] bool can_give_way() const {
    return restoring_ || (nested_ > 1 && ran_out_ && !counters_.only_spills);
  }
  /// The user's op that is about to run, for messages; null between ops.
  void set_op(const std::string* name) { op_ = name; }
  [[nodiscard]] const std::string* op() const { return op_; }

  // ── restoring ──────────────────────────────────────────────────────────────────────────────────

  /// Makes the storage resident by any means: the plan's copy, the file, or recomputation.
  void materialize(StorageIndex s) {
    if (s == no_storage) return;
    events_.keep_if_dying(s);
    const ResidencyState state = residency_.state(s);
    if (state == ResidencyState::spilled || state == ResidencyState::orphaned_spilled) {
      residency_.fetch(s);
      ++counters_.brought_back;
      listener_.on_restored(s);
    } else if (state == ResidencyState::evicted) {
      if (lineage_.plan().materialize_from_plan(s)) return;
      lineage_.plan().before_recompute();
      rematerialize({tables_.latest_version(s)});
      if (residency_.state(s) == ResidencyState::evicted && records_.alive(s))
        throw Error(Errc::capture_failed,
                    "recomputing " + describe(tables_.latest_version(s)) + " gave no tensor");
      ++counters_.brought_back;
      // restoring other storages spilled it
      if (residency_.state(s) == ResidencyState::spilled) materialize(s);
    }
  }

  /// A tensor of this value over memory that is or becomes resident.
  at::Tensor tensor_of(ValueId v) {
    const ValueId version = tables_.version_of(v);
    const RecordedValue& value = recording().values[version.index];
    if (value.origin == Origin::scalar) return tensor_of_number(value);
    const StorageIndex s = tables_.storage_of(version);
    materialize(s);
    if (recorder_.user_access().has_written(s)) throw written_too_late(version);
    c10::Storage memory = residency_.memory_of(s);
    // an empty tensor is always available
    if (!memory && std::ranges::find(value.geometry->sizes, 0) != value.geometry->sizes.end())
      memory = no_bytes().storage();
    if (!memory) throw Error(Errc::capture_failed, describe(version) + " has been freed");
    return over(memory, v);
  }
  [[nodiscard]] at::Tensor over(const c10::Storage& storage, ValueId v) const {
    static const at::Tensor like = no_bytes();
    return tensor_over(storage, *recording().values[v.index].geometry, like);
  }

  /// Before a call runs or is recomputed: finds writes of user code to its operands that LibTorch
  /// did not report. Values that were made from the former contents are then recomputed from these
  /// contents.
  bool process_pointer_writes(const Call& call) {
    bool found = false;
    for (const ArgumentSlot& read : call.reads) {
      const StorageIndex s = tables_.storage_of(read.value);
      if (s == no_storage || !residency_.writes().edges_written(s)) continue;
      found = true;
      process_pointer_write(s);
    }
    return found;
  }
  void process_pointer_write(StorageIndex s) {
    const WriteWatch::OldEdges before(residency_.writes(), s);
    listener_.on_user_write(s);
  }

  // ── what ends ──────────────────────────────────────────────────────────────────────────────────

  /// The version in the storage ends here. Evicted values that can only be recomputed from it are
  /// recomputed now.
  void before_overwrite(StorageIndex s) {
    const ValueId source = tables_.latest_version(s);
    if (!source.valid()) return;
    if (!lineage_.reproducible(source)) lineage_.record_deaths_of_dependants(source);
    if (lineage_.rematerializable(source)) return;
    const Lineage::Dependants lost = lineage_.dependants_of(source);
    for (ValueId v : lost.others) lineage_.end_rematerializing(v);
    for (ValueId v : lost.evicted) {
      materialize(tables_.storage_of(v));
      // from here on it can be spilled, also to restore another storage
      lineage_.end_rematerializing(v);
    }
    for (ValueId v : lost.others) listener_.on_restored(tables_.storage_of(v));
    for (ValueId v : lost.evicted) listener_.on_restored(tables_.storage_of(v));
    lineage_.forget_readers(source);
  }

  /// The contents are about to be freed and cannot be recomputed. False if an evicted value can
  /// only be recomputed from them.
  [[nodiscard]] bool try_release_source(ValueId source) {
    const Lineage::Dependants lost = lineage_.dependants_of(source);
    bool needed = false;
    for (ValueId v : lost.evicted)
      needed = !lineage_.plan().materialize_from_plan(tables_.storage_of(v)) || needed;
    if (needed) return false;
    for (ValueId v : lost.evicted) lineage_.end_rematerializing(v);
    for (ValueId v : lost.others) {
      lineage_.end_rematerializing(v);
      listener_.on_restored(tables_.storage_of(v));
    }
    return true;
  }

  /// Frees the bytes of an orphaned storage, unless an evicted value can only be recomputed from
  /// them.
  void release_orphan(StorageIndex s) {
    if (s == no_storage || residency_.state(s) != ResidencyState::orphaned) return;
    const ValueId latest = tables_.latest_version(s);
    if (lineage_.rematerializable(latest) || try_release_source(latest))
      residency_.release_orphan(s);
  }

  // ── messages ───────────────────────────────────────────────────────────────────────────────────

  [[nodiscard]] std::string describe(ValueId v) const { return recording().describe(v); }
  /// User code has overwritten a source of an evicted value.
  [[nodiscard]] Error written_too_late(ValueId source) const {
    return Error(Errc::capture_failed,
                 "the host has written into " + describe(source) +
                     " after ops had read it, and what they made from it was evicted. LibTorch "
                     "before 2.13 does not tell of it beforehand: call step.pin(tensor) before "
                     "taking a pointer");
  }

 private:
  using MadeStorages = std::unordered_map<std::uint32_t, c10::Storage>;  // by value
  using ReadCounts = RecordedCone::ReadCounts;

  static constexpr int max_nested = 200;

  [[nodiscard]] const Recording& recording() const { return tables_.recording(); }

  [[nodiscard]] static at::Tensor no_bytes() {
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
    return at::empty({0});
  }

  void rematerialize(std::vector<ValueId> wanted) {
    if (nested_ > 0) return recompute_all(std::move(wanted));
    try {
      recompute_all(wanted);
    } catch (const GiveWay&) {
      spill_from_here_on();
      recompute_all(std::move(wanted));
    }
  }

  // Restores everything that is evicted in one pass: each call runs once. If the pass does not fit,
  // each storage is restored when it is read. A pass may need values at the same time that were
  // never live at the same time.
  void spill_from_here_on() {
    counters_.only_spills = true;
    listener_.on_only_spills();
    std::vector<ValueId> all;
    for (StorageIndex s = 0; s < records_.size(); ++s)
      if (residency_.state(s) == ResidencyState::evicted && records_.alive(s))
        all.push_back(tables_.latest_version(s));
    restoring_ = true;
    const struct Restored {
      bool& restoring;
      ~Restored() { restoring = false; }
    } restored{restoring_};
    try {
      recompute_all(std::move(all));
    } catch (const GiveWay&) {
    }
  }

  // Recomputes these values, each call once, in recorded order.
  void recompute_all(std::vector<ValueId> wanted) {
    if (nested_ >= max_nested && can_give_way()) throw GiveWay{};
    if (nested_ >= max_nested)
      throw Error(Errc::budget_unreachable, "the budget is too small to recompute what " +
                                                (op_ != nullptr ? *op_ : "the step") + " reads");
    const struct Level {
      int& level;
      ~Level() { --level; }
    } level{++nested_};
    const auto existing_peaks = device_memory().existing_peaks();
    ScopedPins pins(records_);
    RecordedCone cone = cone_of(tables_, residency_, lineage_, wanted, pins);
    bool written = false;
    for (NodeId node : cone.calls)
      written = process_pointer_writes(recording().calls[node.index]) || written;
    if (written) {  // meanwhile, some values can have become unrecomputable
      std::erase_if(wanted, [&](ValueId v) { return lineage_.is_available(v); });
      cone = cone_of(tables_, residency_, lineage_, std::move(wanted), pins);
    }
    const std::int64_t would_be = recomputed_ + static_cast<std::int64_t>(cone.calls.size());
    const bool too_many = would_be > recompute_bound(recording().calls.size());
    if (too_many && ran_out_ && !counters_.only_spills) throw GiveWay{};
    MadeStorages made;
    for (NodeId node : cone.calls) {
      ++recomputed_;
      recompute_call(node, cone.reads, made);
    }
    device_memory().forget_existing_peaks_since(existing_peaks);
  }

  void recompute_call(NodeId node, ReadCounts& reads, MadeStorages& made) {
    const Call& call = recording().calls[node.index];
    ScopedPins pins(records_);
    std::vector<at::Tensor> tensors(call.reads.size());
    // all must be resident at once: restoring one can reclaim another
    for (std::size_t k = 0; k < call.reads.size(); ++k) {
      const ArgumentSlot& read = call.reads[k];
      if (!read.value.valid() || is_running_stat(call, read)) continue;
      const ValueId version = tables_.version_of(read.value);
      const auto it = made.find(version.index);
      if (it != made.end()) {
        tensors[k] = over(it->second, read.value);
        continue;
      }
      if (const StorageIndex s = tables_.storage_of(version); s != no_storage) pins.add(s);
      tensors[k] = tensor_of(read.value);
    }
    const std::vector<c10::IValue> results = runner_.run(call, node, tensors);
    for (const ResultSlot& slot : call.results) {
      if (recording().values[slot.value.index].alias_of.valid()) continue;
      const at::Tensor tensor = result_again(call, slot, results, tensors);
      if (tensor.defined()) put(slot.value, tensor.storage(), reads, made);
    }
    for (const ArgumentSlot& read : call.reads) {
      if (!read.value.valid() || is_running_stat(call, read)) continue;
      const auto it = made.find(tables_.version_of(read.value).index);
      if (--reads[tables_.version_of(read.value).index] == 0 && it != made.end()) made.erase(it);
    }
  }

  // Attaches a recomputed result to the user's tensors if their version is this one. Otherwise the
  // result stays for the rest of the batch.
  void put(ValueId value, c10::Storage storage, const ReadCounts& reads, MadeStorages& made) {
    const StorageIndex s = tables_.storage_of(value);
    if (residency_.state(s) == ResidencyState::evicted && tables_.latest_version(s) == value) {
      residency_.attach_bytes(
          s, std::exchange(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(),
                           c10::DataPtr{}));
      listener_.on_restored(s);
      return;
    }
    const auto it = reads.find(value.index);
    const bool is_read_later = it != reads.end() && it->second > 0;
    if (is_read_later && !lineage_.is_available(value)) made[value.index] = std::move(storage);
  }

  Recorder& recorder_;
  const RecordingTables& tables_;
  StorageRecords& records_;
  StorageEvents& events_;
  Residency& residency_;
  Lineage& lineage_;
  CallRunner& runner_;
  GuidedStepCounters& counters_;
  RematerializerListener& listener_;
  const std::string* op_ = nullptr;
  std::int64_t recomputed_ = 0;  // calls outside of any plan
  int nested_ = 0;
  bool ran_out_ = false;    // of memory, in this step
  bool restoring_ = false;  // everything that is evicted is being restored
};

}  // namespace reprise::guided
