#pragma once
// What a Profiler asks of its policies.
//
//   Timer       begin_run(n); then start(i), stop(i) around occurrence i; end_run() gives n times. So a timer may record marks while
//               the run goes on and read them afterwards, as CUDA events must.
//   MemProbe    begin_run(); then begin_op(), end_op() around each op; end_run() gives the peak of the run.
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
// Each requirement is a concept of its own, so that a Profiler can name the one that is not met.

#include <concepts>
#include <cstddef>
#include <vector>

#include <reprise/profile/profile.hpp>

namespace reprise {

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

/// Timer requires: (1) to be movable; (2) begin_run(n): a run of n occurrences starts; what an
/// unfinished run left is forgotten;
/// (3) start(i) and (4) stop(i), right before and after occurrence i; (5) end_run() ->
/// std::vector<Microseconds>: n times, each finite and not negative. Optional: (6) wait(): returns
/// when the ops have finished; called before a run's wall time is read.
template <class T>
concept Timer = std::movable<T> && timer_requirement::begin_run<T> && timer_requirement::start<T> &&
    timer_requirement::stop<T> && timer_requirement::end_run<T>;

/// A timer of ops that go on after their call has returned.
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

/// MemProbe requires: (1) to be movable; (2) begin_run(): what an unfinished run left is forgotten;
/// (3) begin_op(), right before an op; (4) end_op() -> MemorySample, right after it, before
/// anything is freed; (5) end_run() -> Bytes: the most since begin_run.
template <class T>
concept MemProbe =
    std::movable<T> && mem_probe_requirement::begin_run<T> && mem_probe_requirement::begin_op<T> &&
    mem_probe_requirement::end_op<T> && mem_probe_requirement::end_run<T>;

}  // namespace reprise
