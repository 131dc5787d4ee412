#include <reprise/rewrite/rewriter.hpp>

#include <stdexcept>

#include <reprise/plan/planner.hpp>
#include <reprise/rewrite/backends/ir_backend.hpp>
#include <reprise_test/backend_archetype.hpp>
#include <reprise_test/toy.hpp>

using reprise_test::parameter_step;

namespace {

// Compiles as IrBackend does until it is told to fail.
struct Failing {
  using Program = IrProgram;
  const bool* fails;

  Program compile(const StepGraph& graph, const Rewriting& rewriting) const {
    if (*fails) throw std::runtime_error("no room");
    return IrBackend{}.compile(graph, rewriting);
  }
};

}  // namespace

TEST_CASE("the backend's program comes back; without a backend, the checked rewriting itself") {
  CHECK(Rewriter{}.rewrite(toy_graph(), toy_schedule()) == rewrite(toy_graph(), toy_schedule()));
  const Rewriter<IrBackend> rewriter;
  CHECK(rewriter.rewrite(toy_graph(), toy_schedule()).run() ==
        rewriter.rewrite(toy_graph(), own_order(toy_graph())).run());
}

TEST_CASE("a backend needs nothing but what its concept says") {
  const Rewriter rewriter{reprise_test::BackendArchetype::make()};
  [[maybe_unused]] const reprise_test::ProgramArchetype program =
      rewriter.rewrite(toy_graph(), toy_schedule());
  CHECK(refusal([&] {
          [[maybe_unused]] const auto none = rewriter.rewrite(toy_graph(), nodes({0}));
        }) == "bad schedule: step 1: node 1 (relu) never runs");
}

TEST_CASE("a plan is rewritten where it keeps its promise") {
  const Plan plan = Planner{}.plan(toy_graph(), {.budget = 24000_B, .keep_order = true});
  REQUIRE(recomputations(toy_graph(), plan.schedule) > 0);
  CHECK(Rewriter{}.rewrite(toy_graph(), plan).peak == plan.peak);
  Plan other = plan;
  other.peak = plan.peak - 1_B;
  CHECK(refusal([&] { return Rewriter{}.rewrite(toy_graph(), other); }) ==
        "bad schedule: peak: the plan promises " + std::to_string(plan.peak.count - 1) +
            " bytes, here its schedule has " + std::to_string(plan.peak.count) +
            " bytes: plan again for this graph");
}

TEST_CASE("what lint refuses is not compiled") {
  const bool fails = true;
  CHECK(refusal([&] {
          return Rewriter{Failing{&fails}}.rewrite(parameter_step(), nodes({0, 1, 0, 2}));
        }).starts_with("bad schedule: lint: effect_order: step 2: node 0 (read)"));
}

TEST_CASE("where rewriting fails, graph and program are as they were and can be run") {
  const StepGraph before = toy_graph();
  const StepGraph graph = toy_graph();
  bool fails = false;
  const Rewriter rewriter{Failing{&fails}};
  IrProgram program = rewriter.rewrite(graph, own_order(graph));
  const IrResult expected = program.run();
  fails = true;
  CHECK_THROWS_WITH(program = rewriter.rewrite(graph, toy_schedule()), "no room");
  CHECK_THROWS_AS(program = rewriter.rewrite(graph, nodes({1})), Error);
  CHECK(graph == before);
  CHECK(program.run() == expected);
  fails = false;
  program = rewriter.rewrite(graph, toy_schedule());
  CHECK(program.run() == expected);
}
