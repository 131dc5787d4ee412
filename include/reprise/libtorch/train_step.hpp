#pragma once
// A TrainStep is a training step as a function: captured on its first call, run from its graph on the following ones.
//
//   reprise::TrainStep step{model, [&](auto x, auto y) { return torch::cross_entropy_loss(model->forward(x), y); }};
//   for (auto& [x, y] : batches) {
//     optimizer.zero_grad();
//     auto loss = step(x, y);           // forward and backward: .grad is filled, as eager would, bit for bit
//     optimizer.step();
//   }
//   step.counters();                    // {.captures = 1, .replays = 99, .eager_runs = 0}
//
// The contract: the loss function depends on its arguments, the model's parameters and buffers and the default generator alone.
// Host state (a counter, a branch on a host random number, a number that changes every step) is what a replay cannot see.
//
//   call ──▶ signature known? ──no──▶ capture (a valid step) ──can it be run again?──no──▶ eagerly, with a notice
//                 │ yes                                              │ yes
//                 ▼                                                  ▼
//              replay ──a host value or a data-decided shape differs──▶ put back, capture anew

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/libtorch/capture.hpp>
#include <reprise/libtorch/program.hpp>
#include <reprise/libtorch/signature.hpp>

namespace reprise {

/// How often each way was taken.
struct StepCounters {
  std::int64_t captures = 0;
  std::int64_t replays = 0;
  std::int64_t eager_runs = 0;
  std::int64_t guard_failures = 0;     ///< replays that were given up because a host value or shape differed; each was captured anew
  std::int64_t workspace_changes = 0;  ///< nodes that took another workspace than predicted; the prediction follows
};

/// What the last call took.
struct StepMeasurement {
  Bytes base{};            ///< what the allocator held when the step began
  Bytes peak{};            ///< what it held at most
  Bytes predicted_peak{};  ///< what the graph says; of a captured or eager step: its own peak
  bool replayed = false;
};

struct TrainStepOptions {
  std::string name = "step";
  std::size_t max_plans = 16;  ///< signatures that are kept; the one used longest ago goes first
  /// Told once why a step runs eagerly or was captured anew. By default written to stderr where REPRISE_LOG is set.
  std::function<void(const std::string&)> on_notice{};
};

template <class LossFn>
class TrainStep {
 public:
  /// `model`: a torch::nn module holder, a pointer to a module, or a list of parameters.
  template <class Model>
  TrainStep(Model model, LossFn loss_fn, TrainStepOptions options = {}) : loss_fn_(std::move(loss_fn)), options_(std::move(options)) {
    list_tensors_ = [model] { return tensors_of(model); };
    if constexpr (ModuleLike<Model>) list_training_ = training_flags(model);
    if (!memory_is_counted())
      notice("another library has put its allocator in the place of Reprise's: results stay right, but no memory is counted");
  }

  /// One step: forward and backward. Returns the loss, or what the loss function returns where that is more.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) {
    using Result = std::remove_cvref_t<decltype(loss_fn_(arguments...))>;
    const StepArguments flat = arguments_of(arguments...);
    return as<Result>(step(flat, [&] { return results_of(loss_fn_(arguments...)); }));
  }

  [[nodiscard]] const StepCounters& counters() const { return counters_; }
  [[nodiscard]] const StepMeasurement& last() const { return last_; }
  /// The graph of the last call. Throws where that call ran eagerly and has none.
  [[nodiscard]] const StepGraph& graph() const {
    if (current_ == nullptr || !current_->captured) throw Error(Errc::bad_argument, "the last step has no graph: it ran eagerly, or none has run yet");
    return current_->captured->graph();
  }
  /// Why the last call's signature runs eagerly; empty where it is replayed.
  [[nodiscard]] std::string refusal() const { return current_ == nullptr ? std::string{} : current_->refusal; }

 private:
  /// Guards that keep failing mean that the step is not the same from call to call: it is then left to eager.
  static constexpr int patience = 3;

  struct Plan {
    std::string signature{};
    std::unique_ptr<CapturedStep> captured{};
    std::unique_ptr<LibTorchProgram> program{};
    std::string refusal{};
    int failures = 0;
  };
  using Run = std::function<std::vector<at::Tensor>()>;

  template <class Model>
  static std::function<std::string()> training_flags(const Model& model) {
    return [modules = model->modules()] {
      std::string flags;
      for (const auto& module : modules) flags += module->is_training() ? 't' : 'e';
      return flags;
    };
  }

  template <class Result>
  static Result as(std::vector<at::Tensor> results) {
    if constexpr (std::is_convertible_v<at::Tensor, Result>) return results.front();
    else if constexpr (std::is_same_v<Result, std::vector<at::Tensor>>) return results;
    else return as_tuple<Result>(results, std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
  template <class Result, std::size_t... I>
  static Result as_tuple(std::vector<at::Tensor>& results, std::index_sequence<I...>) {
    return Result{results[I]...};
  }

  std::vector<at::Tensor> step(const StepArguments& arguments, const Run& run) {
    const ModelTensors model = list_tensors_();
    Plan& plan = plan_for(signature_of(model, list_training_ ? list_training_() : std::string{}, arguments));
    current_ = &plan;
    last_ = {.base = cpu_memory().live()};
    cpu_memory().reset_peak();
    std::vector<at::Tensor> results;
    if (!plan.refusal.empty()) results = run_eagerly(run);
    else if (!plan.program || !replay(plan, model, arguments, results)) results = capture_anew(plan, model, arguments, run);
    last_.peak = cpu_memory().peak();
    if (!last_.replayed) last_.predicted_peak = last_.peak;
    return results;
  }

  std::vector<at::Tensor> run_eagerly(const Run& run) {
    ++counters_.eager_runs;
    std::vector<at::Tensor> results = run();
    detail::run_backward(results);
    for (at::Tensor& result : results)
      if (result.defined()) result = result.tensor_data();
    return results;
  }

  bool replay(Plan& plan, const ModelTensors& model, const StepArguments& arguments, std::vector<at::Tensor>& results) {
    const std::vector<NamedTensor> leaves = detail::leaves_of(model, arguments);
    RunOutcome outcome = plan.program->run({model.parameters, model.buffers, arguments.tensors, leaves});
    counters_.workspace_changes += static_cast<std::int64_t>(outcome.workspace_changes);
    if (!outcome.completed) {
      ++counters_.guard_failures;
      notice("captured anew: " + outcome.difference);
      if (++plan.failures >= patience) plan.refusal = "the step differs from call to call: " + outcome.difference;
      return false;
    }
    const auto& gradient_of = plan.captured->gradient_of();
    for (std::size_t i = 0; i < gradient_of.size(); ++i) leaves[gradient_of[i]].tensor.mutable_grad() = std::move(outcome.gradients[i]);
    results = std::move(outcome.results);
    ++counters_.replays;
    last_.replayed = true;
    last_.predicted_peak = last_.base + plan.program->peak_above_base();
    return true;
  }

  std::vector<at::Tensor> capture_anew(Plan& plan, const ModelTensors& model, const StepArguments& arguments, const Run& run) {
    plan.program.reset();
    plan.captured.reset();
    ++counters_.captures;
    auto captured = std::make_unique<CapturedStep>(capture_step(model, arguments, run, {.name = options_.name}));
    std::vector<at::Tensor> results = captured->take_results();
    if (plan.refusal.empty()) plan.refusal = captured->refusal();
    if (!plan.refusal.empty()) {
      notice("from now on this step runs eagerly: " + plan.refusal);
      return results;
    }
    plan.captured = std::move(captured);
    plan.program = std::make_unique<LibTorchProgram>(*plan.captured, own_order(plan.captured->graph()));
    return results;
  }

  Plan& plan_for(std::string signature) {
    const auto it = index_.find(signature);
    if (it != index_.end()) {
      plans_.splice(plans_.begin(), plans_, it->second);
      return plans_.front();
    }
    if (plans_.size() >= options_.max_plans && !plans_.empty()) {
      index_.erase(plans_.back().signature);
      plans_.pop_back();
    }
    plans_.push_front({.signature = std::move(signature)});
    index_.emplace(plans_.front().signature, plans_.begin());
    return plans_.front();
  }

  void notice(const std::string& text) {
    if (options_.on_notice) options_.on_notice(text);
    else if (std::getenv("REPRISE_LOG") != nullptr) std::cerr << "reprise: " << options_.name << ": " << text << '\n';
  }

  LossFn loss_fn_;
  TrainStepOptions options_;
  std::function<ModelTensors()> list_tensors_;
  std::function<std::string()> list_training_;
  std::list<Plan> plans_;  // most recently used first
  std::unordered_map<std::string, typename std::list<Plan>::iterator> index_;
  Plan* current_ = nullptr;
  StepCounters counters_;
  StepMeasurement last_;
};

template <class Model, class LossFn>
TrainStep(Model, LossFn) -> TrainStep<LossFn>;
template <class Model, class LossFn>
TrainStep(Model, LossFn, TrainStepOptions) -> TrainStep<LossFn>;

}  // namespace reprise
