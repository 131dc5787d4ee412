#pragma once
// capture() runs one real training step under the recorder and keeps everything that a replay
// needs.
//
//   CapturedStep step = reprise::capture(model, loss_fn, x, y);
//   step.graph();        // a StepGraph: one graph, one set of ids, from here to the end
//   step.loss();         // what eager would have given, bit for bit; every .grad is filled
//
// The step is valid: the loss and the gradients may be used. If the options have an optimizer, its
// step is recorded too, for analysis (optimizer_state comes from there). Such a capture is not
// meant to be replayed.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <reprise/base/error.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/libtorch/record/recorder.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/residency/memory_limit.hpp>
#include <reprise/libtorch/torch/model_tensors.hpp>
#include <reprise/libtorch/torch/step_arguments.hpp>

namespace reprise::recording {

/// An optimizer in the form in which capture() uses it: something to call after backward(). Made
/// from a pointer to any torch::optim optimizer.
struct CapturedOptimizer {
  std::function<void()> step{};

  CapturedOptimizer() = default;
  template <class Optimizer>
  requires requires(Optimizer& optimizer) { optimizer.step(); }
  CapturedOptimizer(Optimizer* optimizer) : step([optimizer] { optimizer->step(); }) {}
};

struct CaptureOptions {
  std::string name = "step";
  CapturedOptimizer optimizer{};
  RecorderHooks* hooks = nullptr;
  /// the largest number of live bytes during the capture; 0 for no limit. The rest is spilled
  Bytes memory_limit{};
  /// folder of the spill file; empty for the system's folder for temporary files
  std::filesystem::path spill_folder{};
  /// For a limit that is a share of this step's peak: the live bytes when the step began. Bytes
  /// that other threads allocate then do not count.
  std::optional<Bytes> held_at_start{};
};

/// The tensors that a captured step was run with. They are enough to replay it.
struct BoundTensors {
  ModelTensors model{};
  std::vector<at::Tensor> inputs{};
  std::vector<NamedTensor> leaves{};  ///< parameters, then inputs with requires_grad
};

/// One recorded step. `gradient_of[i]` is the leaf (parameter, then input) whose .grad is the
/// output `result_count + i`.
class CapturedStep {
 public:
  [[nodiscard]] const StepGraph& graph() const { return graph_; }
  operator const StepGraph&() const { return graph_; }
  [[nodiscard]] StepGraph& graph() { return graph_; }
  [[nodiscard]] const Recording& recording() const { return recording_; }

  /// The loss function's results, detached, the loss first. Empty once taken.
  [[nodiscard]] const std::vector<at::Tensor>& results() const { return results_; }
  [[nodiscard]] const at::Tensor& loss() const { return results_.front(); }
  [[nodiscard]] std::vector<at::Tensor> take_results() { return std::exchange(results_, {}); }

  /// Number of results; the values after them in recording().outputs are gradients.
  [[nodiscard]] std::size_t result_count() const { return result_count_; }
  [[nodiscard]] const std::vector<std::size_t>& gradient_of() const { return gradient_of_; }

  /// The model and arguments of the capture. capture() keeps them. A TrainStep does not, because it
  /// gets new ones.
  [[nodiscard]] const BoundTensors& bound() const { return bound_; }
  void bind(BoundTensors tensors) { bound_ = std::move(tensors); }

  /// Cost of spilling and fetching; zero without a limit.
  [[nodiscard]] const TransferStats& transfers() const { return transfers_; }

  /// Why the step cannot be replayed from its graph; empty if it can.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }

 private:
  template <class Run>
  friend CapturedStep capture_step(const ModelTensors&, const StepArguments&, Run&&,
                                   const CaptureOptions&);

  Recording recording_;
  StepGraph graph_;
  std::vector<at::Tensor> results_;
  std::size_t result_count_ = 0;
  std::vector<std::size_t> gradient_of_;
  std::string refusal_;
  TransferStats transfers_;
  BoundTensors bound_;
};

inline void add_tensors(std::vector<at::Tensor>& out, c10::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) out.push_back(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor() && item.toTensor().defined()) out.push_back(item.toTensor());
    }
  }
}

/// Keeps a recorded step inside a memory limit, and calls the caller's own hooks.
struct LimitHooks final : RecorderHooks {
  MemoryLimit* limit = nullptr;
  RecorderHooks* next = nullptr;

  void before(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) override {
    if (limit != nullptr) {
      std::vector<at::Tensor> reads;
      add_tensors(reads, arguments);
      limit->begin_op(op.schema().name(), reads);
    }
    if (next != nullptr) next->before(op, arguments);
  }
  void after(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> results,
             NodeId node) override {
    if (limit != nullptr) {
      std::vector<at::Tensor> made;
      add_tensors(made, results);
      limit->end_op(made);
    }
    if (next != nullptr) next->after(op, results, node);
  }
};

inline void include_everything(MemoryLimit& limit, const ModelTensors& model,
                               const StepArguments& arguments,
                               const std::vector<NamedTensor>& leaves) {
  for (const NamedTensor& p : model.parameters) limit.include(p.tensor);
  for (const NamedTensor& b : model.buffers) limit.include(b.tensor);
  for (const at::Tensor& t : arguments.tensors) limit.include(t);
  for (const NamedTensor& leaf : leaves)
    if (leaf.tensor.is_leaf()) limit.include(leaf.tensor.grad());
}

inline void know_everything(Recorder& recorder, const ModelTensors& model,
                            const StepArguments& arguments) {
  for (std::size_t i = 0; i < model.parameters.size(); ++i)
    recorder.know(model.parameters[i].tensor, Origin::parameter, i, Role::parameter,
                  model.parameters[i].name);
  for (std::size_t i = 0; i < model.buffers.size(); ++i)
    recorder.know(model.buffers[i].tensor, Origin::buffer, i, Role::buffer, model.buffers[i].name);
  for (std::size_t i = 0; i < arguments.tensors.size(); ++i)
    recorder.know(arguments.tensors[i], Origin::input, i, Role::input,
                  "input." + std::to_string(i));
}

/// Tensors whose .grad a step writes: parameters, then inputs with requires_grad.
inline std::vector<NamedTensor> leaves_of(const ModelTensors& model,
                                          const StepArguments& arguments) {
  std::vector<NamedTensor> leaves = model.parameters;
  for (std::size_t i = 0; i < arguments.tensors.size(); ++i)
    if (arguments.tensors[i].requires_grad())
      leaves.push_back({"input." + std::to_string(i), arguments.tensors[i]});
  return leaves;
}

/// Runs backward if the results have a graph: a validation pass under NoGradGuard has none.
inline void run_backward(const std::vector<at::Tensor>& results) {
  if (results.empty() || !results.front().defined())
    throw Error(
        Errc::bad_argument,
        "the loss function returned no loss: its first result must be a tensor to differentiate");
  if (at::GradMode::is_enabled()) results.front().backward();
}

/// The part of capture() that does not depend on the types of model and arguments. `run` returns
/// the loss function's results.
template <class Run>
[[nodiscard]] CapturedStep capture_step(const ModelTensors& model, const StepArguments& arguments,
                                        Run&& run, const CaptureOptions& options) {
  const std::vector<NamedTensor> leaves = leaves_of(model, arguments);
  CapturedStep step;
  std::optional<MemoryLimit> limit;
  LimitHooks hooks;
  hooks.next = options.hooks;
  if (options.memory_limit > Bytes{0}) {
    hooks.limit = &limit.emplace(options.memory_limit, options.spill_folder);
    if (options.held_at_start) limit->leave_out_other_threads(*options.held_at_start);
    include_everything(*limit, model, arguments, leaves);
  }
  Recorder recorder(limit ? &hooks : options.hooks);
  know_everything(recorder, model, arguments);
  std::vector<bool> had_gradient(leaves.size(), false);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    had_gradient[i] = leaves[i].tensor.is_leaf() && leaves[i].tensor.grad().defined();
    if (had_gradient[i])
      recorder.know(leaves[i].tensor.grad(), Origin::gradient, i, Role::gradient,
                    leaves[i].name + ".grad");
  }

  std::vector<at::Tensor> results = run();
  recorder.enter(Phase::backward);
  run_backward(results);
  if (options.optimizer.step) {
    recorder.enter(Phase::optimizer);
    options.optimizer.step();
  }
  for (at::Tensor& result : results)
    step.results_.push_back(result.defined() ? result.tensor_data() : result);
  // this frees the autograd graph too: tensors that are alive afterwards belong to user code
  results.clear();
  if (at::autocast::is_autocast_cache_enabled()) at::autocast::clear_cache();

  std::vector<ValueId> outputs;
  for (std::size_t i = 0; i < step.results_.size(); ++i) {
    outputs.push_back(step.results_[i].defined() ? recorder.value_of(step.results_[i]) : ValueId{});
    if (!step.results_[i].defined())
      step.refusal_ = "result " + std::to_string(i) + " of the loss function is undefined";
  }
  step.result_count_ = outputs.size();
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!leaves[i].tensor.is_leaf())
      step.refusal_ =
          leaves[i].name + " is not a leaf: its gradient flows on into a graph outside the step";
    if (had_gradient[i] && !leaves[i].tensor.grad().defined())
      step.refusal_ = "the .grad of " + leaves[i].name + " was taken away inside the step";
    if (!leaves[i].tensor.is_leaf() || !leaves[i].tensor.grad().defined()) continue;
    const ValueId gradient = recorder.value_of(leaves[i].tensor.grad());
    if (!gradient.valid() || recorder.tables().was_there_before(gradient)) continue;
    outputs.push_back(gradient);
    step.gradient_of_.push_back(i);
  }
  step.recording_ = recorder.finish(std::move(outputs));
  if (limit) {
    limit->fetch_all();
    step.transfers_ = limit->stats();
  }

  Recording& recording = step.recording_;
  if (step.refusal_.empty()) step.refusal_ = recording.refusal;
  if (options.optimizer.step) {
    for (ValueId v : recording.kept)
      if (recording.calls[recording.values[v.index].producer.index].phase == Phase::optimizer)
        recording.values[recording.owner_of(v).index].role = Role::optimizer_state;
    if (step.refusal_.empty())
      step.refusal_ =
          "the optimizer's step was recorded as well, whose numbers change from step to step";
  } else if (step.refusal_.empty() && !recording.kept.empty()) {
    step.refusal_ = "the user's code still holds " + recording.describe(recording.kept.front()) +
                    " after the step; return it from the loss function to get it from every step";
  }
  for (ValueId v : recording.outputs)
    if (!v.valid()) return step;
  step.graph_ = graph_of(recording, options.name);
  return step;
}

/// Runs one step of `model` under the recorder: `loss_fn(arguments...)`, then backward.
template <class Model, class LossFn, class... Arguments>
[[nodiscard]] CapturedStep capture(const Model& model, LossFn&& loss_fn,
                                   const CaptureOptions& options, const Arguments&... arguments) {
  const ModelTensors tensors = tensors_of(model);
  const StepArguments flat = arguments_of(arguments...);
  CapturedStep step = capture_step(
      tensors, flat, [&] { return results_of(loss_fn(arguments...)); }, options);
  if (!step.refusal().empty() && !options.optimizer.step)
    throw Error(Errc::capture_failed,
                step.refusal() + ". The step itself was carried out: its gradients may be used.");
  step.bind({tensors, flat.tensors, leaves_of(tensors, flat)});
  return step;
}

template <class Model, class LossFn, class... Arguments>
requires(!(std::is_same_v<std::remove_cvref_t<Arguments>, CaptureOptions> || ...))
    [[nodiscard]] CapturedStep
    capture(const Model& model, LossFn&& loss_fn, const Arguments&... arguments) {
  return capture(model, std::forward<LossFn>(loss_fn), CaptureOptions{}, arguments...);
}

}  // namespace reprise::recording

namespace reprise {
using recording::BoundTensors;
using recording::capture;
using recording::CapturedOptimizer;
using recording::CapturedStep;
using recording::CaptureOptions;
}  // namespace reprise
