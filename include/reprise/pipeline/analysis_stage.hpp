#pragma once
// The first stage of a pipeline: what the graph says of the step before anything is planned.
//
//   AdapterAnalysis{}.analyse(graph).memory.floor      no plan is below this, so no budget either
//   AdapterAnalysis{}.analyse(graph).memory.peak       what the step takes in its own order
//
//   struct Mine { StepAnalysis analyse(const StepGraph& graph) const { … } };      another way to find it out

#include <concepts>

#include <reprise/graph/analysis.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::pipelines {

namespace analysis_requirement {
template <class A>
concept analyse = requires(const A& analysis, const StepGraph& graph) {
  { analysis.analyse(graph) } -> std::convertible_to<StepAnalysis>;
};
}  // namespace analysis_requirement

/// AnalysisStage requires: (1) to be movable; (2) analyse(graph) const -> StepAnalysis: liveness of
/// the activations, the peak of the graph's own order, and the floor.
template <class A>
concept AnalysisStage = std::movable<A> && analysis_requirement::analyse<A>;

/// True; where A is no AnalysisStage, one line of the compiler's output says what it lacks.
template <class A>
[[nodiscard]] consteval bool is_analysis_stage() {
  static_assert(std::movable<A>,
                "A is no AnalysisStage: it needs (1) to be movable; see "
                "docs/policies/analysis.md");
  static_assert(analysis_requirement::analyse<A>,
                "A is no AnalysisStage: it needs (2) StepAnalysis analyse(const StepGraph&) const; "
                "see docs/policies/analysis.md");
  return AnalysisStage<A>;
}

/// The default: liveness by Boost.Graph's searches on GraphAdapter, bytes by the simulator.
struct AdapterAnalysis {
  [[nodiscard]] static StepAnalysis analyse(const StepGraph& graph) {
    return reprise::graphs::analyse(graph);
  }
};
static_assert(AnalysisStage<AdapterAnalysis>);

/// The null model: of no step anything is known, and no budget is below a floor.
struct NullAnalysis {
  [[nodiscard]] static StepAnalysis analyse(const StepGraph& /*graph*/) { return {}; }
};
static_assert(AnalysisStage<NullAnalysis>);

}  // namespace reprise::pipelines

namespace reprise {
using pipelines::AdapterAnalysis;
using pipelines::AnalysisStage;
using pipelines::NullAnalysis;
}  // namespace reprise
