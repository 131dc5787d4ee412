#pragma once
// What the engine asks of a device's memory. One type for a device, with static members only: the
// allocator that LibTorch has for a device is one for the process, and so is what is known of its
// blocks.
//
//   struct MyMemory {                                          libtorch/device/<name>/, docs/devices.md
//     static MemoryCounter& counter();
//     static bool owns(const c10::DataPtr&);
//     …
//   };
//   static_assert(is_device_memory<MyMemory>());               one line says what is missing
//
// The model is cpu/cpu_memory.hpp. device.hpp names the device that the engine runs on.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <utility>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/interface/block_roles.hpp>

namespace c10 {
class DataPtr;
struct Allocator;
}  // namespace c10

namespace reprise::devices {

class MemoryCounter;

namespace device_memory_requirement {
template <class D>
concept type = requires {
  static_cast<int>(D::type);
};
template <class D>
concept counts = requires {
  { D::counter() } -> std::same_as<MemoryCounter&>;
  { D::is_counted() } -> std::same_as<bool>;
};
template <class D>
concept allocates = requires {
  { D::allocator() } -> std::same_as<c10::Allocator&>;
  { D::header_bytes } -> std::convertible_to<std::size_t>;
};
template <class D>
concept hooks = requires {
  { D::hooks() } -> std::same_as<ThreadHooks&>;
};
template <class D>
concept block_facts = requires(const c10::DataPtr& block) {
  { D::owns(block) } -> std::same_as<bool>;
  { D::bytes_of(block) } -> std::same_as<Bytes>;
  { D::serial_of(block) } -> std::same_as<std::uint64_t>;
  { D::in_arena(block) } -> std::same_as<bool>;
};
template <class D>
concept keepers = requires(void* data, BlockKeeper* keeper, Keeping keeping) {
  { D::keepers() } -> std::same_as<std::recursive_mutex&>;
  D::listen(keeper);
  D::unlisten(keeper);
  D::set_keeper(data, keeping);
  { D::keeper_of(data) } -> std::same_as<Keeping>;
  requires std::same_as<decltype(D::take_over(std::declval<void*>())), c10::DataPtr>;
};
template <class D>
concept store = std::constructible_from<typename D::Store, std::filesystem::path> &&
    requires(typename D::Store& store, const typename D::Store::Place& place, void* data) {
  {
    store.write(static_cast<const void*>(data), std::size_t{})
    } -> std::same_as<typename D::Store::Place>;
  store.read(place, data);
  store.release(place);
};
template <class D>
concept spills_in_place = requires(void* data, BlockOwner& owner, std::uint32_t tag,
                                   typename D::Store& store, c10::DataPtr& from) {
  { D::keeps_addresses() } -> std::same_as<bool>;
  { D::can_spill(data) } -> std::same_as<bool>;
  { D::spill(data, owner, tag, store) } -> std::same_as<bool>;
  { D::is_spilled(data) } -> std::same_as<bool>;
  { D::restore(data) } -> std::same_as<bool>;
  { D::evict(data, owner, tag) } -> std::same_as<bool>;
  D::fill(data, std::move(from));
};
template <class D>
concept watches_writes = requires(void* data, BlockOwner& owner, std::uint32_t tag, Bytes bytes) {
  { D::watch_writes(data, owner, tag) } -> std::same_as<bool>;
  D::unwatch_writes(data);
  { D::protected_part(data, bytes) } -> std::same_as<std::span<std::byte>>;
};
template <class D>
concept steps = requires {
  D::begin_step();
  D::end_step();
  D::abandon_step();
  D::release_cached();
  D::stop_caching();
};
}  // namespace device_memory_requirement

/// DeviceMemory requires, all of them static: (1) type: the c10::DeviceType of its tensors; (2)
/// counter() and is_counted(): bytes of all threads, and whether LibTorch allocates through it; (3)
/// allocator(), with header_bytes in front of each block; (4) hooks() of the calling thread; (5)
/// owns(block), bytes_of(block), serial_of(block), in_arena(block); (6) keepers(), listen(),
/// unlisten(), set_keeper(), keeper_of(), take_over(): who is asked before a block is freed; (7)
/// Store: where the bytes of a spilled block are, with write(), read() and release(); (8)
/// keeps_addresses(), can_spill(), spill(), is_spilled(), restore(), evict(), fill(): blocks that
/// lose their memory and keep their address; (9) watch_writes(), unwatch_writes() and
/// protected_part(): the owner is told before somebody writes through a pointer; (10) begin_step(),
/// end_step(), abandon_step(), release_cached(), stop_caching(): memory that is freed and waits for
/// the next block.
template <class D>
concept DeviceMemory = device_memory_requirement::type<D> && device_memory_requirement::counts<D> &&
    device_memory_requirement::allocates<D> && device_memory_requirement::hooks<D> &&
    device_memory_requirement::block_facts<D> && device_memory_requirement::keepers<D> &&
    device_memory_requirement::store<D> && device_memory_requirement::spills_in_place<D> &&
    device_memory_requirement::watches_writes<D> && device_memory_requirement::steps<D>;

/// True; where D is no DeviceMemory, one line of the compiler's output says what it lacks.
template <class D>
[[nodiscard]] consteval bool is_device_memory() {
  static_assert(device_memory_requirement::type<D>,
                "D is no DeviceMemory: it needs (1) static constexpr c10::DeviceType type; see "
                "docs/devices.md");
  static_assert(device_memory_requirement::counts<D>,
                "D is no DeviceMemory: it needs (2) MemoryCounter& counter() and bool "
                "is_counted(); see docs/devices.md");
  static_assert(device_memory_requirement::allocates<D>,
                "D is no DeviceMemory: it needs (3) c10::Allocator& allocator() and static "
                "constexpr std::size_t header_bytes; see docs/devices.md");
  static_assert(device_memory_requirement::hooks<D>,
                "D is no DeviceMemory: it needs (4) ThreadHooks& hooks(); see docs/devices.md");
  static_assert(device_memory_requirement::block_facts<D>,
                "D is no DeviceMemory: it needs (5) owns, bytes_of, serial_of and in_arena of a "
                "const c10::DataPtr&; see docs/devices.md");
  static_assert(device_memory_requirement::keepers<D>,
                "D is no DeviceMemory: it needs (6) keepers, listen, unlisten, set_keeper, "
                "keeper_of and take_over; see docs/devices.md");
  static_assert(device_memory_requirement::store<D>,
                "D is no DeviceMemory: it needs (7) a Store with write, read and release of a "
                "Place; see docs/devices.md");
  static_assert(device_memory_requirement::spills_in_place<D>,
                "D is no DeviceMemory: it needs (8) keeps_addresses, can_spill, spill, is_spilled, "
                "restore, evict and fill; see docs/devices.md");
  static_assert(device_memory_requirement::watches_writes<D>,
                "D is no DeviceMemory: it needs (9) watch_writes, unwatch_writes and "
                "protected_part; see docs/devices.md");
  static_assert(device_memory_requirement::steps<D>,
                "D is no DeviceMemory: it needs (10) begin_step, end_step, abandon_step, "
                "release_cached and stop_caching; see docs/devices.md");
  return DeviceMemory<D>;
}

}  // namespace reprise::devices
