#pragma once
// Wall time in microseconds.
//
// ```cpp
// const auto start = WallClock::now();
// const Microseconds taken = time_since(start);
// ```

#include <chrono>

#include <reprise/base/units.hpp>

namespace reprise::base {

using WallClock = std::chrono::steady_clock;

[[nodiscard]] inline Microseconds time_between(WallClock::time_point start,
                                               WallClock::time_point end) {
  return {std::chrono::duration<double, std::micro>(end - start).count()};
}
[[nodiscard]] inline Microseconds time_since(WallClock::time_point start) {
  return time_between(start, WallClock::now());
}

}  // namespace reprise::base
