// Graph files: read and written.

#include <string>

#include <reprise/graph/json.hpp>
#include <reprise_test/random_graphs.hpp>

#include "micro.hpp"

namespace micro {

void measure_json() {
  using namespace reprise;
  using namespace reprise::graphs;
  const StepGraph graph = testing::resnet_step({.blocks = 475});
  const std::string text = graph_text(graph), nodes = std::to_string(graph.node_count());
  auto bytes = table("JSON", "byte");
  bytes.batch(text.size());
  bytes.run("parse_graph, " + nodes + " nodes",
            [&] { doNotOptimizeAway(parse_graph(text).node_count()); });
  bytes.run("graph_text, " + nodes + " nodes",
            [&] { doNotOptimizeAway(graph_text(graph).size()); });
  auto texts = table("JSON text", "text");
  std::string out;
  texts.run("append_json_string, 11 bytes", [&] {
    out.clear();
    append_json_string(out, "convolution");
    doNotOptimizeAway(out.data());
  });
  texts.run("append_json_number, a double", [&] {
    out.clear();
    append_json_number(out, 120.5);
    doNotOptimizeAway(out.data());
  });
}

}  // namespace micro
