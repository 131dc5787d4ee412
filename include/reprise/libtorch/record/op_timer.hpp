#pragma once
// Who times the ops of a step that is recorded, where that is not the recorder's own steady clock.
//
//   ProfiledOps timer{profiler};                   each op is a run of one occurrence for the profiler's timer
//   recorder.time_with(&timer);

#include <reprise/base/units.hpp>

namespace reprise::recording {

struct OpTimer {
  virtual ~OpTimer() = default;
  /// Right before the op.
  virtual void start() = 0;
  /// Right after it: what it took.
  virtual Microseconds stop() = 0;
};

}  // namespace reprise::recording
