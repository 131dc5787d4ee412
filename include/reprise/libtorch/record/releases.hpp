#pragma once
// Releases adds a release call for a storage that lived longer than its last read. The call says
// how long the storage was live.
//
//   logits kept by the caller, last read by the loss     … backward …  ── logits dies ──▶  reprise::release(logits) before the next op

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <reprise/libtorch/record/recording_tables.hpp>

namespace reprise::recording {

class Releases {
 public:
  explicit Releases(RecordingTables& tables) : tables_(tables) {}

  /// User code kept the storage until now, although no op reads it after its last read.
  void note(StorageIndex s) {
    const bool persistent = tables_.is_persistent(s);
    const ValueId v = persistent ? tables_.contents(s).owner : tables_.latest_version(s);
    if (persistent) {
      for (const Call& call : tables_.recording().calls)
        if (std::ranges::find(call.updates, v) != call.updates.end())
          return;  // an update needs a value that is alive at the end
      tables_.recording().values[v.index].persistent = false;
      tables_.recording().values[v.index].initial = true;
    }
    released_.push_back(v);
  }
  /// Bytes from before the step that no op has read were freed.
  void note(Bytes bytes) {
    if (tables_.recording().calls.empty()) return tables_.lower_base(bytes);
    RecordedValue value;
    value.origin = Origin::captured;
    value.name = "released." + std::to_string(count_++);
    value.bytes = bytes;
    value.initial = true;
    released_.push_back(tables_.add_value(std::move(value)));
  }
  /// Adds release calls for storages that died after the last op.
  void add_calls() {
    for (ValueId v : std::exchange(released_, {})) {
      // the op in which the storage died may have overwritten it first
      const ValueId latest =
          tables_.value(v).initial ? v : tables_.latest_version(tables_.storage_of(v));
      if (latest.valid()) v = latest;
      Call call;
      call.kind = CallKind::release;
      call.reads.push_back({0, -1, v});
      call.phase = tables_.current_phase();
      call.repeatable = false;
      tables_.recording().calls.push_back(std::move(call));
    }
  }

 private:
  RecordingTables& tables_;
  std::vector<ValueId> released_;  // since the last op
  std::size_t count_ = 0;
};

}  // namespace reprise::recording
