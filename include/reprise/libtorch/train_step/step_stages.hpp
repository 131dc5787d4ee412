#pragma once
// StepStages are the stages of a pipeline in the form in which a TrainStep's planning calls them.
//
//   StepStages stages = step_stages(pipeline, options.run);
//   stages.analyse(graph).memory.floor
//   stages.planner.plan(graph, request)
//   stages.rewrite(captured, schedule)        {.rewriting, .program}

#include <functional>

#include <reprise/graph/analysis.hpp>
#include <reprise/libtorch/pipeline/default_pipeline.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::training {

struct StepStages {
  struct Rewritten {
    Rewriting rewriting;
    LibTorchProgram program;
  };

  std::function<StepAnalysis(const StepGraph&)> analyse{};
  PlanStage planner{};
  std::function<Rewritten(CapturedStep&, const Schedule&)> rewrite{};
  bool plans_addresses = false;  ///< programs get an arena
};

/// The pipeline must outlive the result.
template <class Pipe>
[[nodiscard]] StepStages step_stages(Pipe& pipeline, const RunOptions& run) {
  using Backend = std::remove_cvref_t<decltype(pipeline.rewriter().backend())>;
  return {.analyse = [&](const StepGraph& graph) { return pipeline.analyse(graph); },
          .planner = plan_stage(pipeline.planner(), run),
          .rewrite =
              [&](CapturedStep& step, const Schedule& schedule) {
                Rewriting rewriting = pipeline.rewriter().checked(step.graph(), schedule);
                LibTorchProgram program = pipeline.rewriter().compile(step, rewriting);
                return StepStages::Rewritten{std::move(rewriting), std::move(program)};
              },
          .plans_addresses = Backend::Memory::plans_addresses};
}

}  // namespace reprise::training
