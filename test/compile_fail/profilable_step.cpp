// A step whose runner cannot run is refused by one line that names what is missing.

#include <reprise/profile/profiler.hpp>

struct Step {};
struct Runner {
  reprise::StepGraph nodes{};
  const reprise::StepGraph& graph() const { return nodes; }
  void complete(reprise::Profile&) {}
#ifndef REPRISE_MUST_NOT_COMPILE
  template <class Around>
  void run(Around) {}
#endif
};
Runner make_runner(Step&, const reprise::ProfileOptions&) { return {}; }

int main() {
  Step step;
  return static_cast<int>(reprise::Profiler<>{}.run(step).runs);
}
