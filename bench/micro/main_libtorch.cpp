// What the hot pieces cost that need LibTorch, measured by nanobench with one thread.
//
//   micro_libtorch       one table a piece, as Markdown (docs/results/micro.md)

#include <torch/torch.h>

#include <reprise/libtorch.hpp>

#include "micro.hpp"

int main() {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  micro::measure_allocator();
  micro::measure_recorder();
  micro::measure_replay();
}
