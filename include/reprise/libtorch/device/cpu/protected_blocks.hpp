#pragma once
// A block can lose its memory and keep its address: whoever touches it meanwhile, through whatever
// pointer, waits in a signal handler until the bytes are there again.
//
//   spill(p, 64 KiB)       header│ edge │ whole pages: in the file, no memory, no access │ edge       p stays p
//   p[20000]               faults; the owner restores the block (or it is read back here), and the read goes on: what eager would read
//   watch_writes(p, …)     the pages can be read; the first write to them is told to the owner before it happens
//
// Only whole pages inside of the block are protected: its edges share their pages with the
// allocator's header and with neighbours. They keep their memory. A block is filled elsewhere and
// put in its place by moving pages, so that no thread sees it half filled.
//
// The owner is told in the middle of the code that touched the block (fault_handler.hpp), and may
// run ops. Elsewhere than on Linux nothing can be protected, and every call here says so.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <reprise/base/one_per_process.hpp>
#include <reprise/libtorch/device/cpu/fault_handler.hpp>
#include <reprise/libtorch/device/cpu/memory_counter.hpp>
#include <reprise/libtorch/device/cpu/page_protection.hpp>
#include <reprise/libtorch/device/cpu/spill_file.hpp>
#include <reprise/libtorch/device/interface/block_roles.hpp>
#include <reprise/libtorch/device/interface/step_bytes.hpp>

namespace reprise::cpu {

class ProtectedBlocks : PageProtection {
 public:
  using PageProtection::available;
  using PageProtection::Pages;
  using PageProtection::pages_in;

  /// Whose the bytes of a block are, as its header says.
  struct Counted {
    StepBytes::Tag made_by{};
    std::uint64_t serial = 0;
  };
  /// The bytes of a block are no longer live, or live again.
  static void goes(std::size_t bytes, Counted counted) {
    const auto count = static_cast<std::int64_t>(bytes);
    cpu_memory().remove(count);
    StepBytes::freed(counted.made_by, counted.serial, count);
    cpu_memory().add_absent({count});
  }
  static void is_back(std::size_t bytes, Counted counted) {
    const auto count = static_cast<std::int64_t>(bytes);
    cpu_memory().remove_absent({count});
    cpu_memory().restore(count);
    StepBytes::restored(counted.made_by, counted.serial, count);
  }

  /// Writes the whole pages to the file and gives their memory back; `bytes`, those of the block,
  /// are no longer live. False where the system does not let it: the block is as it was. Throws
  /// where the file is full.
  [[nodiscard]] bool spill(void* data, std::size_t bytes, Counted counted, BlockOwner& owner,
                           std::uint32_t tag, SpillFile& file) {
    const Pages pages = pages_in(data, bytes);
    if (pages.bytes == 0) return false;
    install_handler();
    const std::lock_guard lock(guard_);
    const auto known = blocks_.find(pages.begin);
    const bool watched = known != blocks_.end() && known->second.watched;
    const int open = watched ? readable : writable;
    // nobody writes to it while it is read
    if (!watched && !protect(pages, readable)) return false;
    Block block{pages.bytes, bytes, counted, &owner, tag, watched, false, &file, {}};
    try {
      block.place = file.write(pages.begin, pages.bytes);
    } catch (...) {
      protect(pages, open);
      throw;
    }
    // too many areas; or somebody has locked it into memory
    if (!protect(pages, nothing) || !give_memory_back(pages)) {
      protect(pages, open);
      file.release(block.place);
      return false;
    }
    blocks_.insert_or_assign(pages.begin, block);
    goes(bytes, counted);
    return true;
  }

  /// Gives the memory of the whole pages back, with no copy of what they held: the owner fills them
  /// again. Accounting as in spill().
  [[nodiscard]] bool evict(void* data, std::size_t bytes, Counted counted, BlockOwner& owner,
                           std::uint32_t tag) {
    const Pages pages = pages_in(data, bytes);
    if (pages.bytes == 0) return false;
    install_handler();
    const std::lock_guard lock(guard_);
    if (blocks_.contains(pages.begin)) return false;
    if (!protect(pages, nothing) || !give_memory_back(pages)) {
      protect(pages, writable);
      return false;
    }
    blocks_.insert_or_assign(
        pages.begin, Block{pages.bytes, bytes, counted, &owner, tag, false, true, nullptr, {}});
    goes(bytes, counted);
    return true;
  }
  /// Puts the bytes of another block of this size in the place of what was evicted. That they are
  /// live again is the caller's to count, who frees the other block first.
  void fill(void* data, std::size_t bytes, const void* from) {
    const std::lock_guard lock(guard_);
    const auto it = blocks_.find(pages_in(data, bytes).begin);
    if (it == blocks_.end() || !it->second.evicted) return;
    const auto* source =
        static_cast<const std::byte*>(from) + (it->first - static_cast<std::byte*>(data));
    put_back(it, [&](std::byte* to) { std::memcpy(to, source, it->second.bytes); });
    ++opened_;
    blocks_.erase(it);
  }

  /// Reads a spilled block back: its bytes are live again. False where it was not spilled, or is
  /// back already.
  bool restore(void* data, std::size_t bytes) {
    const std::lock_guard lock(guard_);
    const auto it = blocks_.find(pages_in(data, bytes).begin);
    if (it == blocks_.end() || it->second.file == nullptr) return false;
    read_back(it);
    return true;
  }
  [[nodiscard]] bool is_spilled(void* data, std::size_t bytes) {
    const std::lock_guard lock(guard_);
    const auto it = blocks_.find(pages_in(data, bytes).begin);
    return it != blocks_.end() && it->second.file != nullptr;
  }

  /// The owner is told before somebody writes to the whole pages of the block. False where the
  /// system does not let it.
  [[nodiscard]] bool watch_writes(void* data, std::size_t bytes, BlockOwner& owner,
                                  std::uint32_t tag) {
    const Pages pages = pages_in(data, bytes);
    if (pages.bytes == 0) return false;
    install_handler();
    const std::lock_guard lock(guard_);
    const auto known = blocks_.find(pages.begin);
    if (known != blocks_.end()) {
      known->second.watched = true;
      return true;
    }
    if (!protect(pages, readable)) {
      protect(pages, writable);
      return false;
    }
    blocks_.insert_or_assign(pages.begin,
                             Block{pages.bytes, bytes, {}, &owner, tag, true, false, nullptr, {}});
    return true;
  }
  void unwatch_writes(void* data, std::size_t bytes) {
    const std::lock_guard lock(guard_);
    const auto it = blocks_.find(pages_in(data, bytes).begin);
    if (it == blocks_.end()) return;
    it->second.watched = false;
    if (it->second.file == nullptr) open(it);
  }

  /// The block is about to be freed. True where it was spilled or evicted: its bytes were not live.
  bool forget(void* data, std::size_t bytes) {
    const std::lock_guard lock(guard_);
    const auto it = blocks_.find(pages_in(data, bytes).begin);
    if (it == blocks_.end()) return false;
    const bool spilled = it->second.file != nullptr, away = spilled || it->second.evicted;
    if (spilled) it->second.file->release(it->second.place);
    if (away) cpu_memory().remove_absent({static_cast<std::int64_t>(bytes)});
    open(it);
    return away;
  }

  /// What is protected just now.
  [[nodiscard]] std::size_t size() {
    const std::lock_guard lock(guard_);
    return blocks_.size();
  }

 private:
  struct Block {
    std::size_t bytes = 0;  ///< of the whole pages
    std::size_t all = 0;    ///< of the block
    Counted counted{};
    BlockOwner* owner = nullptr;
    std::uint32_t tag = 0;
    bool watched = false;
    bool evicted = false;       ///< and nobody but the owner knows what it held
    SpillFile* file = nullptr;  ///< where the pages are, if they are not in memory
    SpillFile::Place place{};
  };
  using Blocks = std::map<std::byte*, Block>;  // by the first whole page

  static void put_back(Blocks::iterator it, const auto& fill) {
    const Block& block = it->second;
    refill({it->first, block.bytes}, block.watched ? readable : writable, fill);
  }

  void read_back(Blocks::iterator it) {
    Block& block = it->second;
    put_back(it, [&](std::byte* to) { block.file->read(block.place, to); });
    block.file->release(block.place);
    block.file = nullptr;
    ++opened_;
    is_back(block.all, block.counted);
    if (!block.watched) blocks_.erase(it);
  }

  void open(Blocks::iterator it) {
    protect({it->first, it->second.bytes}, writable);
    ++opened_;
    blocks_.erase(it);
  }

  // ── faults ─────────────────────────────────────────────────────────────────────────────────────

  enum class Outcome : std::uint8_t { again, not_ours };

  Blocks::iterator find(const std::byte* address) {
    auto it = blocks_.upper_bound(const_cast<std::byte*>(address));
    if (it == blocks_.begin()) return blocks_.end();
    --it;
    return address < it->first + it->second.bytes ? it : blocks_.end();
  }
  [[nodiscard]] static bool is_open(const Block& block, bool writes) {
    return block.file == nullptr && !block.evicted && !(writes && block.watched);
  }

  // Whether the access is to be tried again.
  Outcome handle(std::byte* address, bool writes) {
    for (int waits = 0;; ++waits) {
      BlockOwner* owner = nullptr;
      std::uint32_t tag = 0;
      {
        const std::lock_guard lock(guard_);
        const auto it = find(address);
        if (it == blocks_.end() || is_open(it->second, writes)) return opened_meanwhile(address);
        owner = it->second.owner;
        tag = it->second.tag;
        // with the lock held, under which an owner goes
        const BlockOwner::Entry entry = owner->try_enter();
        if (entry != BlockOwner::Entry::entered) {
          const int patience = it->second.evicted ? 20 * most_waits : most_waits;
          const bool go_on = entry == BlockOwner::Entry::never || waits > patience;
          if (go_on && !open_without_owner(it, writes)) return Outcome::not_ours;
          if (go_on) return Outcome::again;
          owner = nullptr;
        }
      }
      if (owner == nullptr) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        continue;
      }
      owner->touched(tag, writes);
      owner->leave();
      const std::lock_guard lock(guard_);
      const auto it = find(address);
      if (it == blocks_.end() || is_open(it->second, writes)) return Outcome::again;
      std::fputs("Reprise: a tensor cannot be brought back for the pointer that is used here\n",
                 stderr);
      return Outcome::not_ours;
    }
  }

  bool open_without_owner(Blocks::iterator it, bool writes) {
    BlockOwner& owner = *it->second.owner;
    const std::uint32_t tag = it->second.tag;
    if (it->second.evicted) {
      std::fputs(
          "Reprise: call step.pin(tensor) first: a thread uses a pointer to a tensor that is "
          "evicted, and the op that runs waits for it\n",
          stderr);
      return false;
    }
    if (writes) it->second.watched = false;
    try {
      if (it->second.file != nullptr) read_back(it);
      else open(it);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "Reprise: %s\n", error.what());
      return false;
    }
    owner.was_opened(tag, writes);
    return true;
  }

  // Another thread may have opened the block between the fault and now: then the access is tried
  // once more.
  Outcome opened_meanwhile(const std::byte* address) {
    thread_local const std::byte* last = nullptr;
    thread_local std::uint64_t opened = 0;
    if (last == address && opened == opened_) return Outcome::not_ours;
    last = address;
    opened = opened_;
    return Outcome::again;
  }

  static void install_handler();

  // of 50 us and more: whoever holds the owner longer waits for this thread
  static constexpr int most_waits = 40000;

  // held for a moment, or while a block is written or read; nobody waits for an owner with it in
  // hand
  std::mutex guard_;
  Blocks blocks_;
  std::uint64_t opened_ = 0;  // how often a block was opened
};

/// Never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline ProtectedBlocks& protected_blocks() {
  static auto& blocks = *new ProtectedBlocks;
  return blocks;
}

// Installed with the first block that is protected.
inline void ProtectedBlocks::install_handler() {
  FaultHandler::install([](std::byte* address, bool writes) {
    return protected_blocks().handle(address, writes) == Outcome::again;
  });
}

}  // namespace reprise::cpu
