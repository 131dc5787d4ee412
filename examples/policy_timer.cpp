// A timer of one's own: how long the process's threads worked, all together, instead of how long
// one waited for them.

#include <cstddef>
#include <ctime>
#include <iostream>
#include <numeric>
#include <vector>

#include <reprise/reprise.hpp>

using reprise::Microseconds;

class CpuTimer {
 public:
  void begin_run(std::size_t occurrences) { times_.assign(occurrences, {}); }
  void start(std::size_t) { started_ = now(); }
  void stop(std::size_t i) { times_[i] = now() - started_; }
  std::vector<Microseconds> end_run() { return times_; }

 private:
  static Microseconds now() {
    std::timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return {static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3};
  }

  std::vector<Microseconds> times_;
  Microseconds started_{};
};

static_assert(reprise::Timer<CpuTimer>);

// Something to measure: a step of two nodes. A step that reprise::capture has made is measured in
// the same way.
struct Step {
  std::vector<double> numbers = std::vector<double>(1 << 20, 1.0);
  double sum = 0;
};

struct Runner {
  Step& step;
  reprise::StepGraph nodes = [] {
    reprise::GraphBuilder builder{"numbers"};
    builder.add_node({.id = 0, .name = "running sums"}, {}, {});
    builder.add_node({.id = 1, .name = "sum"}, {}, {});
    return std::move(builder).build();
  }();

  const reprise::StepGraph& graph() const { return nodes; }
  void complete(reprise::Profile&) {}

  template <class Around>
  void run(Around around) {
    around.before(0);
    std::partial_sum(step.numbers.begin(), step.numbers.end(), step.numbers.begin());
    around.after(0);
    around.before(1);
    step.sum = std::accumulate(step.numbers.begin(), step.numbers.end(), 0.0);
    around.after(1);
  }
};

Runner make_runner(Step& step, const reprise::ProfileOptions&) { return {step}; }

int main() {
  Step step;
  const reprise::Profile profile =
      reprise::Profiler<CpuTimer>{}.run(step, {.warmup = 1, .runs = 5});
  reprise::print_stats(std::cout, profile);
}
