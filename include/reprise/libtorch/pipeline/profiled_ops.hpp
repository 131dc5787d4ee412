#pragma once
// ProfiledOps times each op of a recorded step with the pipeline's profiler.
//
//   ProfiledOps ops{pipeline.profiler()};
//   if constexpr (ProfiledOps<T, P>::is_needed) recorder.time_with(&ops);
//
// The number of ops is not known before the step. Each op is therefore one run with one occurrence
// for the timer.

#include <concepts>

#include <reprise/libtorch/record/op_timer.hpp>
#include <reprise/profile/profiler.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

namespace reprise::pipelines {

template <class T, class P>
class ProfiledOps final : public OpTimer {
 public:
  /// The recorder's own clock is as good as a SteadyTimer and needs no calls.
  static constexpr bool is_needed = !std::same_as<T, SteadyTimer>;

  explicit ProfiledOps(Profiler<T, P>& profiler) : profiler_(profiler) {}
  void start() override {
    profiler_.timer().begin_run(1);
    profiler_.timer().start(0);
  }
  Microseconds stop() override {
    profiler_.timer().stop(0);
    return profiler_.timer().end_run().at(0);
  }

 private:
  Profiler<T, P>& profiler_;
};

}  // namespace reprise::pipelines
