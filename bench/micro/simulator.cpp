// The simulator: what a schedule costs, node by node.

#include <string>

#include <reprise/graph/analysis.hpp>
#include <reprise_test/random_graphs.hpp>

#include "micro.hpp"

namespace micro {

void measure_simulator() {
  using namespace reprise;
  using namespace reprise::graphs;
  auto bench = table("simulator", "node");
  for (const std::size_t blocks : {16u, 475u}) {
    const StepGraph graph = testing::resnet_step({.blocks = blocks});
    const Schedule order = own_order(graph);
    const std::string nodes = ", " + std::to_string(graph.node_count()) + " nodes";
    bench.batch(graph.node_count());
    bench.run("resolve" + nodes, [&] { doNotOptimizeAway(resolve(graph, order).storages.size()); });
    bench.run("simulate" + nodes, [&] { doNotOptimizeAway(simulate(graph, order).peak.count); });
    bench.run("liveness (storage_uses)" + nodes,
              [&] { doNotOptimizeAway(storage_uses(graph).size()); });
  }
}

}  // namespace micro
