#pragma once
// How many bytes a device's tensors hold, of all threads.
//
//   MemoryCounter& memory = device_memory();
//   memory.reset_peak();
//   auto y = torch::relu(x);                   // 4 KiB
//   memory.peak();                             // live() before + 4096
//
// What one step has taken of them is counted beside (step_bytes.hpp): a number that belongs to a
// step is told to both.

#include <cstdint>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/interface/byte_counter.hpp>
#include <reprise/libtorch/device/interface/step_bytes.hpp>

namespace reprise::devices {

/// Bytes that the process holds. Calls that change a number tell the step of this thread as well.
class MemoryCounter : public ByteCounter {
 public:
  void reset_peak() {
    ByteCounter::reset_peak();
    if (ByteCounter* step = StepBytes::here()) step->reset_peak();
  }
  void reset_existing_peak() {
    ByteCounter::reset_existing_peak();
    if (ByteCounter* step = StepBytes::here()) step->reset_existing_peak();
  }
  void add_reserved_unused(std::int64_t bytes) {
    ByteCounter::add_reserved_unused(bytes);
    if (ByteCounter* step = StepBytes::here()) step->add_reserved_unused(bytes);
  }
  void add_absent(Bytes bytes) {
    ByteCounter::add_absent(bytes);
    if (ByteCounter* step = StepBytes::here_or_only()) step->add_absent(bytes);
  }
  void remove_absent(Bytes bytes) {
    ByteCounter::remove_absent(bytes);
    if (ByteCounter* step = StepBytes::here_or_only()) step->remove_absent(bytes);
  }
  void note_beside(std::int64_t bytes) {
    ByteCounter::note_beside(bytes);
    if (ByteCounter* step = StepBytes::here()) step->note_beside(bytes);
  }

  /// The most that has existed, in the process and of this thread's step.
  struct ExistingPeaks {
    Bytes process{}, step{};
  };
  [[nodiscard]] ExistingPeaks existing_peaks() const {
    const ByteCounter* step = StepBytes::here();
    return {peak_without_limit(), step != nullptr ? step->peak_without_limit() : Bytes{}};
  }
  void forget_existing_peaks_since(ExistingPeaks before) {
    forget_existing_peak_since(before.process);
    if (ByteCounter* step = StepBytes::here()) step->forget_existing_peak_since(before.step);
  }
};

}  // namespace reprise::devices
