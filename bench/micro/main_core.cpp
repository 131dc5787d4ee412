// What the hot pieces of the core cost, measured by nanobench.
//
//   micro_core           one table a piece, as Markdown (docs/results/micro.md)

#include "micro.hpp"

int main() {
  micro::measure_simulator();
  micro::measure_schedules();
  micro::measure_packing();
  micro::measure_eviction();
  micro::measure_json();
}
