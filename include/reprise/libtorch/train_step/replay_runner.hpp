#pragma once
// A ReplayRunner runs the program of a known step, in its arena if it has one, under the profiler.
//
//   ReplayRunner runner{pipeline, context, meter, planning};
//   RunOutcome outcome = runner.run(known, bindings);           times of ops into known.key.measured if a replay is to be timed
//   runner.release_arena();                                     the next step must not share the budget with the arena

#include <algorithm>
#include <utility>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>
#include <reprise/libtorch/replay/step_observer.hpp>
#include <reprise/libtorch/train_step/known_step.hpp>
#include <reprise/libtorch/train_step/step_context.hpp>
#include <reprise/libtorch/train_step/step_meter.hpp>
#include <reprise/libtorch/train_step/step_planning.hpp>

namespace reprise::training {

/// All arguments must outlive it.
template <class Pipe>
class ReplayRunner {
 public:
  using Known = KnownSteps::Known;

  ReplayRunner(Pipe& pipeline, StepContext& context, StepMeter& meter, StepPlanning& planning)
      : pipeline_(pipeline), context_(context), meter_(meter), planning_(planning) {}

  [[nodiscard]] auto& memory() { return pipeline_.rewriter().backend().memory(); }

  void release_arena() {
    if (context_.options.budget.given()) memory().release();
  }
  // New allocations since the last step (the optimizer's state) may leave less headroom than the
  // arena needs.
  void release_arena_beyond(Bytes budget) {
    if (budget > Bytes{0} && device_memory().reserved() - meter_.excluded() > budget)
      memory().release();
  }

  RunOutcome run(Known& known, const Bindings& bindings) {
    ReadyProgram& ready = *known.made;
    StepObserver observer{pipeline_.profiler(), planning_.wants_times(known)};
    if (observer.timed) pipeline_.profiler().timer().begin_run(ready.plan.schedule.size());
    ++ready.replays;
    RunOutcome outcome = ready.layout ? run_in_arena(known, bindings, observer)
                                      : run_in_allocator(known, bindings, observer);
    if (observer.timed)
      known.key.measured = by_node(pipeline_.profiler().timer().end_run(), ready.plan.schedule,
                                   known.graph->node_count());
    if (!outcome.completed) known.key.measured.clear();
    if (outcome.workspace_changes > 0) known.key.floor.reset();
    context_.counters.workspace_changes += static_cast<std::int64_t>(outcome.workspace_changes);
    return outcome;
  }

  /// With the caller's observer, and without measuring.
  template <class Looker>
  RunOutcome run_observed(Known& known, const Bindings& bindings, Looker observer) {
    ReadyProgram& ready = *known.made;
    if (!ready.layout) return ready.program->run(bindings, observer);
    memory().start(*ready.layout);
    return ready.program->run(bindings, observer, memory());
  }

 private:
  template <class Looker>
  RunOutcome run_in_allocator(Known& known, const Bindings& bindings, Looker& observer) {
    release_arena();
    return known.made->program->run(bindings, observer);
  }

  template <class Looker>
  RunOutcome run_in_arena(Known& known, const Bindings& bindings, Looker& observer) {
    const ArenaLayout& layout = *known.made->layout;
    const Bytes capacity = memory().capacity();
    const bool grown_for_another_shape =
        capacity > layout.counted && capacity + layout.outside > planning_.headroom();
    if (context_.options.budget.given() && grown_for_another_shape) memory().release();
    memory().start(layout);
    RunOutcome outcome = known.made->program->run(bindings, observer, memory());
    const ArenaUse use = memory().use();
    context_.last.arena = memory().capacity();
    context_.last.arena_blocks = use.taken;
    context_.last.arena_misses = use.fallbacks;
    if (use.fallbacks > 0) leave_room_for_misses(known);
    return outcome;
  }

  // If ops asked for other blocks than planned, the step used more than its arena: the next plan
  // leaves headroom for that.
  void leave_room_for_misses(Known& known) {
    const ArenaLayout& layout = *known.made->layout;
    const Bytes planned =
        context_.last.base + std::max(memory().capacity(), layout.counted) + layout.outside;
    const Bytes held = meter_.own_reserved_peak() - context_.others;
    known.key.missed = known.made->missed = std::max(known.key.missed, held - planned);
  }

  Pipe& pipeline_;
  StepContext& context_;
  StepMeter& meter_;
  StepPlanning& planning_;
};

}  // namespace reprise::training
