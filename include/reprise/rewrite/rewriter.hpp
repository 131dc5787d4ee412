#pragma once
// Rewriter<GraphBackend> turns a schedule into a program: rewritten, checked, compiled by the
// backend.
//
// ```cpp
// auto program = Rewriter<IrBackend>{}.rewrite(graph, plan);
// program.run();
// ```
//
//   graph, schedule ──rewrite()──▶ Rewriting ──lint()──▶ the same, or an Error ──compile()──▶ Program
//
// Graph, schedule and existing programs are only read. If anything throws, they are unchanged and
// can be run.

#include <concepts>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <reprise/base/error.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/backends/null_backend.hpp>
#include <reprise/rewrite/concepts.hpp>
#include <reprise/rewrite/lint.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::rewriting {

/// A schedule with its predicted peak; Plan is one.
template <class P>
concept PromisedSchedule = requires(const P& plan) {
  { plan.schedule } -> std::convertible_to<const Schedule&>;
  { plan.peak } -> std::convertible_to<Bytes>;
};

template <class Backend = NullBackend>
class Rewriter {
  static_assert(is_graph_backend<Backend>());

 public:
  using Program = typename Backend::Program;

  explicit Rewriter(Backend backend = {}) : backend_(std::move(backend)) {}

  /// Throws Errc::bad_schedule with the broken rule, and the backend's own exceptions.
  [[nodiscard]] Program rewrite(const StepGraph& graph, std::span<const NodeId> schedule) const {
    return backend_.compile(graph, checked(graph, schedule));
  }

  /// The input of the backend, for code that needs the rewriting itself (to lay out an arena, to
  /// follow it around code that runs anyway). Throws as rewrite() does.
  [[nodiscard]] static Rewriting checked(const StepGraph& graph, std::span<const NodeId> schedule) {
    Rewriting rewriting = reprise::rewriting::rewrite(graph, schedule);
    lint(graph, rewriting);
    return rewriting;
  }

  /// The second half alone, for the result of checked().
  template <class Source>
  [[nodiscard]] Program compile(Source& source, const Rewriting& rewriting) const {
    return backend_.compile(source, rewriting);
  }

  /// The same. If the plan's predicted peak is not the peak of its schedule for this graph, the
  /// plan was made for another graph, and is refused.
  template <PromisedSchedule Plan>
  [[nodiscard]] Program rewrite(const StepGraph& graph, const Plan& plan) const {
    const Rewriting rewriting = reprise::rewriting::rewrite(graph, plan.schedule);
    if (rewriting.peak != plan.peak)
      throw Error(Errc::bad_schedule, "peak: the plan promises " + std::to_string(plan.peak.count) +
                                          " bytes, here its schedule has " +
                                          std::to_string(rewriting.peak.count) +
                                          ": plan again for this graph");
    lint(graph, rewriting);
    return backend_.compile(graph, rewriting);
  }

  /// For backends that need more than the graph: an object that has a graph (a CapturedStep) and
  /// that the backend can compile.
  template <class Source, class Schedule_>
  requires(!std::is_same_v<std::remove_cvref_t<Source>, StepGraph> &&
           std::convertible_to<Source&, const StepGraph&>) [[nodiscard]] Program
      rewrite(Source& source, const Schedule_& schedule) const {
    const StepGraph& graph = source;
    return Rewriter<BoundTo<Source>>{BoundTo<Source>{&backend_, &source}}.rewrite(graph, schedule);
  }

  [[nodiscard]] const Backend& backend() const { return backend_; }
  [[nodiscard]] Backend& backend() { return backend_; }

 private:
  template <class Source>
  struct BoundTo {
    using Program = typename Backend::Program;
    const Backend* backend = nullptr;
    Source* source = nullptr;
    [[nodiscard]] Program compile(const StepGraph& /*graph*/, const Rewriting& rewriting) const {
      return backend->compile(*source, rewriting);
    }
  };

  Backend backend_;
};

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::Rewriter;
}  // namespace reprise
