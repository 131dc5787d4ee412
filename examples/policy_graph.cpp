// A graph of one's own behind Boost.Graph's concepts: four functions, and its dependencies can be
// asked about.

#include <iostream>
#include <vector>

#include <reprise/graph/dependency_order.hpp>

namespace mine {

using reprise::NodeId;
using reprise::ValueId;

// Layers that feed one another: layer i makes value i, the batch is the last value.
struct Layers {
  std::vector<std::vector<int>> fed_by;  // by layer; -1 is the batch
};

std::size_t node_count(const Layers& net) { return net.fed_by.size(); }
std::size_t value_count(const Layers& net) { return net.fed_by.size() + 1; }

NodeId producer(const Layers& net, ValueId v) {
  return v.index < net.fed_by.size() ? NodeId{v.index} : NodeId::none();
}

std::vector<ValueId> reads(const Layers& net, NodeId n) {
  std::vector<ValueId> values;
  for (int layer : net.fed_by[n.index])
    values.push_back(layer < 0 ? ValueId{net.fed_by.size()}
                               : ValueId{static_cast<std::size_t>(layer)});
  return values;
}

}  // namespace mine

int main() {
  const mine::Layers net{{{-1}, {0}, {0, 1}}};  // the third layer has a skip connection
  const reprise::GraphAdapter adapter{net};

  // 0 1 2
  for (reprise::NodeId n : reprise::dependency_order(adapter)) std::cout << n.index << ' ';

  // What must run to have layer 2's output again, where that of layer 0 has been kept?
  const auto cone = reprise::recompute_cone(adapter, reprise::ValueId{2}, {reprise::ValueId{0}});
  for (reprise::NodeId n : cone.nodes) std::cout << n.index << ' ';  // 1 2
}
