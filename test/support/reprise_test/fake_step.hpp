#pragma once
// A step for a profiler that needs no LibTorch: its nodes do what a test wants them to.
//
//   FakeStep step{.graph = toy_graph(), .op = [&](NodeId n) { ++seen[n.index]; }};
//   Profiler<FixedTimer>{}.run(step);          // finds make_runner beside FakeStep

#include <cstddef>
#include <functional>

#include <reprise/profile/profiler.hpp>

namespace reprise_test {

struct FakeStep {
  reprise::StepGraph graph{};
  std::function<void(reprise::NodeId)> op{};          ///< what a node does
  std::function<void(reprise::Profile&)> complete{};  ///< what the runner knows beside the profiler
  int runs = 0;                                       ///< that were finished
  int runners_alive = 0;
};

class FakeRunner {
 public:
  explicit FakeRunner(FakeStep& step) : step_(&step) { ++step.runners_alive; }
  ~FakeRunner() { --step_->runners_alive; }
  FakeRunner(const FakeRunner&) = delete;
  FakeRunner& operator=(const FakeRunner&) = delete;

  [[nodiscard]] const reprise::StepGraph& graph() const { return step_->graph; }
  void complete(reprise::Profile& profile) {
    if (step_->complete) step_->complete(profile);
  }

  template <class Around>
  void run(Around around) {
    for (std::size_t i = 0; i < step_->graph.node_count(); ++i) {
      around.before(i);
      if (step_->op) step_->op(reprise::NodeId{i});
      around.after(i);
    }
    ++step_->runs;
  }

 private:
  FakeStep* step_;
};

[[nodiscard]] inline FakeRunner make_runner(FakeStep& step, const reprise::ProfileOptions&) {
  return FakeRunner(step);
}

}  // namespace reprise_test
