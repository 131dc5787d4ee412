#pragma once
// Counts bytes that are allocated and freed, on any thread: how many are held now, and at most.
//
//   ByteCounter bytes;
//   bytes.add(4096);       bytes.live() == 4096
//   bytes.remove(4096);    bytes.live() == 0, bytes.peak() == 4096
//
// There is one for the process (memory_counter.hpp), and one for each step that runs
// (step_bytes.hpp).

#include <atomic>
#include <cstdint>

#include <reprise/base/units.hpp>

namespace reprise::devices {

/// Bytes held through one allocator: now, and at most since the last reset. What is evicted or
/// spilled for a while (residency.hpp) is absent: it is not held, but it exists. existing() is what
/// would be held without a limit.
class ByteCounter {
 public:
  [[nodiscard]] Bytes live() const { return {live_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] Bytes existing() const {
    return {live_.load(std::memory_order_relaxed) + absent_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] Bytes peak() const { return {peak_.load(std::memory_order_relaxed)}; }
  [[nodiscard]] Bytes peak_without_limit() const {
    return {existing_peak_.load(std::memory_order_relaxed)};
  }
  void reset_peak() {
    peak_.store(live().count, std::memory_order_relaxed);
    reset_existing_peak();
    reserved_peak_.store(reserved().count, std::memory_order_relaxed);
  }

  void reset_existing_peak() { existing_peak_.store(existing().count, std::memory_order_relaxed); }

  /// A window is one op: what existed at most while it ran shows its workspace. Opening one does
  /// not touch peak().
  void open_window() { window_.store(existing().count, std::memory_order_relaxed); }
  [[nodiscard]] Bytes window_peak() const { return {window_.load(std::memory_order_relaxed)}; }

  /// Numbers blocks in the order in which they were allocated.
  [[nodiscard]] std::uint64_t serial() const { return serial_.load(std::memory_order_relaxed); }

  /// What arenas, and pages that wait for the next blocks, hold beyond what lives in them.
  [[nodiscard]] Bytes spare() const { return {spare_.load(std::memory_order_relaxed)}; }
  /// What is held: arenas as a whole (see arena.hpp), and everything outside of them.
  [[nodiscard]] Bytes reserved() const {
    return {live_.load(std::memory_order_relaxed) + spare_.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] Bytes reserved_peak() const {
    return {reserved_peak_.load(std::memory_order_relaxed)};
  }
  /// So many bytes of an arena are held beyond those that live in it.
  void add_reserved_unused(std::int64_t bytes) {
    spare_.fetch_add(bytes, std::memory_order_relaxed);
    raise(reserved_peak_, reserved().count);
  }

  std::uint64_t add(std::int64_t bytes) {
    const std::int64_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    const std::int64_t exists = now + absent_.load(std::memory_order_relaxed);
    raise(peak_, now);
    raise(existing_peak_, exists);
    raise(window_, exists);
    raise(reserved_peak_, now + spare_.load(std::memory_order_relaxed));
    return serial_.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  /// So many bytes that had been removed are held again, in the blocks that they were in.
  void restore(std::int64_t bytes) {
    const std::int64_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise(peak_, now);
    raise(existing_peak_, now + absent_.load(std::memory_order_relaxed));
    raise(reserved_peak_, now + spare_.load(std::memory_order_relaxed));
  }
  void remove(std::int64_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// `bytes` are not in memory, but would be without a limit: they were evicted or spilled.
  void add_absent(Bytes bytes) { absent_.fetch_add(bytes.count, std::memory_order_relaxed); }
  /// They are back, or would have been freed by now. Also of bytes that only Reprise keeps: without
  /// a limit they would not exist.
  void remove_absent(Bytes bytes) { absent_.fetch_sub(bytes.count, std::memory_order_relaxed); }

  /// So many bytes would exist beside all others, were they not written over some of them
  /// (block_donation.hpp).
  void note_beside(std::int64_t bytes) { raise(existing_peak_, existing().count + bytes); }

  /// What existed only to make something again did not exist for the step: the peak is what it was.
  void forget_existing_peak_since(Bytes before) {
    existing_peak_.store(before.count, std::memory_order_relaxed);
  }

  /// Nothing is held.
  void restart() {
    for (auto* bytes :
         {&live_, &absent_, &peak_, &existing_peak_, &window_, &spare_, &reserved_peak_})
      bytes->store(0, std::memory_order_relaxed);
  }

 private:
  static void raise(std::atomic<std::int64_t>& most, std::int64_t now) {
    std::int64_t seen = most.load(std::memory_order_relaxed);
    while (seen < now && !most.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }

  std::atomic<std::int64_t> live_{0}, absent_{0}, peak_{0}, existing_peak_{0}, window_{0},
      spare_{0}, reserved_peak_{0};
  std::atomic<std::uint64_t> serial_{0};
};

}  // namespace reprise::devices
