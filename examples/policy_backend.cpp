// A backend of one's own: an interpreter for a graph of arithmetic on doubles.

#include <iostream>
#include <vector>

#include <reprise/graph/builder.hpp>
#include <reprise/rewrite/rewriter.hpp>

namespace mine {

using namespace reprise;

// A number in each allocation; a slot is a look at it.
class Calculator {
 public:
  // the graph must outlive it
  Calculator(const StepGraph& graph, const Rewriting& rewriting)
      : graph_(&graph), rewriting_(rewriting) {}

  double run(double x) const {
    std::vector<double> bytes(rewriting_.allocations.size());
    const auto at = [&](SlotId s) -> double& {
      return bytes[rewriting_.slots[s.index].allocation.index];
    };
    for (SlotId s : rewriting_.at_start) at(s) = x;
    for (const ProgramStep& step : rewriting_.steps) {
      const std::string& op = graph_->node(step.node).op;
      double result = op == "one" ? 1 : at(step.reads[0]);
      if (op == "add") result += at(step.reads[1]);
      if (op == "double_") result *= 2;
      at(step.writes[0]) = result;  // in place where the slot lies in its target's allocation
      for (AllocationId a : step.frees) bytes[a.index] = -1e9;
    }
    return at(rewriting_.outputs[0]);
  }

 private:
  const StepGraph* graph_;
  Rewriting rewriting_;
};

struct CalculatorBackend {
  using Program = Calculator;
  Program compile(const StepGraph& graph, const Rewriting& rewriting) const {
    return {graph, rewriting};
  }
};

}  // namespace mine

int main() {
  using namespace reprise;
  GraphBuilder b;
  const ValueId x = b.add_value({.id = 0, .name = "x", .bytes = {8}, .persistent = true}),
                one = b.add_value({.id = 1, .name = "one", .bytes = {8}}),
                sum = b.add_value({.id = 2, .name = "sum", .bytes = {8}}),
                twice = b.add_value({.id = 3, .name = "twice", .overwrites = sum}),
                all = b.add_value({.id = 4, .name = "all", .bytes = {8}});
  const NodeId n_one = b.add_node({.id = 0, .op = "one"}, {}, {one});
  const NodeId n_sum = b.add_node({.id = 1, .op = "add"}, {x, one}, {sum});
  const NodeId n_twice = b.add_node({.id = 2, .op = "double_"}, {sum}, {twice});
  const NodeId n_all = b.add_node({.id = 3, .op = "add"}, {twice, one}, {all});
  b.add_output(all);
  const StepGraph graph = std::move(b).build();

  const Rewriter<mine::CalculatorBackend> rewriter;
  // 43
  std::cout << rewriter.rewrite(graph, own_order(graph)).run(20) << '\n';
  // one and sum run again
  const Schedule again{n_one, n_sum, n_one, n_sum, n_twice, n_all};
  // 43
  std::cout << rewriter.rewrite(graph, again).run(20) << '\n';
}
