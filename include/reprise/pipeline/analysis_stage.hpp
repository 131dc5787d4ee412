#pragma once
// AnalysisStage is the first stage of a pipeline: what the graph says about the step before
// planning.
//
//   AdapterAnalysis{}.analyse(graph).memory.floor      no plan has a smaller peak, so no budget below it is possible
//   AdapterAnalysis{}.analyse(graph).memory.peak       the peak of the graph's own order
//
//   struct Mine { StepAnalysis analyse(const StepGraph& graph) const { … } };      another implementation

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

/// True. If A is no AnalysisStage, one line of the compiler's output says what it lacks.
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

/// The null model: it knows nothing about the step, and the floor is 0.
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
