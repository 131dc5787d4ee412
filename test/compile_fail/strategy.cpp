// A strategy without schedule() is refused by one line that says what it needs.

#include <reprise/plan/planner.hpp>

struct Mine {
  std::string_view name() const { return "mine"; }
#ifndef REPRISE_MUST_NOT_COMPILE
  reprise::Schedule schedule(const reprise::StepGraph& graph, const reprise::PlanRequest&) const {
    return reprise::own_order(graph);
  }
#endif
};

int main() {
  return static_cast<int>(
      reprise::Planner<reprise::MeasuredCost, Mine>{}.plan({}, {}).schedule.size());
}
