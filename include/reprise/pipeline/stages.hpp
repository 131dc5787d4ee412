#pragma once
// The stages of a pipeline as TrainStep and MemoryBudget ask them, whatever their types are.
//
//   Stages stages = stages_of(pipeline, plan_stage(pipeline.planner(), options.run));
//   stages.analyse(graph).memory.floor
//   stages.planner.plan(graph, request)
//   stages.rewrite(graph, plan.schedule)         checked: throws if the schedule breaks a rule
//
// A front asks one stage at a time (plan/replanner.hpp): times come from steps that run anyway, and
// a plan is made again when headroom or times change.

#include <functional>

#include <reprise/graph/analysis.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/plan_search.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::pipelines {

struct Stages {
  std::function<StepAnalysis(const StepGraph&)> analyse{};
  PlanStage planner{};
  std::function<Rewriting(const StepGraph&, const Schedule&)> rewrite{};
};

/// The pipeline must outlive the stages.
template <class Pipe>
[[nodiscard]] Stages stages_of(Pipe& pipeline, const PlanStage& planner) {
  return {.analyse = [&](const StepGraph& graph) { return pipeline.analyse(graph); },
          .planner = planner,
          .rewrite =
              [&](const StepGraph& graph, const Schedule& schedule) {
                return pipeline.rewriter().checked(graph, schedule);
              }};
}

}  // namespace reprise::pipelines
