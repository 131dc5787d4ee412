// A graph without the four functions that an adapter needs is refused by one line that names them.

#include <cstddef>
#include <vector>

#include <reprise/graph/adapter.hpp>

namespace mine {

struct Layers {};

std::size_t node_count(const Layers&) { return 0; }
std::size_t value_count(const Layers&) { return 0; }
reprise::NodeId producer(const Layers&, reprise::ValueId) { return {}; }
#ifndef REPRISE_MUST_NOT_COMPILE
std::vector<reprise::ValueId> reads(const Layers&, reprise::NodeId) { return {}; }
#endif

}  // namespace mine

int main() {
  const mine::Layers net;
  const reprise::GraphAdapter<mine::Layers> adapter{net};
  return static_cast<int>(num_edges(adapter));
}
