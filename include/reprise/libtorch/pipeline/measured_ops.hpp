#pragma once
// Measures each op of a step that is recorded with the pipeline's profiler: its time by the timer,
// and memory by the probe.
//
//   MeasuredOps ops{pipeline.profiler()};
//   recorder.measure_with(ops.if_needed());
//
// The number of ops is not known before the step ends. For the timer, each op is therefore a run of
// one occurrence. For the probe, the step is one run: its owner calls begin_run() and end_run().

#include <concepts>

#include <reprise/libtorch/record/op_meter.hpp>
#include <reprise/libtorch/torch/allocator_probe.hpp>
#include <reprise/profile/profiler.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

namespace reprise::pipelines {

template <class T, class P>
class MeasuredOps final : public OpMeter {
 public:
  /// The allocator counts by itself; every other probe is asked around each op.
  static constexpr bool asks_probe = !std::same_as<P, AllocatorProbe>;
  /// The recorder's own clock is as good as a SteadyTimer.
  static constexpr bool is_needed = asks_probe || !std::same_as<T, SteadyTimer>;

  explicit MeasuredOps(Profiler<T, P>& profiler) : profiler_(profiler) {}

  /// Null if the recorder measures the same by itself.
  [[nodiscard]] OpMeter* if_needed() { return is_needed ? this : nullptr; }

  void begin_op() override {
    if constexpr (asks_probe) profiler_.probe().begin_op();
    profiler_.timer().begin_run(1);
    profiler_.timer().start(0);
  }
  Microseconds end_op() override {
    profiler_.timer().stop(0);
    if constexpr (asks_probe) static_cast<void>(profiler_.probe().end_op());
    return profiler_.timer().end_run().at(0);
  }

 private:
  Profiler<T, P>& profiler_;
};

}  // namespace reprise::pipelines
