// A schedule's buffers packed into one arena.

#include <string>

#include <reprise/graph/schedule.hpp>
#include <reprise/plan/buffers_of.hpp>
#include <reprise_test/random_graphs.hpp>

#include "micro.hpp"

namespace micro {

void measure_packing() {
  using namespace reprise;
  using namespace reprise::graphs;
  using namespace reprise::planning;
  auto bench = table("packing", "buffer");
  for (const std::size_t layers : {4u, 24u}) {
    const StepGraph graph = testing::transformer_step({.layers = layers});
    const auto buffers = buffers_of(resolve(graph, own_order(graph)));
    bench.batch(buffers.size())
        .run("assign_offsets, " + std::to_string(buffers.size()) + " buffers",
             [&] { doNotOptimizeAway(assign_offsets(buffers).height.count); });
  }
}

}  // namespace micro
