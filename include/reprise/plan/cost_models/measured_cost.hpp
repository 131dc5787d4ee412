#pragma once
// MeasuredCost is the cost model of measured times: the graph's own. Copy it for a cost model of
// your own.

#include <reprise/plan/concepts.hpp>

namespace reprise::planning {

struct MeasuredCost {
  [[nodiscard]] Microseconds time(const StepGraph& graph, NodeId n) const {
    return graph.node(n).time;
  }
};

static_assert(CostModel<MeasuredCost>);

}  // namespace reprise::planning

namespace reprise {
using planning::MeasuredCost;
}  // namespace reprise
