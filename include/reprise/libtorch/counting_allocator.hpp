#pragma once
// Memory is counted where it is allocated: including this header puts one counting allocator in the place of LibTorch's
// CPU allocator, before main and for good.
//
//   cpu_memory().live();                       // bytes that LibTorch's CPU tensors hold now, as requested
//   cpu_memory().reset_peak();
//   auto y = torch::relu(x);                   // 4 KiB
//   cpu_memory().peak();                       // live() before + 4096
//
// Every block carries a header in front of it, in the 64 bytes that keep the alignment LibTorch asks for:
//
//   ┌──────────────── 64 B ───────────────┬───────────── bytes as requested ─────────────┐
//   │ bytes, serial                       │ what the tensor sees, 64-byte aligned        │
//   └─────────────────────────────────────┴──────────────────────────────────────────────┘
//                                         ▲ data pointer = context of the DataPtr (so raw_allocate works)
//
// The serial tells which blocks are older than a given moment. What did not come through here (from_blob, mmap) is not counted.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <c10/core/alignment.h>
#include <c10/core/impl/alloc_cpu.h>

#include <reprise/units.hpp>

// State that must exist once in a process, however many shared objects include the headers and hide their symbols.
#if defined(__GNUC__)
#define REPRISE_ONE_PER_PROCESS [[gnu::visibility("default")]]
#else
#define REPRISE_ONE_PER_PROCESS
#endif

namespace reprise {

/// Bytes held through one allocator: now, and at most since the last reset. What is moved out of memory for a while (see
/// memory_limit.hpp) is not held, but it exists: existing() is what would be held without a limit.
class MemoryCounter {
 public:
  [[nodiscard]] Bytes live() const { return {live_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] Bytes existing() const { return {live_.load(std::memory_order_relaxed) + out_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] Bytes peak() const { return {peak_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] Bytes existing_peak() const { return {existing_peak_.load(std::memory_order_relaxed)}; }
  void reset_peak() {
    peak_.store(live().count, std::memory_order_relaxed);
    existing_peak_.store(existing().count, std::memory_order_relaxed);
  }

  /// A window is one op: what existed at most while it ran shows its workspace. Opening one does not touch peak().
  void open_window() { window_.store(existing().count, std::memory_order_relaxed); }
  [[nodiscard]] Bytes window_peak() const { return {window_.load(std::memory_order_relaxed)}; }

  /// Numbers blocks in the order in which they were allocated.
  [[nodiscard]] std::uint64_t serial() const { return serial_.load(std::memory_order_relaxed); }

  std::uint64_t add(std::int64_t bytes) {
    const std::int64_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const std::int64_t exists = now + out_.load(std::memory_order_relaxed);
    raise(peak_, now);
    raise(existing_peak_, exists);
    raise(window_, exists);
    return serial_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  void remove(std::int64_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// So many bytes are moved out (negative: are back, or have died out there).
  void move_out(std::int64_t bytes) { out_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  static void raise(std::atomic<std::int64_t>& most, std::int64_t now) {
    std::int64_t seen = most.load(std::memory_order_relaxed);
    while (seen < now && !most.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }

  std::atomic<std::int64_t> live_{0}, out_{0}, peak_{0}, existing_peak_{0}, window_{0};
  std::atomic<std::uint64_t> serial_{0};
};

/// What LibTorch's CPU allocator holds in this process.
REPRISE_ONE_PER_PROCESS inline MemoryCounter& cpu_memory() {
  static MemoryCounter counter;
  return counter;
}

/// Asked before memory is taken, on the thread that takes it. May free other memory first, or throw.
struct MemoryGate {
  virtual ~MemoryGate() = default;
  virtual void before_allocation(Bytes bytes) = 0;
  /// What it has spent on that so far: not part of the op that asked.
  [[nodiscard]] virtual Microseconds time_spent() const = 0;
};

/// The gate of this thread; none unless a limit is in force.
REPRISE_ONE_PER_PROCESS inline MemoryGate*& memory_gate() {
  thread_local MemoryGate* gate = nullptr;
  return gate;
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    if (MemoryGate* gate = memory_gate()) gate->before_allocation({static_cast<std::int64_t>(bytes)});
    auto* base = static_cast<std::byte*>(c10::alloc_cpu(bytes + header_bytes));
    std::byte* data = base + header_bytes;
    const std::uint64_t serial = cpu_memory().add(static_cast<std::int64_t>(bytes));
    new (base) BlockHeader{static_cast<std::int64_t>(bytes), serial};
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }

  /// Whether this allocator made the block: only such blocks are ever emptied or moved.
  [[nodiscard]] static bool owns(const c10::DataPtr& data) { return data.get_deleter() == &release && data.get() != nullptr; }
  /// Bytes as requested; 0 for what another allocator made.
  [[nodiscard]] static Bytes bytes_of(const c10::DataPtr& data) { return owns(data) ? Bytes{header_of(data.get())->bytes} : Bytes{0}; }
  [[nodiscard]] static std::uint64_t serial_of(const c10::DataPtr& data) { return owns(data) ? header_of(data.get())->serial : 0; }

 private:
  struct BlockHeader {
    std::int64_t bytes;
    std::uint64_t serial;
  };
  static constexpr std::size_t header_bytes = c10::gAlignment;
  static_assert(sizeof(BlockHeader) <= header_bytes);

  static BlockHeader* header_of(void* data) { return reinterpret_cast<BlockHeader*>(static_cast<std::byte*>(data) - header_bytes); }

  REPRISE_ONE_PER_PROCESS static void release(void* data) {
    if (data == nullptr) return;
    BlockHeader* header = header_of(data);
    cpu_memory().remove(header->bytes);
    c10::profiledCPUMemoryReporter().Delete(data);
    c10::free_cpu(header);
  }
};

/// The one instance. It is never destroyed: tensors may outlive every static object.
REPRISE_ONE_PER_PROCESS inline CountingAllocator& counting_allocator() {
  static CountingAllocator& allocator = *new CountingAllocator;
  return allocator;
}

/// Whether LibTorch allocates through us; false where another library has put its own allocator in our place.
[[nodiscard]] inline bool memory_is_counted() { return c10::GetCPUAllocator() == &counting_allocator(); }

namespace detail {
// LibTorch keeps the allocator of the highest priority; its own has 0.
inline constexpr std::uint8_t allocator_priority = 10;
REPRISE_ONE_PER_PROCESS inline const bool allocator_installed = [] {
  c10::SetCPUAllocator(&counting_allocator(), allocator_priority);
  return true;
}();
}  // namespace detail

}  // namespace reprise
