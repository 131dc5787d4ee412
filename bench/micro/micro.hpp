#pragma once
// What the micro-benchmarks share: nanobench, and how a table begins.
//
//   micro::table("simulator", "node").batch(graph.node_count()).run("simulate", [&] { … });
//     |             ns/node | …  | simulator
//     |               41.30 | …  | `simulate`
//
// A row is the median of eleven epochs of at least 50 ms each; err% is the median deviation from
// it. What a row measures once is `batch` units.

#include <chrono>

#include <nanobench.h>

namespace micro {

[[nodiscard]] inline ankerl::nanobench::Bench table(const char* title, const char* unit) {
  ankerl::nanobench::Bench bench;
  bench.title(title).unit(unit).minEpochTime(std::chrono::milliseconds{50}).warmup(1);
  return bench;
}

using ankerl::nanobench::doNotOptimizeAway;

// Core, one source file each.
void measure_simulator();
void measure_schedules();
void measure_packing();
void measure_eviction();
void measure_json();

// With LibTorch.
void measure_allocator();
void measure_recorder();
void measure_replay();

}  // namespace micro
