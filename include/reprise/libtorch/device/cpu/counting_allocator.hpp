#pragma once
// Memory is counted where it is allocated: including this header puts one counting allocator in the
// place of LibTorch's CPU allocator, before main and for good.
//
//   cpu_memory().live();                       // bytes that LibTorch's CPU tensors hold now, as requested
//   cpu_memory().reset_peak();
//   auto y = torch::relu(x);                   // 4 KiB
//   cpu_memory().peak();                       // live() before + 4096
//
// Every block carries a header in front of it, in the 64 bytes that keep the alignment LibTorch
// asks for:
//
//   ┌──────────────── 64 B ───────────────┬───────────── bytes as requested ─────────────┐
//   │ bytes, serial, keeper               │ what the tensor sees, 64-byte aligned        │
//   └─────────────────────────────────────┴──────────────────────────────────────────────┘
//                                         ▲ data pointer = context of the DataPtr (so raw_allocate works)
//
// The serial tells which blocks are older than a given moment; a keeper is asked before its block
// is freed. What did not come through here (from_blob, mmap) is not counted.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_set>
#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/alignment.h>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/heap_blocks.hpp>
#include <reprise/libtorch/device/cpu/memory_counter.hpp>
#include <reprise/libtorch/device/cpu/page_blocks.hpp>
#include <reprise/libtorch/device/cpu/protected_blocks.hpp>
#include <reprise/libtorch/device/cpu/step_bytes.hpp>

namespace reprise::cpu {

/// Asked before memory is taken, on the thread that takes it. May free other memory first, or
/// throw.
struct MemoryGate {
  virtual ~MemoryGate() = default;
  virtual void before_allocation(Bytes bytes) = 0;
  /// What it has spent on that so far: not part of the op that asked.
  [[nodiscard]] virtual Microseconds time_spent() const = 0;
  /// Memory that has no keeper was given back on this thread.
  virtual void after_release(Bytes /*bytes*/, std::uint64_t /*serial*/) {}
};

/// Asked before a block is freed, on whichever thread does it: the last tensor over it has died.
struct BlockKeeper {
  virtual ~BlockKeeper() = default;
  /// True where the keeper takes the block over; it then belongs to the keeper, and nobody is asked
  /// again.
  virtual bool keep(void* data, std::uint32_t tag) = 0;
};

/// The gate of this thread; none unless a limit is in force.
REPRISE_ONE_PER_PROCESS inline MemoryGate*& memory_gate() {
  thread_local MemoryGate* gate = nullptr;
  return gate;
}

/// Where blocks come from, if not from the system: an arena with planned addresses, or somebody who
/// only takes notes.
struct BlockSource {
  virtual ~BlockSource() = default;
  /// Room for the header and `bytes` behind it, 64-byte aligned, with the number that give_back()
  /// gets; nullptr: from the system.
  virtual std::byte* take(std::size_t bytes, std::uint32_t& number) = 0;
  /// The block is dead. May be called on any thread.
  virtual void give_back(std::uint32_t number) = 0;
  /// It has taken none, and the block that came from the system has this serial.
  virtual void came_from_system(std::uint64_t /*serial*/) {}
  /// A block from the system was freed on the thread whose source this is.
  virtual void freed(std::uint64_t /*serial*/) {}
};

/// Asked by this thread's allocations; none unless a program is running.
REPRISE_ONE_PER_PROCESS inline BlockSource*& block_source() {
  thread_local BlockSource* source = nullptr;
  return source;
}

/// A block that this thread has already, and that its next request of just so many bytes gets:
/// block_takeover.hpp.
struct HandedBlock {
  void* data = nullptr;
  std::size_t bytes = 0;  ///< 0: none
};
REPRISE_ONE_PER_PROCESS inline HandedBlock& handed_block() {
  thread_local HandedBlock handed{};
  return handed;
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    if (HandedBlock& handed = handed_block(); handed.bytes == bytes) {
      handed.bytes = 0;
      cpu_memory().note_beside(static_cast<std::int64_t>(bytes));
      return take_over(handed.data);
    }
    if (MemoryGate* gate = memory_gate())
      gate->before_allocation({static_cast<std::int64_t>(bytes)});
    BlockSource* source = block_source();
    std::uint32_t number = 0;
    std::size_t mapped = 0;
    auto* base = source != nullptr ? source->take(bytes, number) : nullptr;
    if (base == nullptr) {
      source = nullptr;
      base = from_system(bytes + header_bytes, mapped);
    }
    std::byte* data = base + header_bytes;
    if (source != nullptr) cpu_memory().add_spare(-static_cast<std::int64_t>(bytes));
    const std::uint64_t serial = cpu_memory().add(static_cast<std::int64_t>(bytes));
    const StepBytes::Tag made_by = StepBytes::allocated(static_cast<std::int64_t>(bytes));
    new (base) BlockHeader{
        static_cast<std::int64_t>(bytes), serial, nullptr, 0, number, source, mapped, made_by};
    if (BlockSource* notes = block_source(); notes != nullptr && source == nullptr)
      notes->came_from_system(serial);
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t count) const override {
    std::memcpy(to, from, count);
  }

  /// Whether this allocator made the block: only such blocks are ever emptied or moved.
  [[nodiscard]] static bool owns(const c10::DataPtr& data) {
    return data.get_deleter() == &release && data.get() != nullptr;
  }
  /// Whether the block lies in an arena, whose next run writes over it.
  [[nodiscard]] static bool in_arena(const c10::DataPtr& data) {
    return owns(data) && header_of(data.get())->source != nullptr;
  }
  /// Bytes as requested; 0 for what another allocator made.
  [[nodiscard]] static Bytes bytes_of(const c10::DataPtr& data) {
    return owns(data) ? Bytes{header_of(data.get())->bytes} : Bytes{0};
  }
  [[nodiscard]] static std::uint64_t serial_of(const c10::DataPtr& data) {
    return owns(data) ? header_of(data.get())->serial : 0;
  }

  // ── blocks that keep their address (protected_blocks.hpp); only of this allocator's ────────────

  /// Whether the block can be spilled where it lies.
  [[nodiscard]] static bool can_spill(void* data) {
    const BlockHeader* header = header_of(data);
    return header->source == nullptr && ProtectedBlocks::pages_in(data, size_of(header)).bytes > 0;
  }
  [[nodiscard]] static bool spill(void* data, BlockOwner& owner, std::uint32_t tag,
                                  SpillFile& file) {
    BlockHeader* header = header_of(data);
    if (!can_spill(data) ||
        !protected_blocks().spill(data, size_of(header), counted_as(header), owner, tag, file))
      return false;
    return header->is_protected = true;
  }
  [[nodiscard]] static bool evict(void* data, BlockOwner& owner, std::uint32_t tag) {
    BlockHeader* header = header_of(data);
    if (!can_spill(data) ||
        !protected_blocks().evict(data, size_of(header), counted_as(header), owner, tag))
      return false;
    return header->is_protected = true;
  }
  /// What was evicted gets the bytes of another block, which is freed.
  static void fill(void* data, c10::DataPtr&& from) {
    BlockHeader* header = header_of(data);
    protected_blocks().fill(data, size_of(header), from.get());
    from.clear();
    ProtectedBlocks::is_back(size_of(header), counted_as(header));
    note_moved(header, data);
  }
  /// False where it was not spilled, or somebody has touched it since.
  static bool restore(void* data) {
    const BlockHeader* header = header_of(data);
    page_blocks().make_room({header->bytes});
    const bool restored = protected_blocks().restore(data, size_of(header));
    if (restored) note_moved(header, data);
    return restored;
  }
  [[nodiscard]] static bool is_spilled(void* data) {
    return protected_blocks().is_spilled(data, size_of(header_of(data)));
  }
  /// Of its whole pages only.
  static bool watch_writes(void* data, BlockOwner& owner, std::uint32_t tag) {
    BlockHeader* header = header_of(data);
    if (header->source != nullptr ||
        !protected_blocks().watch_writes(data, size_of(header), owner, tag))
      return false;
    return header->is_protected = true;
  }
  static void unwatch_writes(void* data) {
    protected_blocks().unwatch_writes(data, size_of(header_of(data)));
  }

  /// From now on `keeper` is asked before this block is freed; nobody where it is null. Only for
  /// blocks that this allocator made.
  static void set_keeper(const c10::DataPtr& data, BlockKeeper* keeper, std::uint32_t tag = 0) {
    set_keeper(data.get(), {keeper, tag});
  }
  /// Who is asked, and what it calls the block.
  struct Keeping {
    BlockKeeper* keeper = nullptr;
    std::uint32_t tag = 0;
  };
  static void set_keeper(void* data, Keeping keeping) {
    const std::lock_guard lock(keepers());
    header_of(data)->keeper = keeping.keeper;
    header_of(data)->tag = keeping.tag;
  }
  [[nodiscard]] static Keeping keeper_of(void* data) {
    const std::lock_guard lock(keepers());
    return {header_of(data)->keeper, header_of(data)->tag};
  }
  [[nodiscard]] static Keeping keeper_of(const c10::DataPtr& data) { return keeper_of(data.get()); }
  /// A block that was kept, as something that frees it.
  [[nodiscard]] static c10::DataPtr take_over(void* data) {
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
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

  /// What stands in front of each block.
  static constexpr std::size_t header_bytes = c10::gAlignment;

 private:
  struct BlockHeader {
    std::int64_t bytes;
    std::uint64_t serial;
    BlockKeeper* keeper = nullptr;
    std::uint32_t tag = 0;
    std::uint32_t number = 0;       // of `source`
    BlockSource* source = nullptr;  // where it lies in an arena
    std::size_t mapped = 0;         // bytes of its own pages; 0 where it lies in the heap
    StepBytes::Tag made_by{};       // the step that counts it
    bool is_protected = false;      // or was: protected_blocks.hpp knows
  };
  static_assert(sizeof(BlockHeader) <= header_bytes);

  REPRISE_ONE_PER_PROCESS static std::unordered_set<BlockKeeper*>& listening() {
    static auto& all = *new std::unordered_set<BlockKeeper*>;
    return all;
  }

  static void note_moved(const BlockHeader* header, void* data) {
    if (header->mapped == 0) return;
    const ProtectedBlocks::Pages pages = ProtectedBlocks::pages_in(data, size_of(header));
    page_blocks().note_moved(pages.begin, pages.bytes);
  }
  static ProtectedBlocks::Counted counted_as(const BlockHeader* header) {
    return {header->made_by, header->serial};
  }
  static std::size_t size_of(const BlockHeader* header) {
    return static_cast<std::size_t>(header->bytes);
  }
  static BlockHeader* header_of(void* data) {
    return reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(data) - header_bytes);
  }

  static std::byte* from_system(std::size_t bytes, std::size_t& mapped) {
    if (std::byte* pages = page_blocks().take(bytes, mapped)) return pages;
    return HeapBlocks::take(bytes);
  }

  static void to_system(BlockHeader* header, bool has_pages) {
    if (header->mapped > 0)
      page_blocks().give(reinterpret_cast<std::byte*>(header), header->mapped, has_pages);
    else HeapBlocks::give(reinterpret_cast<std::byte*>(header), size_of(header) + header_bytes);
  }

  static bool kept(BlockHeader* header, void* data) {
    // most blocks, without taking the lock; only their own step's thread sets one
    if (header->keeper == nullptr) return false;
    const std::lock_guard lock(keepers());
    BlockKeeper* keeper = std::exchange(header->keeper, nullptr);
    return keeper != nullptr && listening().contains(keeper) && keeper->keep(data, header->tag);
  }

  REPRISE_ONE_PER_PROCESS static void release(void* data) {
    if (data == nullptr) return;
    BlockHeader* header = header_of(data);
    const bool known = header->keeper != nullptr;
    if (kept(header, data)) return;
    const Bytes bytes{header->bytes};
    const std::uint64_t serial = header->serial;
    const bool spilled = header->is_protected && protected_blocks().forget(data, size_of(header));
    if (!spilled) {
      cpu_memory().remove(bytes.count);
      StepBytes::freed(header->made_by, serial, bytes.count);
    }
    c10::profiledCPUMemoryReporter().Delete(data);
    if (BlockSource* source = header->source) {
      cpu_memory().add_spare(bytes.count);
      source->give_back(header->number);
    } else {
      to_system(header, !spilled);
      if (BlockSource* current = block_source()) current->freed(serial);
    }
    if (MemoryGate* gate = memory_gate(); gate != nullptr && !known)
      gate->after_release(bytes, serial);
  }
};

/// The one instance. It is never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline CountingAllocator& counting_allocator() {
  static CountingAllocator& allocator = *new CountingAllocator;
  return allocator;
}

/// Whether LibTorch allocates through us; false where another library has put its own allocator in
/// our place.
[[nodiscard]] inline bool memory_is_counted() {
  return c10::GetCPUAllocator() == &counting_allocator();
}

// LibTorch keeps the allocator of the highest priority; its own has 0.
inline constexpr std::uint8_t allocator_priority = 10;
REPRISE_ONE_PER_PROCESS inline const bool allocator_installed = [] {
  c10::SetCPUAllocator(&counting_allocator(), allocator_priority);
  return true;
}();

}  // namespace reprise::cpu

namespace reprise {
using cpu::counting_allocator;
using cpu::memory_is_counted;
}  // namespace reprise
