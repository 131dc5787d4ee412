#pragma once
// ByteCost is a cost model for graphs without measurements. A node costs a launch plus the time to
// move its operands and results at a given bandwidth.
//
// ```cpp
// ByteCost{.gigabytes_per_second = 20, .launch_us = 2};   // 8 MB in, 8 MB out: 802 us
// ```
//
// ByteCost is too low for ops that compute more than they move (convolution, matrix product):
// measure these.

#include <reprise/plan/concepts.hpp>

namespace reprise::planning {

struct ByteCost {
  double gigabytes_per_second = 20;
  double launch_us = 2;

  [[nodiscard]] Microseconds time(const StepGraph& graph, NodeId n) const {
    std::int64_t bytes = 0;
    for (ValueId v : graph.inputs(n)) bytes += graph.storage(graph.value(v).storage).bytes.count;
    bool owns = false;
    for (ValueId v : graph.outputs(n)) {
      bytes += graph.value(v).bytes.count;
      owns = owns || graph.value(v).owns() || graph.value(v).overwrites.valid();
    }
    if (!owns) return {launch_us};  // a view moves nothing
    return {launch_us + static_cast<double>(bytes) / (gigabytes_per_second * 1e3)};
  }
};

static_assert(CostModel<ByteCost>);

}  // namespace reprise::planning

namespace reprise {
using planning::ByteCost;
}  // namespace reprise
