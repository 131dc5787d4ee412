// A probe of one's own: what malloc has handed out (glibc), whoever asked for it. Beside the bytes
// of tensors that shows what libraries take for themselves.

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <vector>

#include <reprise/reprise.hpp>

using reprise::Bytes;
using reprise::MemorySample;

class MallocProbe {
 public:
  void begin_run() { run_peak_ = held(); }
  void begin_op() { before_ = held(); }
  MemorySample end_op() {
    const Bytes after = held();
    // malloc keeps no peak: what an op takes and gives back is not seen
    const Bytes peak = std::max(before_, after);
    run_peak_ = std::max(run_peak_, peak);
    return {before_, peak, after};
  }
  Bytes end_run() { return run_peak_; }

 private:
  static Bytes held() {
    const auto info = mallinfo2();
    // in the heap, and mapped on their own
    return {static_cast<std::int64_t>(info.uordblks + info.hblkhd)};
  }

  Bytes before_{}, run_peak_{};
};

static_assert(reprise::MemProbe<MallocProbe>);

// Something to measure: a step that keeps a little, then a lot, and gives it all back. A step that
// reprise::capture has made is measured in the same way.
struct Step {
  std::vector<std::vector<char>> kept;
};

struct Runner {
  Step& step;
  reprise::StepGraph nodes = [] {
    reprise::GraphBuilder builder{"keep"};
    builder.add_node({.id = 0, .name = "a little"}, {}, {});
    builder.add_node({.id = 1, .name = "a lot"}, {}, {});
    return std::move(builder).build();
  }();

  const reprise::StepGraph& graph() const { return nodes; }
  void complete(reprise::Profile&) {}

  template <class Around>
  void run(Around around) {
    for (std::size_t i = 0; i < 2; ++i) {
      around.before(i);
      step.kept.emplace_back(i == 0 ? 1 << 16 : 1 << 24);
      around.after(i);
    }
    step.kept.clear();
  }
};

Runner make_runner(Step& step, const reprise::ProfileOptions&) { return {step}; }

int main() {
  Step step;
  const reprise::Profile profile = reprise::Profiler<reprise::SteadyTimer, MallocProbe>{}.run(step);
  for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
    const MemorySample& seen = profile.nodes[i].memory;
    std::cout << profile.graph.node(reprise::NodeId{i}).name << " keeps "
              << reprise::format_bytes(seen.after - seen.before) << '\n';
  }
}
