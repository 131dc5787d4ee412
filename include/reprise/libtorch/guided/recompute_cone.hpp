#pragma once
// cone_of() returns the recompute cone of some values: all calls that must run to recompute them,
// each once, in recorded order.
//
//   h = mm(x, w) [node 4]; r = relu(h) [node 5]; both evicted        cone of {r}: calls 4, 5; h is read once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/guided/lineage.hpp>

namespace reprise::guided {

/// Storages that a running call needs must not be reclaimed.
class ScopedPins {
 public:
  explicit ScopedPins(StorageRecords& records) : records_(records) {}
  ~ScopedPins() { release(); }
  ScopedPins(const ScopedPins&) = delete;
  ScopedPins& operator=(const ScopedPins&) = delete;
  void add(StorageIndex s) {
    ++records_[s].use.pin_count;
    pinned_.push_back(s);
  }
  void release() {
    for (StorageIndex s : pinned_) --records_[s].use.pin_count;
    pinned_.clear();
  }

 private:
  StorageRecords& records_;
  std::vector<StorageIndex> pinned_;
};

struct RecordedCone {
  using ReadCounts = std::unordered_map<std::uint32_t, int>;  // by value: remaining reads

  std::vector<NodeId> calls{};
  ReadCounts reads{};
};

/// `pins` receives the orphaned sources. If one of them were reclaimed for one of the values, it
/// would be lost for the others. Throws if a value cannot be recomputed.
[[nodiscard]] inline RecordedCone cone_of(const RecordingTables& tables, const Residency& residency,
                                          const Lineage& lineage, std::vector<ValueId> wanted,
                                          ScopedPins& pins) {
  const Recording& recording = tables.recording();
  RecordedCone cone;
  std::unordered_set<std::uint32_t> seen;
  while (!wanted.empty()) {
    const ValueId version = wanted.back();
    wanted.pop_back();
    if (lineage.is_available(version)) {
      const StorageIndex s = tables.storage_of(version);
      if (s != no_storage && residency.state(s) == ResidencyState::orphaned) pins.add(s);
      continue;
    }
    const NodeId node = recording.values[version.index].producer;
    if (!node.valid() || !recording.calls[node.index].repeatable)
      throw Error(Errc::capture_failed, recording.describe(version) + " cannot be recomputed");
    if (!seen.insert(node.index).second) continue;
    cone.calls.push_back(node);
    for (const ArgumentSlot& read : recording.calls[node.index].reads) {
      if (!read.value.valid() || is_running_stat(recording.calls[node.index], read)) continue;
      const ValueId from = tables.version_of(read.value);
      if (lineage.updated_after(from, node))
        throw Error(Errc::capture_failed, recording.describe(version) +
                                              " cannot be recomputed: " + recording.describe(from) +
                                              " has been overwritten since");
      ++cone.reads[from.index];
      wanted.push_back(from);
    }
  }
  std::ranges::sort(cone.calls);
  return cone;
}

}  // namespace reprise::guided
