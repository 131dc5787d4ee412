#pragma once
// What was measured: the graph's own times. The cost model to copy for one's own.

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
