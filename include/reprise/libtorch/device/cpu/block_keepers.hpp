#pragma once
// Who keeps which block of the CPU's, and is asked before it is freed.
//
//   BlockKeepers::listen(&keeper);
//   BlockKeepers::set_keeper(data, {&keeper, 3});      // the last tensor over it dies: keeper.keep(data, 3)
//   BlockKeepers::unlisten(&keeper);                   // never asked again, whichever headers name it

#include <mutex>
#include <unordered_set>
#include <utility>

#include <reprise/base/one_per_process.hpp>
#include <reprise/libtorch/device/cpu/block_header.hpp>

namespace reprise::cpu {

class BlockKeepers {
 public:
  /// From now on this keeper is asked before the block is freed; nobody where it is null. Only for
  /// blocks that the counting allocator made.
  static void set_keeper(void* data, Keeping keeping) {
    const std::lock_guard lock(keepers());
    BlockHeader* header = BlockHeader::of(data);
    header->keeper = keeping.keeper;
    header->tag = keeping.tag;
  }
  [[nodiscard]] static Keeping keeper_of(void* data) {
    const std::lock_guard lock(keepers());
    const BlockHeader* header = BlockHeader::of(data);
    return {header->keeper, header->tag};
  }
  /// Held while a keeper is asked, and by whoever ends one.
  REPRISE_ONE_PER_PROCESS static std::recursive_mutex& keepers() {
    static auto& guard = *new std::recursive_mutex;
    return guard;
  }

  /// Keepers that may still be asked: one whose step is over may stand in the header of a block
  /// that is dying on another thread.
  static void listen(BlockKeeper* keeper) {
    const std::lock_guard lock(keepers());
    listening().insert(keeper);
  }
  static void unlisten(BlockKeeper* keeper) {
    const std::lock_guard lock(keepers());
    listening().erase(keeper);
  }

  /// Asks before a block is freed: whether somebody keeps it.
  [[nodiscard]] static bool kept(void* data) {
    BlockHeader* header = BlockHeader::of(data);
    // most blocks, without taking the lock; only their own step's thread sets one
    if (header->keeper == nullptr) return false;
    const std::lock_guard lock(keepers());
    BlockKeeper* keeper = std::exchange(header->keeper, nullptr);
    return keeper != nullptr && listening().contains(keeper) && keeper->keep(data, header->tag);
  }

 private:
  REPRISE_ONE_PER_PROCESS static std::unordered_set<BlockKeeper*>& listening() {
    static auto& all = *new std::unordered_set<BlockKeeper*>;
    return all;
  }
};

}  // namespace reprise::cpu
