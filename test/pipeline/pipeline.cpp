#include <reprise/pipeline/pipeline.hpp>

#include <memory>
#include <string>
#include <vector>

#include <reprise/plan/cost_models/byte_cost.hpp>
#include <reprise/profile/timers/fixed_timer.hpp>
#include <reprise/rewrite/backends/ir_backend.hpp>
#include <reprise_test/backend_archetype.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/fake_step.hpp>
#include <reprise_test/plan_archetypes.hpp>
#include <reprise_test/profile_archetypes.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::testing;
using namespace reprise::literals;

namespace {

/// What was called, in order.
using Calls = std::shared_ptr<std::vector<std::string>>;

struct LoggingTimer : FixedTimer {
  Calls calls;
  explicit LoggingTimer(Calls c = {}) : calls(std::move(c)) {}
  void begin_run(std::size_t n) {
    calls->push_back("timer");
    FixedTimer::begin_run(n);
  }
};
struct LoggingCost {
  Calls calls;
  [[nodiscard]] Microseconds time(const StepGraph&, NodeId) const {
    if (calls->back() != "cost") calls->push_back("cost");
    return {1};
  }
};
struct LoggingStrategy {
  Calls calls;
  [[nodiscard]] static std::string_view name() { return "logging"; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    calls->push_back("strategy");
    return Anneal{}.schedule(graph, request);
  }
};
struct LoggingBackend : NullBackend {
  Calls calls;
  [[nodiscard]] Program compile(const StepGraph& graph, const Rewriting& rewriting) const {
    calls->push_back("backend");
    return NullBackend::compile(graph, rewriting);
  }
};
struct LoggingAnalysis {
  Calls calls;
  [[nodiscard]] StepAnalysis analyse(const StepGraph& graph) const {
    calls->push_back("analysis");
    return AdapterAnalysis::analyse(graph);
  }
};

/// A step that can be profiled and has a graph.
struct Step : reprise_test::FakeStep {
  operator const StepGraph&() const { return graph; }
};

Bytes half(const StepGraph& graph) {
  const Bytes floor = floor_bytes(graph);
  return floor + share_of(50, simulate(graph, own_order(graph)).peak - floor);
}

}  // namespace

TEST_CASE("the whole walk: analysis, profiler, planner, rewriter, each called once and in order") {
  const Calls calls = std::make_shared<std::vector<std::string>>();
  Pipeline pipeline{Profiler<LoggingTimer, NullProbe>{LoggingTimer{calls}},
                    Planner<LoggingCost, LoggingStrategy>{{calls}, {calls}},
                    Rewriter<LoggingBackend>{{{}, calls}}, LoggingAnalysis{calls}};
  Step step{{.graph = chain_step(12)}};
  const auto program =
      pipeline.compile(step, {.budget = half(step.graph), .effort = 0.1}, {.warmup = 0, .runs = 1});
  CHECK(*calls == std::vector<std::string>{"analysis", "timer", "cost", "strategy", "backend"});
  CHECK(step.runs == 1);
  CHECK(program.peak <= half(step.graph));
}

TEST_CASE("a budget below the floor is an error before the step runs once") {
  Pipeline<> pipeline;
  Step step{{.graph = chain_step(12)}};
  const Bytes floor = floor_bytes(step.graph);
  try {
    static_cast<void>(pipeline.compile(step, {.budget = floor - 1_B}));
    FAIL("compiled the impossible");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::budget_unreachable);
    CHECK(std::string(error.what()).find(format_bytes(floor)) != std::string::npos);
  }
  CHECK(step.runs == 0);
  // the null analysis knows of no floor: the planner finds out
  auto blind = Pipeline<>{}.with(NullAnalysis{});
  CHECK_THROWS_AS(blind.compile(step, {.budget = floor - 1_B, .effort = 0.01}), Error);
  CHECK(step.runs > 0);
}

TEST_CASE("any stage is replaced in one line, and the others stay as they were") {
  const Calls calls = std::make_shared<std::vector<std::string>>(1, "");
  auto pipeline = Pipeline<>{}
                      .with(Planner<LoggingCost, NeverRecompute>{{}, {calls}})
                      .with(Profiler<FixedTimer, NullProbe>{FixedTimer{{5}}})
                      .with(Rewriter<IrBackend>{})
                      .with(NullAnalysis{});
  Step step{{.graph = chain_step(4)}};
  CHECK(pipeline.planner().strategy().name() == "never");
  CHECK(pipeline.profile(step).nodes[0].time == Microseconds{5});
  static_cast<void>(pipeline.plan(step.graph, {.budget = 1_GiB}));
  CHECK(calls->back() == "cost");
  CHECK(pipeline.analyse(step.graph).activations.empty());
  static_cast<void>(pipeline.rewrite(step.graph, own_order(step.graph)));
}

TEST_CASE("a strategy is chosen by name when the program runs") {
  const StepGraph graph = chain_step(16);
  for (const std::string_view name : {"min-cut", "mu-two", "anneal"}) {
    auto pipeline = Pipeline<>{}.with(Planner<MeasuredCost, AnyStrategy>{AnyStrategy(name)});
    const PlanRequest request{.budget = half(graph), .effort = 0.1};
    const Plan plan = pipeline.plan(graph, request);
    CHECK(plan.strategy == name);
    CHECK(plan.schedule == plan_with(name, graph, request).schedule);
  }
  CHECK(AnyStrategy{}.name() == "anneal");
  CHECK(AnyStrategy(NeverRecompute{}).name() == "never");
  CHECK(AnyStrategy(NeverRecompute{}).schedule(graph, {}) == own_order(graph));
  CHECK_THROWS_AS(AnyStrategy("best"), Error);
}

TEST_CASE("a pipeline asks no more of its stages than the concepts say") {
  using namespace reprise_test;
  using Least = Pipeline<Profiler<TimerArchetype, MemProbeArchetype>,
                         Planner<CostModelArchetype, StrategyArchetype>, Rewriter<BackendArchetype>,
                         AnalysisArchetype>;
  Least pipeline{
      Profiler{TimerArchetype{1}, MemProbeArchetype{1}},
      Planner<CostModelArchetype, StrategyArchetype>{StrategyArchetype{1}, CostModelArchetype{1}},
      Rewriter{BackendArchetype::make()}, AnalysisArchetype{1}};
  Step step{{.graph = chain_step(4)}};
  static_cast<void>(pipeline.compile(step, {.budget = 1_GiB}));
  CHECK(step.runs == 4);
}
