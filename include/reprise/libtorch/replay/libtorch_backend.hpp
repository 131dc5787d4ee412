#pragma once
// LibTorchBackend compiles runnable programs: the last stage of the pipeline, for a captured step.
//
//   auto captured = capture(model, loss_fn, x, y);
//   auto plan     = Planner{}.plan(captured.graph(), {.budget = 4_GiB});
//   auto program  = Rewriter<LibTorchBackend<>>{}.rewrite(captured, plan);       // rewritten, linted, compiled
//   auto loss     = run(program, x, y);                                         // .grad is filled
//
// If lint() refuses a rewriting, it throws before anything is compiled. Existing programs can still
// be run.

#include <utility>
#include <vector>

#include <reprise/libtorch/replay/arena.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>
#include <reprise/rewrite/concepts.hpp>
#include <reprise/rewrite/rewriter.hpp>

namespace reprise::replaying {

/// Compiles captured steps into programs. It owns the StepMemory in which they run.
template <class StepMemoryPolicy = ArenaMemory>
class LibTorchBackend {
  static_assert(is_step_memory<StepMemoryPolicy>());

 public:
  using Program = LibTorchProgram;
  using Memory = StepMemoryPolicy;

  LibTorchBackend() = default;
  explicit LibTorchBackend(Memory memory) : memory_(std::move(memory)) {}
  /// For Rewriter::rewrite(graph, ...): the captured step of that graph.
  explicit LibTorchBackend(CapturedStep& step) : step_(&step) {}

  [[nodiscard]] Program compile(CapturedStep& step, const Rewriting& rewriting) const {
    return LibTorchProgram(step, rewriting);
  }

  /// Throws Errc::bad_argument if the graph is not the graph of the backend's step.
  [[nodiscard]] Program compile(const StepGraph& graph, const Rewriting& rewriting) const {
    if (step_ == nullptr || &step_->graph() != &graph)
      throw Error(Errc::bad_argument,
                  "LibTorchBackend runs captured steps: give rewrite() the CapturedStep, not a "
                  "graph of its own");
    return LibTorchProgram(*step_, rewriting);
  }

  /// The memory in which this backend's programs run.
  [[nodiscard]] Memory& memory() { return memory_; }

 private:
  CapturedStep* step_ = nullptr;
  Memory memory_{};
};

template <StepMemory M>
LibTorchBackend(M) -> LibTorchBackend<M>;
LibTorchBackend(CapturedStep&)->LibTorchBackend<>;

static_assert(GraphBackend<LibTorchBackend<>>);

/// Runs a program on the model of the capture, with new inputs. Writes every .grad and returns the
/// loss. Throws Errc::capture_failed if a data-dependent number differs from the captured one;
/// nothing has changed then.
template <class... Inputs>
[[nodiscard]] at::Tensor run(LibTorchProgram& program, const Inputs&... inputs) {
  const BoundTensors& bound = program.step().bound();
  const std::vector<at::Tensor> tensors = arguments_of(inputs...).tensors;
  std::vector<NamedTensor> leaves = bound.model.parameters;
  for (const at::Tensor& t : tensors)
    if (t.requires_grad()) leaves.push_back({"input", t});
  RunOutcome outcome = program.run({bound.model.parameters, bound.model.buffers, tensors, leaves});
  if (!outcome.completed) throw Error(Errc::capture_failed, outcome.difference);
  const auto& gradient_of = program.step().gradient_of();
  for (std::size_t i = 0; i < gradient_of.size(); ++i)
    leaves[gradient_of[i]].tensor.mutable_grad() = std::move(outcome.gradients[i]);
  return outcome.results.front();
}

}  // namespace reprise::replaying

namespace reprise {
using replaying::LibTorchBackend;
}  // namespace reprise
