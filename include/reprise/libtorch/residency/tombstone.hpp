#pragma once
// A tombstone is in an emptied storage instead of its bytes. Its deleter runs when the storage
// dies, or when user code gives the storage other bytes.

#include <mutex>
#include <string>
#include <utility>

#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/residency/storage_record.hpp>
#include <reprise/libtorch/torch/access_error.hpp>

namespace reprise::residency {

/// Hears what happens to the blocks of a step's storages, on any thread.
struct BlockListener : BlockKeeper, BlockOwner {
  /// The tombstone has left its storage. True if the listener keeps the tombstone and deletes it
  /// deletes it later. Called with ThisDevice::keepers() held.
  virtual bool tombstone_freed(Tombstone& tombstone) = 0;
  /// `bytes` are about to be restored. May free other memory first, or throw.
  virtual void make_room(Bytes bytes) = 0;
};

struct Tombstone {
  BlockListener* listener;  ///< null once the storage has its bytes back, or without a listener
  StorageIndex storage;

  static void on_freed(void* self) {
    auto* tombstone = static_cast<Tombstone*>(self);
    {
      const std::lock_guard lock(ThisDevice::keepers());
      if (tombstone->listener != nullptr && tombstone->listener->tombstone_freed(*tombstone))
        return;
    }
    delete tombstone;
  }
};

/// Storages with a tombstone instead of their bytes. Asking them for a pointer throws.
class EmptiedStorages {
 public:
  EmptiedStorages(StorageRecords& records, BlockListener& listener)
      : records_(records), listener_(listener) {}

  /// The text of a message before and after "'x' was evicted …": what to do about it.
  void explain_errors(std::string before, std::string after) {
    before_ = std::move(before);
    after_ = std::move(after);
  }

  /// Takes the bytes from under every tensor over the storage. `what`: "'x' was evicted".
  [[nodiscard]] c10::DataPtr replace_by_tombstone(StorageIndex s, const std::string& what) {
    const auto storage = records_.lock(s);
    auto* tombstone = new Tombstone{&listener_, s};
    c10::DataPtr bytes = records_.empty(
        s, {nullptr, tombstone, &Tombstone::on_freed, c10::Device(ThisDevice::type)});
    records_[s].residency.tombstone = tombstone;
    set_access_error(*storage, before_ + what + " to stay inside Reprise's budget" + after_);
    return bytes;
  }
  /// Attaches bytes to the storage, which is alive.
  void remove_tombstone(StorageIndex s, c10::DataPtr&& data) {
    const auto storage = records_.lock(s);
    forget_tombstone(s);
    clear_access_error(*storage);
    records_.refill(s, std::move(data));
  }
  /// Detaches the listener: the storage is not dying, or its death is of no interest.
  void forget_tombstone(StorageIndex s) {
    const std::lock_guard lock(ThisDevice::keepers());
    Tombstone*& tombstone = records_[s].residency.tombstone;
    if (tombstone != nullptr) std::exchange(tombstone, nullptr)->listener = nullptr;
  }

 private:
  StorageRecords& records_;
  BlockListener& listener_;
  std::string before_, after_;
};

}  // namespace reprise::residency
