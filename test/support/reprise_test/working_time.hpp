#pragma once
// How long something worked, for tests that bound it: not how long it took, which on a busy machine
// is anything.
//
//   const WorkingTime time;
//   …
//   CHECK(time.seconds() < 2);        // in an optimized build; elsewhere a tenth of what it took counts

#include <ctime>

namespace reprise_test {

class WorkingTime {
 public:
  [[nodiscard]] double seconds() const {
    return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC / slowdown;
  }

 private:
#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
  static constexpr double slowdown = 10;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  static constexpr double slowdown = 10;
#else
  static constexpr double slowdown = 1;
#endif
#else
  static constexpr double slowdown = 1;
#endif
  std::clock_t start_ = std::clock();
};

}  // namespace reprise_test
