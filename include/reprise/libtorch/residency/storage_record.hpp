#pragma once
// A StorageRecord has everything that is known about one storage of a step. StorageRecords has the
// records of all storages that the step has used.
//
//   records[3]   identity   which StorageImpl it is, held weakly
//                contents   what the recorder knows: its owner v7, the values of its current version v9, v10
//                residency  where its bytes are: resident, evicted, spilled, …
//                use        who needs it: pinned, unread, last used by op 12
//
//   StorageIndex s = records.find(tensor);         // 3
//   c10::DataPtr bytes = records.empty(s);         // every tensor over it is now empty
//   records.refill(s, std::move(bytes));           // and now has its bytes again; views follow their storage
//
// A record refers to its storage weakly, so it keeps no memory alive. The weak pointer prevents
// reuse of the address, so an address names one storage until forget() is called.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include <reprise/base/error.hpp>
#include <reprise/base/flat_index.hpp>
#include <reprise/base/ids.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/device/cpu/spill_file.hpp>
#include <reprise/libtorch/torch/pointer_hook.hpp>

namespace reprise::residency {

using StorageIndex = std::uint32_t;
inline constexpr StorageIndex no_storage = ~StorageIndex{0};

/// The place of a storage's bytes.
enum class ResidencyState : std::uint8_t {
  foreign,           ///< of another allocator: never changed
  resident,          ///< under the user's tensors
  orphaned,          ///< the user's tensors have died, the bytes are kept
  evicted,           ///< the user's tensors are alive, without bytes
  spilled,           ///< in the spill file
  orphaned_spilled,  ///< in the spill file, and the user's tensors have died
  dead,              ///< neither tensors nor bytes
};

struct Tombstone;

struct StorageRecord {
  struct Identity {
    c10::weak_intrusive_ptr<c10::StorageImpl> weak;
    c10::StorageImpl* storage;  ///< valid memory until forgotten, a live object only while alive()
    bool pointer_watched = false;
    bool emptied = false;
  };

  /// The recorder's part.
  struct Contents {
    bool persistent = false;  ///< from before the step
    /// the user's own memory (from_blob), which may be freed or changed without notice
    bool foreign = false;
    bool number = false;                ///< wrapped by LibTorch, and alive after its op
    bool made_without_tensors = false;  ///< its contents do not depend on data: a factory's result
    bool pointer_taken = false;         ///< user code has had a pointer to it
    /// if a pointer was taken: the contents when an op last read it; empty before that
    std::vector<std::byte> seen{};
    /// without LibTorch's hook, for storages that user code may write: digest after the last op
    std::optional<std::uint64_t> digest{};
    Bytes bytes{};
    ValueId owner{};
    /// for a parameter or buffer: the tensor itself, for comparisons only
    const c10::TensorImpl* registered = nullptr;
    c10::SmallVector<ValueId, 2> views{};  ///< the values of its current version
  };

  /// The part of Residency (residency.hpp).
  struct Residency {
    ResidencyState state = ResidencyState::foreign;
    Bytes bytes{};
    c10::Storage orphan{};  ///< has the bytes if no tensor of the user's is alive
    SpillFile::Place place{};
    Tombstone* tombstone = nullptr;
    void* data = nullptr;         ///< while resident, or evicted or spilled at its address
    bool spillable = true;        ///< false: the block is too small to keep its address
    bool in_place = false;        ///< evicted or spilled, and the block keeps its address
    bool writes_watched = false;  ///< write_watch.hpp; `data` is valid
  };

  /// The part of a guided step: who needs the storage (guided/).
  struct Use {
    bool pinned = false;          ///< never evicted or spilled
    bool user_may_write = false;  ///< user code may write it at any time
    /// an op of another library has it, and may write it at any time
    bool lingers = false;
    /// when it dies, a release call is recorded: Reprise cannot recompute it, so the plan must know
    /// how long it lives
    bool death_is_recorded = false;
    bool unread = false;  ///< no op has read its data: user code may be about to
    bool user_may_fill =
        false;  ///< and its op reads nothing or leaves it unwritten: user code may write it
    /// an op threw while it wrote: the contents are no value's
    bool corrupt = false;
    std::uint32_t pin_count = 0;   ///< running ops that need it
    std::uint32_t instance = ~0u;  ///< the plan's storage instance in it
    std::uint64_t last_use = 0;    ///< online: the last op that used it
    Microseconds cost{};           ///< online: to materialize it, when last computed
  };

  Identity identity;
  Contents contents{};
  Residency residency{};
  Use use{};
};

class StorageRecords {
 public:
  /// Index of the storage, or no_storage.
  [[nodiscard]] StorageIndex find(const c10::StorageImpl* storage) const {
    const StorageIndex s = index_.find(key_of(storage));
    return s != no_storage && records_[s].identity.storage == storage ? s : no_storage;
  }

  StorageIndex add(const c10::Storage& storage) {
    const auto index = static_cast<StorageIndex>(records_.size());
    index_.assign(key_of(storage.unsafeGetStorageImpl()), index);
    records_.push_back(
        {.identity = {storage.getWeakStorageImpl(), storage.unsafeGetStorageImpl()}});
    return index;
  }

  [[nodiscard]] StorageRecord& operator[](StorageIndex s) { return records_[s]; }
  [[nodiscard]] const StorageRecord& operator[](StorageIndex s) const { return records_[s]; }
  [[nodiscard]] std::size_t size() const { return records_.size(); }
  void reserve(std::size_t storages) {
    records_.reserve(storages);
    index_.reserve(storages);
  }

  /// Keeps the storage alive while it is in scope; null if the storage has died.
  [[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> lock(StorageIndex s) const {
    return records_[s].identity.weak.lock();
  }
  [[nodiscard]] bool alive(StorageIndex s) const {
    return records_[s].identity.weak.use_count() > 0;
  }
  [[nodiscard]] bool emptied(StorageIndex s) const { return records_[s].identity.emptied; }
  /// Whether two storages with bytes share memory.
  [[nodiscard]] bool overlap(StorageIndex a, StorageIndex b) const {
    const auto one = lock(a), other = lock(b);
    if (!one || !other || one->device() != other->device()) return false;
    const auto begin = [](const auto& storage) {
      return reinterpret_cast<std::uintptr_t>(storage->_mutable_data_ptr_no_checks().get());
    };
    if (begin(one) == 0 || begin(other) == 0) return false;
    return begin(one) < begin(other) + other->nbytes() && begin(other) < begin(one) + one->nbytes();
  }

  /// The storage has died: frees its StorageImpl, which is a small block between larger ones.
  void forget(StorageIndex s) {
    records_[s].identity.storage = nullptr;
    records_[s].identity.weak.reset();
  }

  /// Takes the bytes from under every tensor over the storage. The block must be the counting
  /// allocator's. `when_dead` is put in their place: a pointer without data, but perhaps with a
  /// deleter that reports the storage's death.
  [[nodiscard]] c10::DataPtr empty(StorageIndex s,
                                   c10::DataPtr when_dead = {nullptr,
                                                             c10::Device(c10::DeviceType::CPU)}) {
    const auto storage = lock(s);
    if (!storage)
      throw Error(Errc::bad_argument,
                  "storage " + std::to_string(s) + " has died: there is nothing to empty");
    if (emptied(s))
      throw Error(Errc::bad_argument, "storage " + std::to_string(s) + " is empty already");
    c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (!CountingAllocator::owns(data))
      throw Error(Errc::bad_argument,
                  "storage " + std::to_string(s) +
                      " holds memory of another allocator, which is never moved");
    c10::DataPtr taken = std::exchange(data, std::move(when_dead));
    records_[s].identity.emptied = true;
    return taken;
  }

  /// Puts bytes back. If the storage has died meanwhile, they are freed.
  void refill(StorageIndex s, c10::DataPtr&& data) {
    if (!emptied(s))
      throw Error(Errc::bad_argument, "storage " + std::to_string(s) + " is not empty");
    records_[s].identity.emptied = false;
    if (const auto storage = lock(s)) storage->set_data_ptr_noswap(std::move(data));
  }

  /// Another component has put bytes back.
  void note_filled(StorageIndex s) { records_[s].identity.emptied = false; }

  /// Sets LibTorch's pointer hook. `on_access` gets the storage and may not touch its data through
  /// the storage.
  void watch_pointers(StorageIndex s, PointerHook on_access) {
    StorageRecord::Identity& id = records_[s].identity;
    if (id.pointer_watched || id.weak.use_count() == 0) return;
    id.pointer_watched = set_pointer_hook(*id.storage, on_access);
  }
  void unwatch_pointers(StorageIndex s) {
    StorageRecord::Identity& id = records_[s].identity;
    if (std::exchange(id.pointer_watched, false) && id.weak.use_count() > 0)
      clear_pointer_hook(*id.storage);
  }
  /// The hook fires once; LibTorch clears it afterwards.
  void forget_pointer_watch(StorageIndex s) { records_[s].identity.pointer_watched = false; }

 private:
  static_assert(FlatIndex::none == no_storage);
  static std::uint64_t key_of(const c10::StorageImpl* storage) {
    return reinterpret_cast<std::uintptr_t>(storage);
  }

  std::vector<StorageRecord> records_;  // by StorageIndex
  FlatIndex index_;
};

}  // namespace reprise::residency
