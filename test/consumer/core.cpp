#include <iostream>

#include <reprise/reprise.hpp>

int main() {
  using namespace reprise::literals;

  reprise::GraphBuilder builder{"toy"};
  const auto x = builder.add_value({.id = 0, .name = "x", .bytes = 4_KiB, .role = reprise::Role::input, .persistent = true});
  const auto y = builder.add_value({.id = 1, .name = "y", .bytes = 8_KiB, .role = reprise::Role::activation});
  builder.add_node({.id = 0, .name = "double", .op = "aten::repeat"}, {x}, {y});
  builder.add_output(y);
  const reprise::StepGraph graph = std::move(builder).build();

  std::cout << graph.name() << ": " << graph.node_count() << " node, " << reprise::format_bytes(graph.persistent_bytes()) << " persistent\n";
}
