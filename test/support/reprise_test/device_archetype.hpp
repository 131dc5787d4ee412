#pragma once
// The smallest model of DeviceMemory: what compiles with it asks for no more than the concept does.
// Declared only, so that it needs no LibTorch.

#include <reprise/libtorch/device/interface/device_memory.hpp>

namespace reprise_test {

struct DeviceMemoryArchetype {
  DeviceMemoryArchetype() = delete;

  struct Store {
    struct Place {};
    explicit Store(const std::filesystem::path&);
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    Place write(const void*, std::size_t);
    void read(const Place&, void*);
    void release(const Place&);
  };
  enum class Type { mine };
  static constexpr Type type = Type::mine;
  static constexpr std::size_t header_bytes = 0;

  static reprise::devices::MemoryCounter& counter();
  static bool is_counted();
  static c10::Allocator& allocator();
  static reprise::devices::ThreadHooks& hooks();

  static bool owns(const c10::DataPtr&);
  static reprise::Bytes bytes_of(const c10::DataPtr&);
  static std::uint64_t serial_of(const c10::DataPtr&);
  static bool in_arena(const c10::DataPtr&);

  static std::recursive_mutex& keepers();
  static void listen(reprise::devices::BlockKeeper*);
  static void unlisten(reprise::devices::BlockKeeper*);
  static void set_keeper(void*, reprise::devices::Keeping);
  static reprise::devices::Keeping keeper_of(void*);
  static c10::DataPtr take_over(void*);

  static bool keeps_addresses();
  static bool can_spill(void*);
  static bool spill(void*, reprise::devices::BlockOwner&, std::uint32_t, Store&);
  static bool is_spilled(void*);
  static bool restore(void*);
  static bool evict(void*, reprise::devices::BlockOwner&, std::uint32_t);
  static void fill(void*, c10::DataPtr&&);
  static bool watch_writes(void*, reprise::devices::BlockOwner&, std::uint32_t);
  static void unwatch_writes(void*);
  static std::span<std::byte> protected_part(void*, reprise::Bytes);

  static void begin_step();
  static void end_step();
  static void abandon_step();
  static void release_cached();
  static void stop_caching();
};
static_assert(reprise::devices::DeviceMemory<DeviceMemoryArchetype>);

}  // namespace reprise_test
