// A cost model whose time() is no time is refused by one line that says what it needs.

#include <reprise/plan/planner.hpp>

struct Mine {
#ifdef REPRISE_MUST_NOT_COMPILE
  const char* time(const reprise::StepGraph&, reprise::NodeId) const { return "long"; }
#else
  reprise::Microseconds time(const reprise::StepGraph&, reprise::NodeId) const { return {1}; }
#endif
};

int main() { return static_cast<int>(reprise::Planner<Mine>{}.plan({}, {}).schedule.size()); }
