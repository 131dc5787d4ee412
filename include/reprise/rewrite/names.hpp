#pragma once
// name_of() gives nodes, values and their instances the names that people read.
//
// ```cpp
// name_of(graph.value(h));       // "h", or "value 2" without a name
// name_of(graph.node(norm), 1);  // "norm#1": its second run
// ```

#include <cstdint>
#include <string>

#include <reprise/graph/step_graph.hpp>

namespace reprise::rewriting {

[[nodiscard]] inline std::string with_clone(const std::string& name, std::uint32_t clone) {
  return clone == 0 ? name : name + "#" + std::to_string(clone);
}

[[nodiscard]] inline std::string name_of(const Value& v, std::uint32_t clone = 0) {
  return with_clone(v.name.empty() ? "value " + std::to_string(v.id) : v.name, clone);
}

[[nodiscard]] inline std::string name_of(const Node& n, std::uint32_t clone = 0) {
  return with_clone(n.name.empty() ? "node " + std::to_string(n.id) : n.name, clone);
}

}  // namespace reprise::rewriting
