#pragma once
// A gradient sum overwrites one of its summands (gradient_sums.hpp) while the user's own op runs:
// the allocator returns the summand's block for the op's result.
//
//   takeover.begin(summand);     c = add(a, b):  c's block is b's;  b is evicted, as it could be recomputed
//   takeover.end(result);

#include <optional>
#include <utility>

#include <reprise/libtorch/device/block_donation.hpp>
#include <reprise/libtorch/guided/lineage.hpp>
#include <reprise/libtorch/record/recorder.hpp>

namespace reprise::guided {

class SummandDonation {
 public:
  SummandDonation(Recorder& recorder, Residency& residency, const Lineage& lineage)
      : recorder_(recorder), residency_(residency), lineage_(lineage) {}

  /// The op is about to run. Only for a summand that can be recomputed, because a tensor may still
  /// refer to it.
  void begin(ValueId summand) {
    const RecordingTables& tables = recorder_.tables();
    const StorageIndex s = tables.storage_of(summand);
    if (s == no_storage || residency_.state(s) != ResidencyState::resident ||
        residency_.records()[s].use.pinned ||
        !lineage_.rematerializable(tables.latest_version(s)) ||
        recorder_.user_access().has_written(s))
      return;
    c10::Storage operand = residency_.memory_of(s);
    if (!operand ||
        !ThisDevice::owns(operand.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks()))
      return;
    storage_ = s;
    takeover_.emplace(std::move(operand));
  }
  /// The op has run, and its result is known.
  void end(const at::Tensor& result) {
    if (!takeover_) return;
    if (takeover_->taken_by(result)) {
      const RecordingTables& tables = recorder_.tables();
      takeover_->leave(residency_.hand_over(
          storage_, tables.recording().describe(tables.latest_version(storage_))));
    }
    takeover_.reset();
  }
  /// The op threw or never ended. It may have overwritten the summand.
  void undo() {
    if (!takeover_) return;
    if (takeover_->taken()) {
      StorageRecord::Use& use = residency_.records()[storage_].use;
      use.corrupt = use.pinned = true;
    }
    takeover_.reset();
  }
  [[nodiscard]] bool is_on() const { return takeover_.has_value(); }

 private:
  Recorder& recorder_;
  Residency& residency_;
  const Lineage& lineage_;
  std::optional<BlockDonation> takeover_;  // while such an op runs
  StorageIndex storage_ = no_storage;
};

}  // namespace reprise::guided
