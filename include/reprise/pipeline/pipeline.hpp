#pragma once
// A Pipeline turns a step's graph into a program that runs inside a budget. TrainStep and
// MemoryBudget have one, and this header is the walk that both take.
//
//   capture ──▶ StepGraph ──▶ analyse ──▶ profile ──▶ plan ──▶ rewrite ──▶ program ──▶ run
//                             floor, peak   times       Plan      checked, then compiled by the backend
//                             liveness      bytes
//
//   using Mine = Pipeline<Profiler<SteadyTimer, NullProbe>, Planner<ByteCost, MinCut>, Rewriter<IrBackend>>;
//   auto program = Mine{}.compile(captured, {.budget = 4_GiB});        the whole walk, once
//   Pipeline<>{}.with(Planner<ByteCost, MinCut>{})                     one stage replaced
//
// The fronts call the same stages one at a time: times come from steps that run anyway, and a step
// is planned again if headroom or times change (plan/replanner.hpp).

#include <concepts>
#include <utility>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/pipeline/analysis_stage.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/profile/profiler.hpp>
#include <reprise/rewrite/rewriter.hpp>

namespace reprise::pipelines {

template <class ProfilerStage = Profiler<>, class PlannerStage = Planner<MeasuredCost, AnyStrategy>,
          class RewriterStage = Rewriter<>, class Analysis = AdapterAnalysis>
class Pipeline {
  static_assert(std::same_as<ProfilerStage, void>,
                "Pipeline<P, Q, R, A> needs stages in this order: Profiler<Timer, MemProbe>, "
                "Planner<CostModel, Strategy>, Rewriter<GraphBackend>, and an AnalysisStage; see "
                "docs/policies/pipeline.md");
};

template <class T, class P, class Cost, class Policy, class Backend, class Analysis>
class Pipeline<Profiler<T, P>, Planner<Cost, Policy>, Rewriter<Backend>, Analysis> {
  static_assert(is_timer<T>() && is_mem_probe<P>() && is_cost_model<Cost>() &&
                is_strategy<Policy>() && is_graph_backend<Backend>() &&
                is_analysis_stage<Analysis>());

 public:
  Pipeline() = default;
  explicit Pipeline(Profiler<T, P> profiler, Planner<Cost, Policy> planner = {},
                    Rewriter<Backend> rewriter = Rewriter<Backend>{}, Analysis analysis = {})
      : profiler_(std::move(profiler)),
        planner_(std::move(planner)),
        rewriter_(std::move(rewriter)),
        analysis_(std::move(analysis)) {}

  // ── the walk, stage by stage ───────────────────────────────────────────────────────────────────

  /// 1. Analyses the graph: liveness, the peak of its own order, the floor.
  [[nodiscard]] StepAnalysis analyse(const StepGraph& graph) const {
    return analysis_.analyse(graph);
  }
  /// 2. Measures the cost of every node. `step` models ProfilableStep.
  template <class Step>
  [[nodiscard]] Profile profile(Step& step, const ProfileOptions& options = {}) {
    return profiler_.run(step, options);
  }
  /// 3. Decides which nodes are recomputed, and when.
  [[nodiscard]] Plan plan(const StepGraph& graph, const PlanRequest& request) const {
    return planner_.plan(graph, request);
  }
  /// 4. Makes a program: rewritten, checked, compiled by the backend.
  template <class Source>
  [[nodiscard]] typename Backend::Program rewrite(Source& source, const Schedule& schedule) const {
    return rewriter_.rewrite(source, schedule);
  }

  /// The whole walk. Throws Errc::budget_unreachable if the budget is below the floor, before
  /// anything runs, or if no plan was found.
  template <class Step>
  [[nodiscard]] typename Backend::Program compile(Step& step, const PlanRequest& request,
                                                  const ProfileOptions& options = {}) {
    const StepGraph& graph = step;
    const Bytes floor = analyse(graph).memory.floor;
    if (request.budget < floor)
      throw Error(Errc::budget_unreachable,
                  "no plan for a budget of " + format_bytes(request.budget) +
                      ": no schedule can use less than " + format_bytes(floor));
    const Profile measured = profile(step, options);
    return rewrite(step, planner_.plan_or_throw(measured.graph, request).schedule);
  }

  // ── its stages ─────────────────────────────────────────────────────────────────────────────────

  [[nodiscard]] Profiler<T, P>& profiler() { return profiler_; }
  [[nodiscard]] const Planner<Cost, Policy>& planner() const { return planner_; }
  [[nodiscard]] Rewriter<Backend>& rewriter() { return rewriter_; }

  /// The same pipeline with one stage replaced.
  template <class T2, class P2>
  [[nodiscard]] auto with(Profiler<T2, P2> profiler) && {
    return Pipeline<Profiler<T2, P2>, Planner<Cost, Policy>, Rewriter<Backend>, Analysis>(
        std::move(profiler), std::move(planner_), std::move(rewriter_), std::move(analysis_));
  }
  template <class C2, class S2>
  [[nodiscard]] auto with(Planner<C2, S2> planner) && {
    return Pipeline<Profiler<T, P>, Planner<C2, S2>, Rewriter<Backend>, Analysis>(
        std::move(profiler_), std::move(planner), std::move(rewriter_), std::move(analysis_));
  }
  template <class B2>
  [[nodiscard]] auto with(Rewriter<B2> rewriter) && {
    return Pipeline<Profiler<T, P>, Planner<Cost, Policy>, Rewriter<B2>, Analysis>(
        std::move(profiler_), std::move(planner_), std::move(rewriter), std::move(analysis_));
  }
  template <AnalysisStage A2>
  [[nodiscard]] auto with(A2 analysis) && {
    return Pipeline<Profiler<T, P>, Planner<Cost, Policy>, Rewriter<Backend>, A2>(
        std::move(profiler_), std::move(planner_), std::move(rewriter_), std::move(analysis));
  }

 private:
  Profiler<T, P> profiler_;
  Planner<Cost, Policy> planner_;
  Rewriter<Backend> rewriter_;
  Analysis analysis_;
};

template <class T, class P, class Cost, class Policy, class Backend>
Pipeline(Profiler<T, P>, Planner<Cost, Policy>, Rewriter<Backend>)
    -> Pipeline<Profiler<T, P>, Planner<Cost, Policy>, Rewriter<Backend>>;
template <class T, class P, class Cost, class Policy, class Backend, AnalysisStage Analysis>
Pipeline(Profiler<T, P>, Planner<Cost, Policy>, Rewriter<Backend>, Analysis)
    -> Pipeline<Profiler<T, P>, Planner<Cost, Policy>, Rewriter<Backend>, Analysis>;

}  // namespace reprise::pipelines

namespace reprise {
using pipelines::Pipeline;
}  // namespace reprise
