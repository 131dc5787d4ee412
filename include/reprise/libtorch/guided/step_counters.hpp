#pragma once
// What happened in one guided step.

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
  bool followed = false;      ///< a plan, to the last op
  /// and none before it did otherwise on the way: its peak is the one that was predicted
  bool predicted = false;
  /// all that the plan recomputes was recomputed, whatever came afterwards
  bool carried_out = false;
  bool only_spills = false;     ///< recomputation had reached its bound
  std::size_t diverged_at = 0;  ///< the node at which the sequence was another one
  std::string divergence{};
};

}  // namespace reprise::guided
