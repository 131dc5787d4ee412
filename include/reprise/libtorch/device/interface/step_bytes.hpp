#pragma once
// Which bytes one step has taken, whatever other threads allocate and free meanwhile.
//
//   thread A                              thread B                        process   A's step
//   const StepBytes step;                                                100       0
//   x = torch::empty(…);    8 KiB                                         + 8       8 KiB
//                                         y = torch::empty(…);  4 KiB     + 12      8 KiB
//   y = {};                               another's block dies on A       + 8       8 KiB
//                                         x = {};                         + 0       0
//
// A block carries in its header the step that made it, and counts there until it dies, on whichever
// thread that is. A block from before the step counts where the step's own thread frees it. What a
// kernel's worker threads allocate belongs to the step where only one runs.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <ATen/Parallel.h>

#include <reprise/base/one_per_process.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/interface/byte_counter.hpp>

namespace reprise::devices {

/// Counts for as long as it is in scope what is allocated on this thread. Inside of another one of
/// the same thread it is that one.
class StepBytes {
  struct Slot {
    std::atomic<std::uint32_t> turn{0};  // odd while a step has it
    std::atomic<std::uint64_t> start_serial{0};
    ByteCounter bytes{};
  };
  struct Here {
    Slot* slot = nullptr;
    std::uint32_t turn = 0;  // of a step that has ended on another thread, an old one
  };

 public:
  /// The step that made a block; turn 0 for none.
  struct Tag {
    std::uint32_t slot = 0, turn = 0;
  };

  /// `serial`: of the newest block there is.
  explicit StepBytes(std::uint64_t serial) {
    if (Slot* outer = slot_here()) {
      slot_ = outer;
      turn_ = this_thread().turn;
      return;
    }
    for (Slot& slot : slots()) {
      std::uint32_t turn = slot.turn.load(std::memory_order_relaxed);
      if (turn % 2 == 1 ||
          !slot.turn.compare_exchange_strong(turn, turn + 1, std::memory_order_acq_rel))
        continue;
      slot.bytes.restart();
      slot.start_serial.store(serial, std::memory_order_relaxed);
      slot_ = &slot;
      turn_ = turn + 1;
      outermost_ = true;
      this_thread() = {slot_, turn_};
      running().fetch_add(1, std::memory_order_relaxed);
      return;
    }
    outermost_ = true;  // more steps at once than there are slots: the process's numbers have to do
  }
  ~StepBytes() {
    if (!outermost_ || slot_ == nullptr) return;
    if (slot_here() == slot_) this_thread() = {};
    running().fetch_sub(1, std::memory_order_relaxed);
    slot_->turn.fetch_add(1, std::memory_order_acq_rel);
  }
  StepBytes(const StepBytes&) = delete;
  StepBytes& operator=(const StepBytes&) = delete;

  [[nodiscard]] bool outermost() const { return outermost_; }
  /// Relative to the beginning of the outermost one; null where there was no slot for it.
  [[nodiscard]] ByteCounter* bytes() const { return slot_ != nullptr ? &slot_->bytes : nullptr; }

  /// Another thread runs a part of the step for as long as this is in scope.
  class Joined {
   public:
    explicit Joined(const StepBytes& step) : before_(this_thread()) {
      if (step.slot_ != nullptr) this_thread() = {step.slot_, step.turn_};
    }
    ~Joined() { this_thread() = before_; }
    Joined(const Joined&) = delete;
    Joined& operator=(const Joined&) = delete;

   private:
    Here before_;
  };

  /// Of this thread's step; null where it runs none.
  [[nodiscard]] static ByteCounter* here() {
    Slot* slot = slot_here();
    return slot != nullptr ? &slot->bytes : nullptr;
  }
  /// The same; on a thread that runs none, of the only step there is.
  [[nodiscard]] static ByteCounter* here_or_only() {
    Slot* slot = slot_here();
    if (slot == nullptr) slot = only();
    return slot != nullptr ? &slot->bytes : nullptr;
  }

  // ── what the allocator tells ───────────────────────────────────────────────────────────────────

  [[nodiscard]] static Tag allocated(std::int64_t bytes) {
    Slot* slot = slot_here();
    if (slot == nullptr && running().load(std::memory_order_relaxed) == 1 &&
        at::in_parallel_region())
      slot = only();
    if (slot == nullptr) return {};
    slot->bytes.add(bytes);
    return {static_cast<std::uint32_t>(slot - slots().data()),
            slot->turn.load(std::memory_order_relaxed)};
  }
  static void freed(Tag made_by, std::uint64_t serial, std::int64_t bytes) {
    if (made_by.turn != 0) {
      Slot& slot = slots()[made_by.slot];
      if (slot.turn.load(std::memory_order_acquire) == made_by.turn)
        return slot.bytes.remove(bytes);
    }
    Slot* slot = slot_here();
    if (slot != nullptr && serial <= slot->start_serial.load(std::memory_order_relaxed))
      slot->bytes.remove(bytes);
  }
  /// The opposite: a block that lost its bytes has them again.
  static void restored(Tag made_by, std::uint64_t serial, std::int64_t bytes) {
    if (made_by.turn != 0) {
      Slot& slot = slots()[made_by.slot];
      if (slot.turn.load(std::memory_order_acquire) == made_by.turn)
        return slot.bytes.restore(bytes);
    }
    Slot* slot = slot_here();
    if (slot == nullptr) slot = only();
    if (slot != nullptr && serial <= slot->start_serial.load(std::memory_order_relaxed))
      slot->bytes.restore(bytes);
  }

 private:
  static constexpr std::size_t most_at_once = 64;

  REPRISE_ONE_PER_PROCESS static std::array<Slot, most_at_once>& slots() {
    static auto& all = *new std::array<Slot, most_at_once>;
    return all;
  }
  REPRISE_ONE_PER_PROCESS static std::atomic<int>& running() {
    static std::atomic<int> count{0};
    return count;
  }
  REPRISE_ONE_PER_PROCESS static Here& this_thread() {
    thread_local Here here;
    return here;
  }
  static Slot* slot_here() {
    const Here& here = this_thread();
    return here.slot != nullptr && here.slot->turn.load(std::memory_order_relaxed) == here.turn
               ? here.slot
               : nullptr;
  }
  static Slot* only() {
    if (running().load(std::memory_order_relaxed) != 1) return nullptr;
    for (Slot& slot : slots())
      if (slot.turn.load(std::memory_order_relaxed) % 2 == 1) return &slot;
    return nullptr;
  }

  Slot* slot_ = nullptr;
  std::uint32_t turn_ = 0;
  bool outermost_ = false;
};

}  // namespace reprise::devices
