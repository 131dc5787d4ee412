#pragma once
// OpNotes records what the user's ops mean for eviction: who read a storage, who may still write
// it, and which values were made from which.
//
//   y = mm(x, w)      x has been read; w is watched for writes; y is rematerializable from x and w
//   custom(x)         an op of another library may keep x beyond its end: x lingers, and stays resident

#include <utility>
#include <vector>

#include <reprise/libtorch/guided/rematerializer.hpp>

namespace reprise::guided {

class OpNotes {
 public:
  OpNotes(Recorder& recorder, StorageEvents& events, Lineage& lineage, CallRunner& runner,
          Rematerializer& rematerializer, RematerializerListener& listener)
      : recorder_(recorder),
        tables_(recorder.tables()),
        records_(recorder.storages()),
        events_(events),
        residency_(events.residency()),
        lineage_(lineage),
        runner_(runner),
        rematerializer_(rematerializer),
        listener_(listener) {}

  /// Without a limit nothing is evicted, so sources are not watched.
  void watch_sources(bool watch) { watches_sources_ = watch; }

  /// Adds the storages that the recorder has registered since the last call.
  void add_new_storages() {
    for (StorageIndex s = events_.look_at_new_storages(); s < records_.size(); ++s)
      if (records_[s].contents.number)  // not worth evicting
        records_[s].use.pinned = records_[s].use.death_is_recorded = true;
  }

  /// The call has run: decides whether its results can be recomputed.
  void note_call(const Call& call, NodeId node) {
    bool reads_what_user_may_write = false;
    for (ValueId v : call.updates) lineage_.note_update(v, node);
    for (const ArgumentSlot& read : call.reads) {
      if (!read.value.valid()) continue;
      const StorageIndex s = tables_.storage_of(read.value);
      if (s != no_storage) {
        StorageRecord::Use& use = records_[s].use;
        reads_what_user_may_write = reads_what_user_may_write || use.user_may_write;
        if (!call.facts->views_only) use.unread = false;
        if (may_linger(call)) linger(s);
      }
      if (is_running_stat(call, read)) continue;
      watch_source(call, s);
      lineage_.note_read(read.value, node);
    }
    if (reads_what_user_may_write) recorder_.tables().forbid_again(node);
    for (const ResultSlot& result : call.results) {
      note_result(call, result, reads_what_user_may_write);
      runner_.note_result(result.value);
    }
    if (call.kind == CallKind::op && call.facts->copies_lazily) note_lazy_copy(call);
  }

  /// An op of another library has the storage, perhaps beyond the op's end.
  void linger(StorageIndex s) {
    records_[s].use.pinned = records_[s].use.lingers = true;
    residency_.writes().stop(s);
  }

  // ── user code has a pointer ────────────────────────────────────────────────────────────────────

  /// The call that made the storage's present version; none if no call of the step did.
  [[nodiscard]] NodeId producer_of_contents(StorageIndex s) const {
    const ValueId latest = tables_.latest_version(s);
    return latest.valid() ? tables_.value(latest).producer : NodeId{};
  }
  /// From now on, user code may write the storage at any time.
  void give_to_user(StorageIndex s) {
    const ValueId latest = tables_.latest_version(s);
    const NodeId producer = producer_of_contents(s);
    // before_overwrite() forgets the readers
    std::vector<NodeId> readers;
    if (latest.valid()) {
      const Lineage::Readers& all = lineage_.readers_of(latest);
      readers.assign(all.begin(), all.end());
    }
    if (latest.valid()) lineage_.end_reproducing(latest);
    rematerializer_.before_overwrite(s);
    if (producer.valid()) recorder_.tables().forbid_again(producer);
    // the version that it read may be overwritten by then
    for (NodeId reader : readers) recorder_.tables().forbid_again(reader);
    records_[s].use.user_may_write = records_[s].use.death_is_recorded = true;
    residency_.writes().stop(s);
  }
  /// User code has written the storage already: throws if an evicted value can only be recomputed
  /// from its former contents.
  void refuse_late_write(StorageIndex s) const {
    const ValueId latest = tables_.latest_version(s);
    if (latest.valid() && lineage_.has_evicted_dependants(latest))
      throw rematerializer_.written_too_late(latest);
  }

  /// The storage may be watched for writes: neither ops nor user code write it at any time.
  [[nodiscard]] bool watchable(StorageIndex s) const {
    const StorageRecord::Use& use = records_[s].use;
    return tables_.is_persistent(s) && !use.user_may_write && !use.lingers;
  }

  /// Whether a release call is recorded when the storage dies now.
  [[nodiscard]] bool records_death_of(StorageIndex s) const {
    return records_[s].use.death_is_recorded || outlives_unread(s) || tables_.is_persistent(s);
  }

 private:
  // No op has read the storage and it is alive: user code may read it at any time.
  [[nodiscard]] bool outlives_unread(StorageIndex s) const {
    if (!records_[s].use.unread) return false;
    const ValueId v = tables_.latest_version(s);
    const NodeId producer = v.valid() ? tables_.value(v).producer : NodeId{};
    return producer.valid() && producer.index + 1 < tables_.calls_seen();
  }

  // The call's results may be evicted and recomputed from this storage, so writes through a pointer
  // are watched from now on. During the step, only pointers from before the step matter, because
  // LibTorch does not report their use.
  void watch_source(const Call& call, StorageIndex s) {
    if (watches_sources_ && !call.facts->views_only && call.repeatable && s != no_storage &&
        watchable(s))
      events_.watch_writes(s);
  }

  void note_result(const Call& call, const ResultSlot& result, bool reads_what_user_may_write) {
    const StorageIndex s = tables_.storage_of(result.value);
    if (s == no_storage) return;
    StorageRecord::Use& use = records_[s].use;
    if (may_linger(call)) linger(s);
    if (call.kind == CallKind::op && call.facts->read_by_host) use.pinned = true;
    if (tables_.value(result.value).alias_of.valid()) return;
    const bool writes_argument = result.from == ResultSlot::From::argument;
    lineage_.note_version(
        call, result,
        call.repeatable && !reads_what_user_may_write && !(writes_argument && use.user_may_write));
    if (writes_argument) residency_.look_at(s);
    use.unread = true;
    use.user_may_fill = call.reads.empty() || (!watches_host() && call.facts->user_may_fill_result);
    if (!lineage_.reproducible(result.value)) use.death_is_recorded = true;
  }

  // Operand and copy share one block, and LibTorch knows the owner: neither is evicted, and nothing
  // is recomputed from them.
  void note_lazy_copy(const Call& call) {
    std::vector<StorageIndex> sharing;
    for (const ArgumentSlot& read : call.reads) sharing.push_back(tables_.storage_of(read.value));
    for (const ResultSlot& result : call.results)
      sharing.push_back(tables_.storage_of(result.value));
    for (const StorageIndex s : sharing) {
      if (s == no_storage) continue;
      residency_.note_shared_block(s);
      listener_.on_user_write(s);
    }
  }

  Recorder& recorder_;
  const RecordingTables& tables_;
  StorageRecords& records_;
  StorageEvents& events_;
  Residency& residency_;
  Lineage& lineage_;
  CallRunner& runner_;
  Rematerializer& rematerializer_;
  RematerializerListener& listener_;
  bool watches_sources_ = true;
};

}  // namespace reprise::guided
