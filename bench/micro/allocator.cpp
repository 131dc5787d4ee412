// The counting allocator: a block taken and given back, outside of a step and inside of one that
// has a budget.

#include <string>

#include <torch/torch.h>

#include <reprise/libtorch.hpp>

#include "micro.hpp"

namespace micro {

namespace {

void measure(ankerl::nanobench::Bench& bench, const std::string& where) {
  for (const std::size_t bytes : {std::size_t{512}, std::size_t{64} << 10, std::size_t{4} << 20})
    bench.run(std::to_string(bytes >> 10) + (bytes < 1024 ? ".5 KiB" : " KiB") + where, [&] {
      const c10::DataPtr block = c10::GetCPUAllocator()->allocate(bytes);
      doNotOptimizeAway(block.get());
    });
}

}  // namespace

void measure_allocator() {
  using namespace reprise::literals;
  auto bench = table("allocator", "block");
  measure(bench, ", no step");
  reprise::MemoryBudget budget{64_GiB};
  auto step = budget.step();
  measure(bench, ", inside of a step with a budget");
}

}  // namespace micro
