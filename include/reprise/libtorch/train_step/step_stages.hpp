#pragma once
// The stages of a TrainStep: those of every front, and a backend that compiles programs.
//
//   StepStages stages = step_stages(pipeline, options.run);
//   Rewriting rewriting = stages.rewrite(captured.graph(), schedule);
//   LibTorchProgram program = stages.compile(captured, rewriting);

#include <functional>
#include <type_traits>

#include <reprise/libtorch/pipeline/default_pipeline.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/pipeline/stages.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::training {

struct StepStages : Stages {
  std::function<LibTorchProgram(CapturedStep&, const Rewriting&)> compile{};
  bool plans_addresses = false;  ///< programs get an arena
};

/// The pipeline must outlive the stages.
template <class Pipe>
[[nodiscard]] StepStages step_stages(Pipe& pipeline, const RunOptions& run) {
  using Backend = std::remove_cvref_t<decltype(pipeline.rewriter().backend())>;
  return {stages_of(pipeline, plan_stage(pipeline.planner(), run)),
          [&](CapturedStep& step, const Rewriting& rewriting) {
            return pipeline.rewriter().compile(step, rewriting);
          },
          Backend::Memory::plans_addresses};
}

}  // namespace reprise::training
