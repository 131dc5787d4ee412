#pragma once
// The storages that a step has touched. Each is held weakly: the table never keeps memory alive,
// yet the weak pointer keeps the address from being reused, so that an address names one storage
// until the table is told to forget it.
//
//   StorageIndex s = table.find(tensor);         // 7
//   c10::DataPtr bytes = table.empty(s);         // whoever holds a tensor over it now holds an empty one
//   table.refill(s, std::move(bytes));           // and now a full one again; views follow their storage
//
// Between ops each resident storage can carry a hook that fires when the host asks for a pointer to
// write through (data_ptr, accessor). LibTorch 2.13 has such a hook, older versions do not:
// recorder.hpp says what is done there.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>

#include <reprise/base/error.hpp>
#include <reprise/base/flat_index.hpp>
#include <reprise/base/hash_bytes.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>

namespace reprise {

using StorageIndex = std::uint32_t;
inline constexpr StorageIndex no_storage = ~StorageIndex{0};

/// Whether this LibTorch can tell when the host takes a pointer to a storage.
template <class Impl = c10::StorageImpl>
inline constexpr bool can_watch_host = requires(Impl& storage) {
  storage.has_materializer();
  storage.clear_materializer();
};
/// And whether that is made use of. A test says no, to see what an older LibTorch would.
REPRISE_ONE_PER_PROCESS inline bool& watches_host() {
  static bool watches = can_watch_host<>;
  return watches;
}

/// Of the whole storage, whatever of it a tensor shows.
[[nodiscard]] inline std::uint64_t digest_of(const c10::StorageImpl& storage) {
  const auto* bytes = static_cast<const std::byte*>(
      const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks().get());
  return bytes == nullptr ? storage.nbytes() : hash_bytes({bytes, storage.nbytes()});
}

class StorageTable {
 public:
  using HostAccess = void (*)(c10::StorageImpl*);

  /// Index of the tensor's storage, or no_storage.
  [[nodiscard]] StorageIndex find(const c10::StorageImpl* storage) const {
    const StorageIndex s = index_.find(key_of(storage));
    return s != no_storage && entries_[s].storage == storage ? s : no_storage;
  }

  StorageIndex add(const c10::Storage& storage) {
    const auto index = static_cast<StorageIndex>(entries_.size());
    index_.assign(key_of(storage.unsafeGetStorageImpl()), index);
    entries_.push_back(
        {storage.getWeakStorageImpl(), storage.unsafeGetStorageImpl(), false, false});
    return index;
  }

  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  void reserve(std::size_t storages) {
    entries_.reserve(storages);
    index_.reserve(storages);
  }

  /// A strong pointer while it is in scope; null where the storage has died.
  [[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> lock(StorageIndex s) const {
    return entries_[s].weak.lock();
  }
  [[nodiscard]] bool alive(StorageIndex s) const { return entries_[s].weak.use_count() > 0; }
  [[nodiscard]] bool emptied(StorageIndex s) const { return entries_[s].emptied; }
  /// Whether two storages that have their bytes lie in the same memory.
  [[nodiscard]] bool overlap(StorageIndex a, StorageIndex b) const {
    const auto one = lock(a), other = lock(b);
    if (!one || !other || one->device() != other->device()) return false;
    const auto begin = [](const auto& storage) {
      return reinterpret_cast<std::uintptr_t>(storage->_mutable_data_ptr_no_checks().get());
    };
    if (begin(one) == 0 || begin(other) == 0) return false;
    return begin(one) < begin(other) + other->nbytes() && begin(other) < begin(one) + one->nbytes();
  }

  /// It has died: what little memory it still takes, among larger blocks that want to become one,
  /// is given back.
  void forget(StorageIndex s) {
    entries_[s].storage = nullptr;
    entries_[s].weak.reset();
  }

  /// Takes the bytes out from under every tensor over the storage. Only blocks of the counting
  /// allocator may be taken. `when_dead` is what the storage holds meanwhile: no data, but perhaps
  /// a deleter that tells of its death.
  [[nodiscard]] c10::DataPtr empty(StorageIndex s,
                                   c10::DataPtr when_dead = {nullptr,
                                                             c10::Device(c10::DeviceType::CPU)}) {
    const auto storage = lock(s);
    if (!storage)
      throw Error(Errc::bad_argument,
                  "storage " + std::to_string(s) + " has died: there is nothing to empty");
    if (entries_[s].emptied)
      throw Error(Errc::bad_argument, "storage " + std::to_string(s) + " is empty already");
    c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    if (!CountingAllocator::owns(data))
      throw Error(Errc::bad_argument,
                  "storage " + std::to_string(s) +
                      " holds memory of another allocator, which is never moved");
    c10::DataPtr taken = std::exchange(data, std::move(when_dead));
    entries_[s].emptied = true;
    return taken;
  }

  /// Puts bytes back. Where the storage has died meanwhile, they are released.
  void refill(StorageIndex s, c10::DataPtr&& data) {
    if (!entries_[s].emptied)
      throw Error(Errc::bad_argument, "storage " + std::to_string(s) + " is not empty");
    entries_[s].emptied = false;
    if (const auto storage = lock(s)) storage->set_data_ptr_noswap(std::move(data));
  }

  /// Somebody else has put bytes back.
  void note_filled(StorageIndex s) { entries_[s].emptied = false; }

  /// Asks to be told when the host takes a pointer. `on_access` gets the storage and may not touch
  /// its data through it.
  void watch(StorageIndex s, HostAccess on_access) {
    set_hook(entries_[s], entries_[s].storage, on_access);
  }
  void unwatch(StorageIndex s) { clear_hook(entries_[s], entries_[s].storage); }
  /// The hook fires once; LibTorch clears it afterwards.
  void forget_watch(StorageIndex s) { entries_[s].watched = false; }

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> weak;
    c10::StorageImpl* storage;  // valid memory until forgotten, a live object only while alive()
    bool watched;
    bool emptied;
  };

  static_assert(FlatIndex::none == no_storage);
  static std::uint64_t key_of(const c10::StorageImpl* storage) {
    return reinterpret_cast<std::uintptr_t>(storage);
  }

  // Templates, because a LibTorch without the hook has no such members to name.
  template <class Impl>
  static void set_hook(Entry& entry, Impl* storage, HostAccess on_access) {
    if constexpr (can_watch_host<Impl>) {
      if (!watches_host() || entry.watched || entry.weak.use_count() == 0 ||
          storage->has_materializer())
        return;
      storage->set_materializer(on_access);
      entry.watched = true;
    }
  }
  template <class Impl>
  static void clear_hook(Entry& entry, Impl* storage) {
    if constexpr (can_watch_host<Impl>) {
      if (!std::exchange(entry.watched, false) || entry.weak.use_count() == 0) return;
      storage->clear_materializer();
    }
  }

  std::vector<Entry> entries_;
  FlatIndex index_;
};

}  // namespace reprise
