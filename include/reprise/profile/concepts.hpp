#pragma once
// Timer, MemProbe and ProfilableStep are the concepts that a Profiler requires.
//
//   Timer       begin_run(n); then start(i), stop(i) around occurrence i; end_run() returns n times. A timer may therefore record
//               marks during the run and read them afterwards, as CUDA events must.
//   MemProbe    begin_run(); then begin_op(), end_op() around each op; end_run() returns the peak of the run.
//
// ```cpp
// struct Tick {  // a Timer: every op takes one microsecond
//   std::size_t n = 0;
//   void begin_run(std::size_t occurrences) { n = occurrences; }
//   void start(std::size_t) {}
//   void stop(std::size_t) {}
//   std::vector<Microseconds> end_run() { return std::vector<Microseconds>(n, Microseconds{1}); }
// };
// ```
//
// Each requirement is a concept of its own: is_timer(), is_mem_probe() and is_profilable_step()
// name the requirement that is not met.

#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include <reprise/profile/profile.hpp>

namespace reprise::profiling {

namespace timer_requirement {
template <class T>
concept begin_run = requires(T& timer, std::size_t n) {
  { timer.begin_run(n) } -> std::same_as<void>;
};
template <class T>
concept start = requires(T& timer, std::size_t i) {
  { timer.start(i) } -> std::same_as<void>;
};
template <class T>
concept stop = requires(T& timer, std::size_t i) {
  { timer.stop(i) } -> std::same_as<void>;
};
template <class T>
concept end_run = requires(T& timer) {
  { timer.end_run() } -> std::same_as<std::vector<Microseconds>>;
};
}  // namespace timer_requirement

/// Timer requires: (1) to be movable; (2) begin_run(n): a run of n occurrences starts, and an
/// unfinished run is forgotten; (3) start(i) and (4) stop(i), right before and after occurrence i;
/// (5) end_run() -> std::vector<Microseconds>: n times, each finite and not negative. Optional: (6)
/// wait(): returns when the ops have finished; called before a run's wall time is read.
template <class T>
concept Timer = std::movable<T> && timer_requirement::begin_run<T> && timer_requirement::start<T> &&
    timer_requirement::stop<T> && timer_requirement::end_run<T>;

/// True. If T is no Timer, one line of the compiler's output says what it lacks.
template <class T>
[[nodiscard]] consteval bool is_timer() {
  static_assert(std::movable<T>,
                "T is no Timer: it needs (1) to be movable; see docs/policies/timer.md");
  static_assert(
      timer_requirement::begin_run<T>,
      "T is no Timer: it needs (2) void begin_run(std::size_t n); see docs/policies/timer.md");
  static_assert(
      timer_requirement::start<T>,
      "T is no Timer: it needs (3) void start(std::size_t i); see docs/policies/timer.md");
  static_assert(timer_requirement::stop<T>,
                "T is no Timer: it needs (4) void stop(std::size_t i); see docs/policies/timer.md");
  static_assert(timer_requirement::end_run<T>,
                "T is no Timer: it needs (5) std::vector<Microseconds> end_run(); see "
                "docs/policies/timer.md");
  return Timer<T>;
}

/// A timer for ops that go on after their call has returned.
template <class T>
concept WaitingTimer = Timer<T> && requires(T& timer) {
  timer.wait();
};

namespace mem_probe_requirement {
template <class T>
concept begin_run = requires(T& probe) {
  { probe.begin_run() } -> std::same_as<void>;
};
template <class T>
concept begin_op = requires(T& probe) {
  { probe.begin_op() } -> std::same_as<void>;
};
template <class T>
concept end_op = requires(T& probe) {
  { probe.end_op() } -> std::same_as<MemorySample>;
};
template <class T>
concept end_run = requires(T& probe) {
  { probe.end_run() } -> std::same_as<Bytes>;
};
}  // namespace mem_probe_requirement

/// MemProbe requires: (1) to be movable; (2) begin_run(): an unfinished run is forgotten; (3)
/// begin_op(), right before an op; (4) end_op() -> MemorySample, right after it, before anything is
/// freed; (5) end_run() -> Bytes: the maximum since begin_run.
template <class T>
concept MemProbe =
    std::movable<T> && mem_probe_requirement::begin_run<T> && mem_probe_requirement::begin_op<T> &&
    mem_probe_requirement::end_op<T> && mem_probe_requirement::end_run<T>;

/// True. If P is no MemProbe, one line of the compiler's output says what it lacks.
template <class P>
[[nodiscard]] consteval bool is_mem_probe() {
  static_assert(std::movable<P>,
                "P is no MemProbe: it needs (1) to be movable; see docs/policies/mem_probe.md");
  static_assert(mem_probe_requirement::begin_run<P>,
                "P is no MemProbe: it needs (2) void begin_run(); see docs/policies/mem_probe.md");
  static_assert(mem_probe_requirement::begin_op<P>,
                "P is no MemProbe: it needs (3) void begin_op(); see docs/policies/mem_probe.md");
  static_assert(
      mem_probe_requirement::end_op<P>,
      "P is no MemProbe: it needs (4) MemorySample end_op(); see docs/policies/mem_probe.md");
  static_assert(mem_probe_requirement::end_run<P>,
                "P is no MemProbe: it needs (5) Bytes end_run(); see docs/policies/mem_probe.md");
  return MemProbe<P>;
}

struct ProfileOptions;

/// The argument that a profiler passes to a runner, for the concept only: before(i) and after(i)
/// around node i.
struct AroundArchetype {
  void before(std::size_t /*i*/) {}
  void after(std::size_t /*i*/) {}
};

namespace profilable_step_requirement {
template <class Step>
concept has_runner = requires(Step& step, const ProfileOptions& options) {
  make_runner(step, options);
};
template <class Step>
using Runner = decltype(make_runner(std::declval<Step&>(), std::declval<const ProfileOptions&>()));
template <class Step>
concept graph = requires(Runner<Step>& runner) {
  { runner.graph() } -> std::convertible_to<const StepGraph&>;
};
template <class Step>
concept run = requires(Runner<Step>& runner, AroundArchetype around) {
  runner.run(around);
};
template <class Step>
concept complete = requires(Runner<Step>& runner, Profile& profile) {
  runner.complete(profile);
};
}  // namespace profilable_step_requirement

/// ProfilableStep requires: (1) make_runner(step, options), found through the step's type, which
/// returns a runner; (2) runner.graph() -> const StepGraph&; (3) runner.run(around): runs the step
/// once, with around.before(i) and around.after(i) right before and after node i; (4)
/// runner.complete(profile): adds the runner's own data. The runner's destructor restores the
/// step's state.
template <class Step>
concept ProfilableStep =
    profilable_step_requirement::has_runner<Step> && profilable_step_requirement::graph<Step> &&
    profilable_step_requirement::run<Step> && profilable_step_requirement::complete<Step>;

/// True. If S is no ProfilableStep, one line of the compiler's output says what it lacks.
template <class S>
[[nodiscard]] consteval bool is_profilable_step() {
  static_assert(profilable_step_requirement::has_runner<S>,
                "S is no ProfilableStep: it needs (1) make_runner(S&, const ProfileOptions&) "
                "beside its type; what reprise::capture() gives has one; see "
                "docs/policies/profilable_step.md");
  if constexpr (profilable_step_requirement::has_runner<S>) {
    static_assert(profilable_step_requirement::graph<S>,
                  "S is no ProfilableStep: its runner needs (2) const StepGraph& graph(); see "
                  "docs/policies/profilable_step.md");
    static_assert(profilable_step_requirement::run<S>,
                  "S is no ProfilableStep: its runner needs (3) void run(around), which calls "
                  "around.before(i) and around.after(i); see docs/policies/profilable_step.md");
    static_assert(profilable_step_requirement::complete<S>,
                  "S is no ProfilableStep: its runner needs (4) void complete(Profile&); see "
                  "docs/policies/profilable_step.md");
  }
  return ProfilableStep<S>;
}

}  // namespace reprise::profiling

namespace reprise {
using profiling::MemProbe;
using profiling::ProfilableStep;
using profiling::ProfileOptions;
using profiling::Timer;
}  // namespace reprise
