// Plans one op whose output does not fit: the plan says what the least is.

#include <iostream>

#include <reprise/reprise.hpp>

int main() {
  using namespace reprise::literals;

  reprise::GraphBuilder builder{"toy"};
  const auto x = builder.add_value(
      {.id = 0, .name = "x", .bytes = 4_KiB, .role = reprise::Role::input, .persistent = true});
  const auto y =
      builder.add_value({.id = 1, .name = "y", .bytes = 8_KiB, .role = reprise::Role::activation});
  builder.add_node({.id = 0, .name = "double", .op = "aten::repeat"}, {x}, {y});
  builder.add_output(y);
  const reprise::Plan plan = reprise::Planner<reprise::MeasuredCost, reprise::Exhaustive>{}.plan(
      std::move(builder).build(), {.budget = 8_KiB});

  std::cout << "reprise: needs " << reprise::format_bytes(plan.floor) << ", budget "
            << reprise::format_bytes(plan.budget) << '\n';
  return plan.within_budget() ? 1 : 0;
}
