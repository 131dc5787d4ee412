#pragma once
// SteadyTimer measures wall time by the steady clock: for ops on the CPU, which have finished when
// the call returns.

#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include <reprise/profile/concepts.hpp>

namespace reprise::profiling {

class SteadyTimer {
 public:
  void begin_run(std::size_t occurrences) { times_.assign(occurrences, Microseconds{}); }
  void start(std::size_t) { start_ = std::chrono::steady_clock::now(); }
  void stop(std::size_t i) {
    times_[i] = {
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start_)
            .count()};
  }
  [[nodiscard]] std::vector<Microseconds> end_run() { return std::exchange(times_, {}); }

 private:
  std::vector<Microseconds> times_;
  std::chrono::steady_clock::time_point start_{};
};

static_assert(Timer<SteadyTimer>);

}  // namespace reprise::profiling

namespace reprise {
using profiling::SteadyTimer;
}  // namespace reprise
