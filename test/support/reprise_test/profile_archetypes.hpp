#pragma once
// The smallest models of Timer and MemProbe: what compiles with these asks for no more than the
// concepts do.

#include <cstddef>
#include <vector>

#include <reprise/profile/concepts.hpp>

namespace reprise_test {

/// Movable, and the four functions. Neither copied nor made out of nothing.
class TimerArchetype {
 public:
  explicit TimerArchetype(int) {}
  TimerArchetype(TimerArchetype&&) = default;
  TimerArchetype& operator=(TimerArchetype&&) = default;

  void begin_run(std::size_t occurrences) { occurrences_ = occurrences; }
  void start(std::size_t) {}
  void stop(std::size_t) {}
  std::vector<reprise::Microseconds> end_run() {
    return std::vector<reprise::Microseconds>(occurrences_);
  }

 private:
  std::size_t occurrences_ = 0;
};

class MemProbeArchetype {
 public:
  explicit MemProbeArchetype(int) {}
  MemProbeArchetype(MemProbeArchetype&&) = default;
  MemProbeArchetype& operator=(MemProbeArchetype&&) = default;

  void begin_run() {}
  void begin_op() {}
  reprise::MemorySample end_op() { return {}; }
  reprise::Bytes end_run() { return {}; }
};

static_assert(reprise::Timer<TimerArchetype> && !reprise::profiling::WaitingTimer<TimerArchetype>);
static_assert(reprise::MemProbe<MemProbeArchetype>);

}  // namespace reprise_test
