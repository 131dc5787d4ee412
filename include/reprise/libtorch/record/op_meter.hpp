#pragma once
// Measures each op of a step that is recorded, if that is not left to the recorder's own clock.
//
//   MeasuredOps ops{pipeline.profiler()};          libtorch/pipeline/measured_ops.hpp
//   recorder.measure_with(&ops);                   or capture(model, loss_fn, {.meter = &ops}, x, y)

#include <reprise/base/units.hpp>

namespace reprise::recording {

struct OpMeter {
  virtual ~OpMeter() = default;
  /// Right before the op.
  virtual void begin_op() = 0;
  /// Right after the op, before anything is freed: the op's time.
  virtual Microseconds end_op() = 0;
};

}  // namespace reprise::recording
