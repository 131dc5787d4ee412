// A timer without stop() is refused by one line that names what is missing.

#include <cstddef>
#include <vector>

#include <reprise/profile/profiler.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

struct Stopless {
  void begin_run(std::size_t) {}
  void start(std::size_t) {}
#ifndef REPRISE_MUST_NOT_COMPILE
  void stop(std::size_t) {}
#endif
  std::vector<reprise::Microseconds> end_run() { return {}; }
};

struct Step {};
struct Runner {
  reprise::StepGraph graph() const { return {}; }
  void complete(reprise::Profile&) {}
  template <class Around>
  void run(Around around) {
    around.before(0);
    around.after(0);
  }
};
Runner make_runner(Step&, const reprise::ProfileOptions&) { return {}; }

int main() {
  Step step;
  return static_cast<int>(reprise::Profiler<Stopless>{}.run(step).nodes.size());
}
