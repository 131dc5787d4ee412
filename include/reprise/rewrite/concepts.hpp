#pragma once
// GraphBackend is the concept of a Rewriter's backend: it turns a checked Rewriting into a runnable
// program.
//
// ```cpp
// struct Count {  // the smallest backend there is
//   using Program = std::size_t;
//   Program compile(const StepGraph&, const Rewriting& made) const { return made.steps.size(); }
// };
// Rewriter<Count>{}.rewrite(graph, schedule);   // 9, for the toy's schedule
// ```
//
// docs/policies/backend.md has a backend that computes.

#include <concepts>

#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::rewriting {

namespace graph_backend_requirement {
template <class B>
concept program = requires {
  typename B::Program;
}
&&std::movable<typename B::Program>;
template <class B>
concept compile = requires(const B& backend, const StepGraph& graph, const Rewriting& rewriting) {
  { backend.compile(graph, rewriting) } -> std::same_as<typename B::Program>;
};
}  // namespace graph_backend_requirement

/// GraphBackend requires
///   1. Program                              a movable type: what can be run, in whatever way
///   2. compile(graph, rewriting) -> Program callable on a const backend; if it throws, nothing has changed. The program keeps what it
///                                           needs later of the two arguments, or documents that they must outlive it.
template <class B>
concept GraphBackend =
    graph_backend_requirement::program<B> && graph_backend_requirement::compile<B>;

/// True. If B is no GraphBackend, one line of the compiler's output says what it lacks.
template <class B>
[[nodiscard]] consteval bool is_graph_backend() {
  static_assert(graph_backend_requirement::program<B>,
                "B is no GraphBackend: it needs (1) a movable type B::Program; see "
                "docs/policies/backend.md");
  static_assert(graph_backend_requirement::compile<B>,
                "B is no GraphBackend: it needs (2) Program compile(const StepGraph&, const "
                "Rewriting&) const; see docs/policies/backend.md");
  return GraphBackend<B>;
}

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::GraphBackend;
}  // namespace reprise
