#pragma once
// UserAccess finds what user code does to a step's tensors behind the dispatcher: through pointers
// (data_ptr, accessor), and through another tensor over the same memory.
//
//   auto a = mask.accessor<float, 2>();     LibTorch calls the pointer hook: from here on the contents may be the user's
//   a[0][0] = 1;
//   y = x * mask;                           the op reads the mask: what user code wrote becomes a constant of the recording
//
// LibTorch before 2.13 does not report pointer access. A result of a factory (`torch::zeros`) then
// counts as accessed from the start. For a copy or an `*_like` result, a digest is stored. It is
// compared when an op reads the tensor and before an eviction. A tensor that only ops write (a
// dropout's mask) therefore stays evictable. An uninitialised result is filled with 0xa5: recycled
// memory could already hold the bytes that user code is about to write, and the comparison would
// find no write.

#include <cstring>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/libtorch/record/recorder_hooks.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>

namespace reprise::recording {

class UserAccess {
 public:
  UserAccess(RecordingTables& tables, RecorderHooks* hooks, PointerHook on_access)
      : tables_(tables), hooks_(hooks), on_access_(on_access) {}

  // ── the pointer hook ───────────────────────────────────────────────────────────────────────────

  /// Sets LibTorch's pointer hook, which reports pointer access of user code.
  void watch(StorageIndex s) { tables_.records().watch_pointers(s, on_access_); }
  void unwatch(StorageIndex s) { tables_.records().unwatch_pointers(s); }
  void watch(ValueId v) {
    if (const StorageIndex s = tables_.storage_of(v); s != no_storage) watch(s);
  }
  void unwatch(ValueId v) {
    if (const StorageIndex s = tables_.storage_of(v); s != no_storage) unwatch(s);
  }
  /// Watches an op's operands and results, after it has run.
  void watch_again(const Call& call) {
    for (const ArgumentSlot& slot : call.reads) watch(slot.value);
    for (const ResultSlot& slot : call.results) watch(slot.value);
  }
  void unwatch_all() {
    for (StorageIndex s = 0; s < tables_.records().size(); ++s) unwatch(s);
  }

  /// User code has taken a pointer, or is assumed to have one.
  void note_pointer(const c10::StorageImpl* storage) {
    const StorageIndex s = tables_.records().find(storage);
    if (s == no_storage) return;
    tables_.records().forget_pointer_watch(s);
    if (hooks_ != nullptr && hooks_->host_access(s)) return;
    StorageRecord::Contents& known = tables_.contents(s);
    if (!known.persistent && known.made_without_tensors) {
      // `seen` stays empty: fresh memory may already hold the bytes that user code is about to
      // write
      known.pointer_taken = true;
      return;
    }
    const ValueId v = known.views.empty() ? known.owner : known.views.front();
    const RecordedValue& value = tables_.value(v);
    tables_.refuse(
        "the host took a pointer to " +
        (value.producer.valid()
             ? "what node " + std::to_string(value.producer.index) + " (" +
                   tables_.recording().calls[value.producer.index].op_name() + ") made"
             : "'" + value.name() + "'") +
        " in the middle of the step (data_ptr or accessor); what it read or wrote there cannot "
        "be seen");
  }

  // ── what user code has written ─────────────────────────────────────────────────────────────────

  /// Without LibTorch's hook: whether the contents differ from what the last op left.
  [[nodiscard]] bool has_written(StorageIndex s) const {
    const StorageRecords& records = tables_.records();
    if (!records[s].contents.digest || records.emptied(s)) return false;
    const auto storage = records.lock(s);
    return storage && *records[s].contents.digest != digest_of(*storage);
  }
  /// Checks that when an op reads the storage, and before an eviction. A difference is a write of
  /// user code.
  bool find_writes(StorageIndex s) {
    if (!has_written(s)) return false;
    if (hooks_ != nullptr) hooks_->host_wrote(s);
    tables_.contents(s).digest.reset();
    note_pointer(tables_.records().lock(s).get());
    return true;
  }

  /// An op is about to read the storage: bytes that user code wrote through a pointer since the
  /// last op become a constant.
  void record_user_writes(StorageIndex s) {
    if (!tables_.contents(s).pointer_taken) return;
    StorageRecord::Contents& known = tables_.contents(s);
    const auto storage = tables_.records().lock(s);
    if (!storage || storage->nbytes() == 0) return;
    if (!known.seen.empty() &&
        std::memcmp(known.seen.data(), storage->data(), known.seen.size()) == 0)
      return;
    remember(known, *storage);
    CallDraft call;
    call.kind = CallKind::constant;
    call.phase = tables_.current_phase();
    call.set_constant(known.seen);
    const ValueId before = known.views.front();
    call.add_read({0, -1, before});
    RecordedValue value;
    value.geometry = tables_.value(before).geometry;
    value.overwrites = before;
    value.producer = tables_.next_node();
    value.role = Role::constant;
    const ValueId v = tables_.add_value(std::move(value), s);
    call.add_result({ResultSlot::From::argument, 0, -1, v});
    tables_.recording().add(std::move(call));
    known.views.assign(1, v);
  }
  static void remember(StorageRecord::Contents& known, c10::StorageImpl& storage) {
    const auto* bytes = static_cast<const std::byte*>(storage.data());
    known.seen.assign(bytes, bytes + storage.nbytes());
  }

  /// Without LibTorch's hook, after an op has run: results that user code may be about to write.
  void watch_user_fillable(NodeId node) {
    const Call& call = tables_.recording().calls[node.index];
    for (const ResultSlot& slot : call.results) {
      const StorageIndex s = tables_.storage_of(slot.value);
      if (slot.from != ResultSlot::From::returned || s == no_storage ||
          tables_.contents(s).owner != slot.value)
        continue;
      StorageRecord::Contents& known = tables_.contents(s);
      if (!known.made_without_tensors && !call.facts->user_may_fill_result) continue;
      const auto storage = tables_.records().lock(s);
      if (!storage || storage->nbytes() == 0 || storage->device_type() != ThisDevice::type)
        continue;
      if (call.facts->unfilled) std::memset(storage->mutable_data(), 0xa5, storage->nbytes());
      if (!known.made_without_tensors) {
        known.digest = digest_of(*storage);
        continue;
      }
      note_pointer(storage.get());
      if (known.pointer_taken) remember(known, *storage);
    }
  }

  // ── two storages in the same memory ────────────────────────────────────────────────────────────

  /// Storages that share memory with this one, as far as ops have read or written them.
  [[nodiscard]] std::span<const StorageIndex> sharing_memory_with(StorageIndex s) const {
    if (sharing_.empty()) return {};
    const auto it = sharing_.find(s);
    return it == sharing_.end() ? std::span<const StorageIndex>{}
                                : std::span<const StorageIndex>(it->second);
  }
  /// A tensor over the user's own memory (from_blob) may be inside another tensor's block. An op
  /// that writes one tensor then changes the other, and the graph does not say so. A guided step
  /// treats both as one storage; a capture is refused.
  void find_shared_memory(StorageIndex s) {
    const StorageRecords& records = tables_.records();
    if (!records[s].contents.foreign) {
      for (const StorageIndex other : foreign_)
        if (records.overlap(s, other)) note_shared_memory(s, other);
      return;
    }
    for (StorageIndex other = 0; other < records.size(); ++other)
      if (other != s && records.overlap(s, other)) note_shared_memory(s, other);
    foreign_.push_back(s);
  }

 private:
  void note_shared_memory(StorageIndex a, StorageIndex b) {
    tables_.refuse("'" + name_of(a) + "' and '" + name_of(b) + "' lie in the same memory");
    for (const StorageIndex s : {a, b})
      if (!tables_.is_persistent(s) && hooks_ != nullptr)
        static_cast<void>(hooks_->host_access(s));  // made in the step: it stays resident
    sharing_[a].push_back(b);
    sharing_[b].push_back(a);
  }
  [[nodiscard]] std::string name_of(StorageIndex s) const {
    const RecordedValue& owner = tables_.value(tables_.contents(s).owner);
    return owner.producer.valid() ? tables_.recording().calls[owner.producer.index].op_name()
                                  : owner.name();
  }

  RecordingTables& tables_;
  RecorderHooks* hooks_;
  PointerHook on_access_;
  std::vector<StorageIndex> foreign_;  // over memory of the user's own
  std::unordered_map<StorageIndex, std::vector<StorageIndex>> sharing_;  // one memory
};

}  // namespace reprise::recording
