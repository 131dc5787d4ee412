#pragma once
// What the stand-in for the CUDA runtime (stand_in_runtime.cpp) has seen so far. It is loaded in
// front of a program that was linked with the real one, or not: then there is nothing to tell.

#include <dlfcn.h>

#include <optional>

namespace reprise_test {

struct StandInCounts {
  long events_made = 0, events_alive = 0;
  long waits = 0;  ///< calls in which the host waits for the device
  long pinned_blocks_alive = 0;
};

[[nodiscard]] inline std::optional<StandInCounts> stand_in_counts() {
  using Tell = void (*)(StandInCounts*);
  const auto tell = reinterpret_cast<Tell>(::dlsym(RTLD_DEFAULT, "reprise_stand_in_counts"));
  if (tell == nullptr) return std::nullopt;
  StandInCounts counts;
  tell(&counts);
  return counts;
}

}  // namespace reprise_test
