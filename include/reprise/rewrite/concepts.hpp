#pragma once
// What a Rewriter asks of its backend: to make something that can be run out of a checked
// Rewriting.
//
// ```cpp
// struct Count {  // the smallest backend there is
//   using Program = std::size_t;
//   Program compile(const StepGraph&, const Rewriting& made) const { return made.steps.size(); }
// };
// Rewriter<Count>{}.rewrite(graph, schedule);   // 9, for the toy's schedule
// ```
//
// docs/policies/backend.md shows one that computes.

#include <concepts>

#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise {

/// GraphBackend requires
///   1. Program                              a movable type: what can be run, in whatever way
///   2. compile(graph, rewriting) -> Program callable on a const backend; where it throws, nothing has changed. What the program
///                                           needs later of the two arguments it keeps itself, or says that they must outlive it.
template <class B>
concept GraphBackend = requires(const B& backend, const StepGraph& graph,
                                const Rewriting& rewriting) {
  typename B::Program;
  requires std::movable<typename B::Program>;
  { backend.compile(graph, rewriting) } -> std::same_as<typename B::Program>;
};

}  // namespace reprise
