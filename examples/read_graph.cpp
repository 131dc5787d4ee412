// A graph file, asked for its peak and drawn around it: docs/graph.md shows it.

#include <fstream>
#include <iostream>

#include <reprise/graph/analysis.hpp>
#include <reprise/graph/json.hpp>
#include <reprise/report/dot.hpp>

int main(int argc, char** argv) {
  const reprise::StepGraph graph = reprise::read_graph_file(argc > 1 ? argv[1] : "step.json");
  const reprise::StepAnalysis a = reprise::analyse(graph);
  std::cout << "peak " << format_bytes(a.memory.peak) << " at "
            << graph.node(a.memory.peak_node).name << '\n';
  std::ofstream dot{"step.dot"};
  // then: dot -Tsvg step.dot > step.svg
  reprise::write_dot(dot, graph, {.around = a.memory.peak_node, .radius = 2});
}
