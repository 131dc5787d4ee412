#pragma once
// FixedTimer returns given costs instead of measured ones, for tests that must not depend on the
// clock. Copy it for a timer of your own.
//
// ```cpp
// FixedTimer{{10, 20, 30}};   // occurrence i takes the i-th of these; later ones take the last
// ```

#include <cstddef>
#include <utility>
#include <vector>

#include <reprise/profile/concepts.hpp>

namespace reprise::profiling {

class FixedTimer {
 public:
  FixedTimer() = default;
  explicit FixedTimer(std::vector<double> microseconds) : given_(std::move(microseconds)) {}

  void begin_run(std::size_t occurrences) { occurrences_ = occurrences; }
  void start(std::size_t) {}
  void stop(std::size_t) {}
  [[nodiscard]] std::vector<Microseconds> end_run() const {
    std::vector<Microseconds> times(occurrences_);
    for (std::size_t i = 0; i < times.size() && !given_.empty(); ++i)
      times[i] = {given_[i < given_.size() ? i : given_.size() - 1]};
    return times;
  }

 private:
  std::vector<double> given_;
  std::size_t occurrences_ = 0;
};

static_assert(Timer<FixedTimer>);

}  // namespace reprise::profiling

namespace reprise {
using profiling::FixedTimer;
}  // namespace reprise
