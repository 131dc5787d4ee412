// A node's id is not a value's: the two cannot be mistaken for each other.

#include <reprise/graph/step_graph.hpp>

const reprise::Value& read(const reprise::StepGraph& graph, reprise::NodeId node,
                           reprise::ValueId value) {
#ifdef REPRISE_MUST_NOT_COMPILE
  return graph.value(node);
#else
  return static_cast<void>(node), graph.value(value);
#endif
}
