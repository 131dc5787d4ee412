// A cost model of one's own: the plan for a machine on which some ops are dearer than where the
// graph was measured.

#include <iostream>

#include <reprise/graph/json.hpp>
#include <reprise/reprise.hpp>

// Matrix products four times as slow as in the file.
struct SlowProducts {
  reprise::Microseconds time(const reprise::StepGraph& graph, reprise::NodeId n) const {
    const double us = graph.node(n).time.count;
    return {graph.node(n).op == "aten::mm" || graph.node(n).op == "aten::addmm" ? 4 * us : us};
  }
};

int main(int argc, char** argv) {
  if (argc != 2) return std::cerr << "usage: policy_cost_model GRAPH.json\n", 2;
  const reprise::StepGraph graph = reprise::read_graph_file(argv[1]);
  const reprise::PlanRequest request{
      .budget = reprise::Bytes{reprise::analyse_memory(graph).peak.count * 7 / 10}};
  const auto products = [&](const reprise::Plan& plan) {
    int again = 0;
    const auto counts = reprise::run_counts(graph, plan.schedule);
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (const auto& op = graph.node(reprise::NodeId{i}).op;
          op == "aten::mm" || op == "aten::addmm")
        again += static_cast<int>(counts[i]) - 1;
    return again;
  };
  const reprise::Plan measured = reprise::Planner<>{}.plan(graph, request),
                      slow = reprise::Planner<SlowProducts>{}.plan(graph, request);
  std::cout << "matrix products that run again: " << products(measured) << " as measured, "
            << products(slow) << " where they are dear\n";
  return measured.within_budget() && slow.within_budget() && products(slow) <= products(measured)
             ? 0
             : 1;
}
