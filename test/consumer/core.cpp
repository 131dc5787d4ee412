// Plans a chain of four layers, forward and backward, inside what two activations less would take.

#include <iostream>
#include <vector>

#include <reprise/reprise.hpp>

int main() {
  using namespace reprise;
  using namespace reprise::literals;

  GraphBuilder b{"chain"};
  std::vector<ValueId> h{
      b.add_value({.id = 0, .name = "x", .bytes = 8_KiB, .role = Role::input, .persistent = true})};
  for (int i = 1; i <= 4; ++i) {
    h.push_back(b.add_value(
        {.id = i, .name = "h" + std::to_string(i), .bytes = 8_KiB, .role = Role::activation}));
    b.add_node(
        {.id = i, .name = "layer" + std::to_string(i), .op = "tanh", .time = Microseconds{1}},
        {h[h.size() - 2]}, {h.back()});
  }
  ValueId grad = h.back();
  for (int i = 4; i >= 1; --i) {
    const ValueId next = b.add_value(
        {.id = 10 + i, .name = "g" + std::to_string(i), .bytes = 8_KiB, .role = Role::gradient});
    b.add_node({.id = 10 + i,
                .name = "grad" + std::to_string(i),
                .op = "tanh_backward",
                .phase = Phase::backward,
                .time = Microseconds{1}},
               {h[static_cast<std::size_t>(i)], h[static_cast<std::size_t>(i) - 1], grad}, {next});
    grad = next;
  }
  b.add_output(grad);
  const StepGraph graph = std::move(b).build();

  const Plan plan = Planner<MeasuredCost, Exhaustive>{}.plan(graph, {.budget = 40_KiB});
  std::cout << graph.name() << ": " << format_bytes(plan.baseline_peak) << " to "
            << format_bytes(plan.peak) << ", " << recomputations(graph, plan.schedule)
            << " recomputed\n";
}
