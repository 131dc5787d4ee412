#pragma once
// DefaultPipeline is the pipeline of TrainStep and MemoryBudget if the user names no other
// pipeline.
//
//   using Mine = reprise::Pipeline<reprise::Profiler<reprise::SteadyTimer, reprise::AllocatorProbe>,
//                                  reprise::Planner<MyCost, reprise::Anneal>,
//                                  reprise::Rewriter<reprise::LibTorchBackend<reprise::ArenaMemory>>>;
//   reprise::TrainStep step{model, loss_fn, {.budget = 4_GiB}, Mine{}};
//   reprise::BasicMemoryBudget budget{4_GiB, Mine{}, reprise::LargestFirst{}};
//   reprise::DefaultPipeline{}.with(reprise::Planner<MyCost, reprise::Anneal>{})        the same pipeline
//
// A MemoryBudget runs the user's own code, so it asks its rewriter only for the checked rewriting:
// the backend compiles nothing.

#include <concepts>
#include <string>
#include <utility>

#include <reprise/libtorch/options/run_options.hpp>
#include <reprise/libtorch/replay/arena.hpp>
#include <reprise/libtorch/replay/libtorch_backend.hpp>
#include <reprise/libtorch/torch/allocator_probe.hpp>
#include <reprise/pipeline/pipeline.hpp>
#include <reprise/plan/cost_models/measured_cost.hpp>
#include <reprise/plan/plan_search.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/profile/timers/steady_timer.hpp>
#include <reprise/rewrite/rewriter.hpp>

namespace reprise::pipelines {

using DefaultPipeline =
    Pipeline<Profiler<SteadyTimer, AllocatorProbe>, Planner<MeasuredCost, AnyStrategy>,
             Rewriter<LibTorchBackend<ArenaMemory>>>;

/// True. If P is no Pipeline, one line of the compiler's output says what to pass instead.
template <class P>
[[nodiscard]] consteval bool is_step_pipeline() {
  constexpr bool yes = requires(P & p) {
    p.profiler();
    p.planner();
    p.rewriter().backend().memory();
  };
  static_assert(yes,
                "P is no Pipeline with a LibTorchBackend: replace one stage of the default one, "
                "DefaultPipeline{}.with(Rewriter{LibTorchBackend{memory}}); see "
                "docs/policies/pipeline.md");
  return yes;
}

/// The options may name another strategy, or give a function, for the pipeline's planner. Throws
/// Errc::bad_argument for an unknown strategy.
template <class Cost, class Policy>
[[nodiscard]] PlanStage plan_stage(const Planner<Cost, Policy>& planner, const RunOptions& run) {
  if (run.planner) return {run.planner, {}, true};
  constexpr bool own_costs = !std::same_as<Cost, MeasuredCost>;
  const auto stage = [](auto asked) {
    std::string name(asked.strategy().name());
    return PlanStage{
        [asked = std::move(asked)](const StepGraph& graph, const PlanRequest& request) {
          return asked.plan(graph, request);
        },
        std::move(name), own_costs};
  };
  if (run.strategy.empty()) return stage(planner);
  return stage(Planner<Cost, AnyStrategy>{AnyStrategy(run.strategy), planner.cost()});
}

}  // namespace reprise::pipelines

namespace reprise {
using pipelines::DefaultPipeline;
}  // namespace reprise
