#pragma once
// A StepObserver measures a running program: the time of each op if asked to, and memory through a
// probe of the user's choice.
//
//   StepObserver observer{profiler, /*timed=*/true};
//   profiler.timer().begin_run(schedule.size());
//   program.run(bindings, observer, memory);
//   by_node(profiler.timer().end_run(), schedule, graph.node_count());      for a node with three occurrences: the mean of the three

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/torch/allocator_probe.hpp>
#include <reprise/profile/profiler.hpp>

namespace reprise::replaying {

/// Calls the pipeline's profiler for the ops of a replay.
template <class T, class P>
struct StepObserver {
  /// The allocator counts by itself; every other probe is called around each op.
  static constexpr bool asks_probe = !std::same_as<P, AllocatorProbe>;

  Profiler<T, P>& profiler;
  bool timed = false;

  template <class Tensors>
  void before(std::size_t occurrence, NodeId /*node*/, const Tensors& /*tensors*/) {
    if constexpr (asks_probe) profiler.probe().begin_op();
    if (timed) profiler.timer().start(occurrence);
  }
  template <class Tensors>
  void after(std::size_t occurrence, NodeId /*node*/, const Tensors& /*tensors*/) {
    if (timed) profiler.timer().stop(occurrence);
    if constexpr (asks_probe) static_cast<void>(profiler.probe().end_op());
  }
};

[[nodiscard]] inline std::vector<Microseconds> by_node(std::span<const Microseconds> times,
                                                       std::span<const NodeId> schedule,
                                                       std::size_t nodes) {
  std::vector<Microseconds> mean(nodes);
  std::vector<double> runs(nodes, 0);
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    mean[schedule[i].index].count += times[i].count;
    runs[schedule[i].index] += 1;
  }
  for (std::size_t n = 0; n < nodes; ++n)
    if (runs[n] > 0) mean[n].count /= runs[n];
  return mean;
}

}  // namespace reprise::replaying
