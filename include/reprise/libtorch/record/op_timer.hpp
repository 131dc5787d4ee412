#pragma once
// An OpTimer times the ops of a recorded step instead of the recorder's own steady clock.
//
//   ProfiledOps timer{profiler};                   each op is a run of one occurrence for the profiler's timer
//   recorder.time_with(&timer);

#include <reprise/base/units.hpp>

namespace reprise::recording {

struct OpTimer {
  virtual ~OpTimer() = default;
  /// Right before the op.
  virtual void start() = 0;
  /// Right after the op: its time.
  virtual Microseconds stop() = 0;
};

}  // namespace reprise::recording
