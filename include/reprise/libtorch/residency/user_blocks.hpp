#pragma once
// UserBlocks knows the block of each storage, and who is called before the block is freed.
//
//   blocks.look_at(s)      s has a block of the counting allocator: resident; another allocator's: foreign, never touched

#include <cstdint>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/residency/storage_record.hpp>
#include <reprise/libtorch/residency/tombstone.hpp>

namespace reprise::residency {

class UserBlocks {
 public:
  enum class Listening : std::uint8_t {
    on,   ///< a spilled block keeps its address if it can; the listener is called before a free
    off,  ///< every spilled block is freed, and the listener is not called
  };

  UserBlocks(StorageRecords& records, BlockListener& listener, Listening listening)
      : records_(records),
        listener_(listener),
        listens_(listening == Listening::on),
        spills_in_place_(listens_ && ProtectedBlocks::available()) {}

  [[nodiscard]] bool spills_in_place() const { return spills_in_place_; }

  /// Reads the storage's block: a new block, or a block that an op has resized.
  void look_at(StorageIndex s) {
    StorageRecord::Residency& it = records_[s].residency;
    const auto storage = records_.lock(s);
    if (!storage || it.state == ResidencyState::evicted || it.state == ResidencyState::spilled)
      return;
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    const bool ours = CountingAllocator::owns(data);
    it.state = ours ? ResidencyState::resident : ResidencyState::foreign;
    if (!ours) return;
    it.bytes = CountingAllocator::bytes_of(data);
    listen_to(data, s);
  }
  /// The storage has this block, or is about to.
  void listen_to(const c10::DataPtr& block, StorageIndex s) {
    StorageRecord::Residency& it = records_[s].residency;
    it.data = block.get();
    it.spillable = !spills_in_place_ || CountingAllocator::can_spill(block.get());
    if (listens_) CountingAllocator::set_keeper(block, &listener_, s);
  }
  void stop_listening_to(const c10::DataPtr& block) const {
    if (listens_) CountingAllocator::set_keeper(block, nullptr);
  }
  /// Other storages have the block too, and the last of them frees it: the storage counts as
  /// foreign from now on.
  void note_shared(StorageIndex s) {
    StorageRecord::Residency& it = records_[s].residency;
    if (it.state == ResidencyState::resident && it.data != nullptr)
      CountingAllocator::set_keeper(it.data, {});
    it.state = ResidencyState::foreign;
    it.spillable = false;
  }

 private:
  StorageRecords& records_;
  BlockListener& listener_;
  const bool listens_, spills_in_place_;
};

}  // namespace reprise::residency
