#pragma once
// Who hears of a step's blocks, in tests of what tells: it notes what it hears, and does nothing.

#include <cstdint>
#include <functional>
#include <vector>

#include <reprise/libtorch/residency/tombstone.hpp>

namespace reprise::testing {

struct NotingListener final : residency::BlockListener {
  std::vector<std::uint32_t> freed{};    ///< storages whose blocks were about to be freed
  std::vector<std::uint32_t> written{};  ///< that somebody was about to write through a pointer
  /// Called before the write: it must take the watch away, or the write never happens.
  std::function<void(std::uint32_t)> before_write = [](std::uint32_t) {};
  /// Tombstones that left their storages; ours to delete if `keeps_tombstones`.
  std::vector<residency::Tombstone*> tombstones{};
  std::vector<residency::StorageIndex> emptied_deaths{};
  bool keeps_tombstones = false;

  NotingListener() { cpu::CountingAllocator::listen(this); }
  ~NotingListener() override { cpu::CountingAllocator::unlisten(this); }
  NotingListener(const NotingListener&) = delete;
  NotingListener& operator=(const NotingListener&) = delete;

  bool tombstone_freed(residency::Tombstone& tombstone) override {
    emptied_deaths.push_back(tombstone.storage);
    if (keeps_tombstones) tombstones.push_back(&tombstone);
    return keeps_tombstones;
  }
  void make_room(Bytes) override {}
  bool keep(void*, std::uint32_t storage) override {
    freed.push_back(storage);
    return false;
  }
  Entry try_enter() override { return Entry::entered; }
  void leave() override {}
  void touched(std::uint32_t storage, bool writes) override {
    if (!writes) return;
    written.push_back(storage);
    before_write(storage);
  }
  void was_opened(std::uint32_t, bool) override {}
};

}  // namespace reprise::testing
