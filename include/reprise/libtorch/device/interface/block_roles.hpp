#pragma once
// Who is asked before a device's memory is taken, and about a block for as long as it lives.
//
//   MemoryGate     before an allocation:       may free other memory first, or throw
//   BlockSource    for an address:             an arena's, or none: then the block comes from the system
//   BlockKeeper    before a block is freed:    may take it over
//   BlockOwner     before a protected block is read or written through a pointer
//
// A device asks those of the thread that allocates; it frees a block, and asks its keeper, on
// whichever thread the last tensor dies on.

#include <cstddef>
#include <cstdint>

#include <reprise/base/units.hpp>

namespace reprise::devices {

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

/// Where blocks come from, if not from the system: an arena with planned addresses, or somebody who
/// only takes notes.
struct BlockSource {
  virtual ~BlockSource() = default;
  /// Room for the device's header and `bytes` behind it, aligned as the device aligns blocks, with
  /// the number that give_back() gets; nullptr: from the system.
  virtual std::byte* take(std::size_t bytes, std::uint32_t& number) = 0;
  /// The block is dead. May be called on any thread.
  virtual void give_back(std::uint32_t number) = 0;
  /// It has taken none, and the block that came from the system has this serial.
  virtual void came_from_system(std::uint64_t /*serial*/) {}
  /// A block from the system was freed on the thread whose source this is.
  virtual void freed(std::uint64_t /*serial*/) {}
};

/// Asked before a block is freed, on whichever thread does it: the last tensor over it has died.
struct BlockKeeper {
  virtual ~BlockKeeper() = default;
  /// True where the keeper takes the block over; it then belongs to the keeper, and nobody is asked
  /// again.
  virtual bool keep(void* data, std::uint32_t tag) = 0;
};

/// Who keeps a block, and what it calls it.
struct Keeping {
  BlockKeeper* keeper = nullptr;
  std::uint32_t tag = 0;
};

/// Whoever has protected a block, and is told when somebody touches it.
struct BlockOwner {
  enum class Entry : std::uint8_t {
    entered,  ///< the owner waits for this thread until leave()
    busy,     ///< another thread works with it, and is done some time
    never,    ///< another thread works with it, and waits for this one
  };
  virtual ~BlockOwner() = default;
  /// Must not wait.
  virtual Entry try_enter() = 0;
  virtual void leave() = 0;
  /// Somebody is about to read the block, or to write it, which is possible once this returns. Must
  /// not throw.
  virtual void touched(std::uint32_t tag, bool writes) = 0;
  /// The same, where the owner could not be entered: the block is open already. May only take note.
  virtual void was_opened(std::uint32_t tag, bool writes) = 0;
};

/// A block that a thread has already, and that its next request of just so many bytes gets:
/// block_donation.hpp.
struct DonatedBlock {
  void* data = nullptr;
  std::size_t bytes = 0;  ///< 0: none
};

/// What a device's allocations on one thread look at.
struct ThreadHooks {
  MemoryGate* gate = nullptr;     ///< none unless a limit is in force
  BlockSource* source = nullptr;  ///< none unless a program is running
  DonatedBlock handed{};
  Bytes limit{};  ///< what may be held; 0: no step is under way here
};

}  // namespace reprise::devices
