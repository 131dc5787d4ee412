#pragma once
// What a Profiler asks of its policies.
//
//   Timer       begin_run(n); then start(i), stop(i) around occurrence i; end_run() gives n times. So a timer may record marks while
//               the run goes on and read them afterwards, as CUDA events must.
//   MemProbe    begin_run(); then begin_op(), end_op() around each op; end_run() gives the peak of the run.

#include <concepts>
#include <cstddef>
#include <vector>

#include <reprise/profile/profile.hpp>

namespace reprise {

template <class T>
concept Timer = std::movable<T> && requires(T& timer, std::size_t i) {
  { timer.begin_run(i) } -> std::same_as<void>;
  { timer.start(i) } -> std::same_as<void>;
  { timer.stop(i) } -> std::same_as<void>;
  { timer.end_run() } -> std::same_as<std::vector<Microseconds>>;
};

template <class T>
concept MemProbe = std::movable<T> && requires(T& probe) {
  { probe.begin_run() } -> std::same_as<void>;
  { probe.begin_op() } -> std::same_as<void>;
  { probe.end_op() } -> std::same_as<MemorySample>;
  { probe.end_run() } -> std::same_as<Bytes>;
};

}  // namespace reprise
