#pragma once
// The device that the engine runs on. This header alone names it: whoever counts, bounds or moves a
// tensor's bytes asks ThisDevice, or one of the functions here.
//
//   device_memory().live();                    // bytes that tensors hold now, as requested
//   ThisDevice::owns(tensor.storage().data_ptr());
//   ThisDevice::spill(data, owner, tag, store);
//
// Including it puts the device's counting allocator in the place of LibTorch's, before main and for
// good.

#include <reprise/libtorch/device/cpu/cpu_memory.hpp>
#include <reprise/libtorch/device/interface/block_roles.hpp>
#include <reprise/libtorch/device/interface/byte_counter.hpp>
#include <reprise/libtorch/device/interface/memory_counter.hpp>
#include <reprise/libtorch/device/interface/step_bytes.hpp>

namespace reprise::devices {

using ThisDevice = cpu::CpuMemory;

/// Where the bytes of spilled blocks are.
using SpillStore = ThisDevice::Store;

/// What LibTorch's tensors on the device hold in this process.
[[nodiscard]] inline MemoryCounter& device_memory() { return ThisDevice::counter(); }

/// What this thread's step has taken since it began; of a thread that runs none, what the process
/// holds.
[[nodiscard]] inline ByteCounter& bytes_of_step() {
  ByteCounter* step = StepBytes::here();
  return step != nullptr ? *step : device_memory();
}

/// Whether LibTorch allocates through us; false where another library has put its own allocator in
/// our place.
[[nodiscard]] inline bool memory_is_counted() { return ThisDevice::is_counted(); }

/// The gate of this thread; none unless a limit is in force.
[[nodiscard]] inline MemoryGate*& memory_gate() { return ThisDevice::hooks().gate; }
/// Asked by this thread's allocations; none unless a program is running.
[[nodiscard]] inline BlockSource*& block_source() { return ThisDevice::hooks().source; }
/// What this thread's step may hold; 0: none is under way here.
[[nodiscard]] inline Bytes& limit_here() { return ThisDevice::hooks().limit; }

}  // namespace reprise::devices

namespace reprise {
using devices::device_memory;
using devices::memory_is_counted;
}  // namespace reprise
