#pragma once
// Counters of one guided step.

#include <cstddef>
#include <cstdint>
#include <string>

#include <reprise/base/units.hpp>

namespace reprise::guided {

struct GuidedStepCounters {
  std::int64_t recomputed = 0;  ///< ops that were recomputed
  std::int64_t evicted = 0;     ///< storages that were evicted or spilled online
  std::int64_t brought_back = 0;
  Microseconds extra_time{};  ///< spent on recomputing
  bool followed = false;      ///< the step followed a plan to its last op
  /// and no earlier plan behaved otherwise on the way: the peak is the predicted one
  bool predicted = false;
  /// all recomputations of the plan ran, whatever came afterwards
  bool carried_out = false;
  bool only_spills = false;     ///< recomputation had reached its bound
  std::size_t diverged_at = 0;  ///< the first node that differs from the plan's
  std::string divergence{};
};

}  // namespace reprise::guided
