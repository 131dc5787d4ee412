#pragma once
// A TrainStep is a training step as a function: captured on its first call, run from its graph on
// the following ones, inside a memory budget where one is given.
//
//   reprise::TrainStep step{model, [&](auto x, auto y) { return torch::cross_entropy_loss(model->forward(x), y); }, {.budget = 4_GiB}};
//   for (auto& [x, y] : batches) {
//     optimizer.zero_grad();
//     auto loss = step(x, y);           // forward and backward: .grad is filled, as eager would, bit for bit
//     optimizer.step();
//   }
//   step.counters();                    // {.captures = 1, .replays = 99, .eager_runs = 0}
//   step.last();                        // {.peak = 3.9 GiB, .predicted_peak = 3.9 GiB, .budget = 4 GiB, .recomputed = 120, …}
//
// The contract: which ops the loss function runs, and with which numbers, depends on the shapes of
// its arguments, on LibTorch's settings and on what it asks LibTorch for (.item()) alone. Host
// state (a counter, a branch on a host random number, values read through const_data_ptr, a
// closure's tensor that is another one in the next step) is what a replay cannot see: rechecks look
// for it.
//
// The budget bounds what the allocator holds in the process. When the base changes (Adam's state
// appears after the first step), the plan is made again for what is left.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <reprise/libtorch/pipeline/default_pipeline.hpp>
#include <reprise/libtorch/torch/model_tensors.hpp>
#include <reprise/libtorch/torch/module_state.hpp>
#include <reprise/libtorch/torch/step_arguments.hpp>
#include <reprise/libtorch/train_step/step_engine.hpp>

namespace reprise::fronts {

/// `Pipe`: the pipeline that the step is made of, libtorch/pipeline/default_pipeline.hpp.
template <class LossFn, class Pipe = DefaultPipeline>
class TrainStep {
  static_assert(is_step_pipeline<Pipe>());

 public:
  /// `model`: a torch::nn module holder, a pointer to a module, or a list of parameters.
  template <class Model>
  TrainStep(Model model, LossFn loss_fn, TrainStepOptions options = {}, Pipe pipeline = Pipe{})
      : loss_fn_(std::move(loss_fn)),
        engine_(std::make_unique<StepEngine<Pipe>>(step_model(std::move(model)), std::move(options),
                                                   std::move(pipeline))) {}

  /// One step: forward and backward. Returns the loss, or what the loss function returns where that
  /// is more.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) {
    using Result = std::remove_cvref_t<decltype(loss_fn_(arguments...))>;
    const StepArguments flat = arguments_of(arguments...);
    return as<Result>(engine_->step(flat, [&] { return results_of(loss_fn_(arguments...)); }));
  }

  /// Gives the arena back until the next step needs it.
  void release() { engine_->release(); }

  [[nodiscard]] const TrainStepCounters& counters() const { return engine_->counters(); }
  [[nodiscard]] const TrainStepReport& last() const { return engine_->last(); }
  /// The graph of the last call. Throws where that call ran eagerly and has none.
  [[nodiscard]] const StepGraph& graph() const { return engine_->graph(); }
  /// Why the last call's signature runs eagerly; empty where it is replayed.
  [[nodiscard]] std::string refusal() const { return engine_->refusal(); }
  /// The plan of the last call; its peak is the graph's, persistent values included.
  [[nodiscard]] const Plan& plan() const { return engine_->plan(); }
  /// What was done so far, in a few lines.
  [[nodiscard]] std::string summary() const { return engine_->summary(); }
  /// What the process has grown by at most since this step was made, as the system counts it; 0
  /// where it does not say.
  [[nodiscard]] Bytes resident_growth() const { return engine_->resident_growth(); }
  /// A page about the last call: its profile, memory before and after, what is computed again,
  /// extra time against budget. Plans `points` budgets for the last of these; 0 leaves it out.
  /// Include <reprise/libtorch/options/step_report.hpp> for it.
  template <class Page = StepPage>
  void report(const std::filesystem::path& file, std::size_t points = 6) const {
    static_assert(
        requires { sizeof(Page); }, "include <reprise/libtorch/options/step_report.hpp>");
    Page::write(file, graph(), plan(), engine_->planning_request(), points, summary());
  }
  /// Writes the last call's plan as a reprise.plan file. Include <reprise/plan/plan_file.hpp> for
  /// it.
  template <class File = PlanFile>
  void save_plan(const std::filesystem::path& file) const {
    static_assert(
        requires { sizeof(File); }, "include <reprise/plan/plan_file.hpp>");
    File::write(file, graph(), plan());
  }
  /// The plan that the next capture uses instead of making one. It is refused, by name, where it
  /// was made for another graph. Include <reprise/plan/plan_file.hpp> for it.
  template <class File = PlanFile>
  void load_plan(const std::filesystem::path& file) {
    static_assert(
        requires { sizeof(File); }, "include <reprise/plan/plan_file.hpp>");
    engine_->give(File::reader(file));
  }
  /// Bytes that the allocator holds for something else (another model in the process): the budget
  /// does not bound them, and no number of last() counts them.
  void exclude(Bytes others) { engine_->exclude(others); }

 private:
  template <class Model>
  static StepModel step_model(Model model) {
    StepModel asked;
    asked.tensors = [model] { return tensors_of(model); };
    if constexpr (ModuleLike<Model>)
      asked.modules = [model, reader = ModuleReader{}]() mutable {
        return module_state(reader, model);
      };
    return asked;
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

  LossFn loss_fn_;
  std::unique_ptr<StepEngine<Pipe>> engine_;
};

template <class Model, class LossFn>
TrainStep(Model, LossFn) -> TrainStep<LossFn>;
template <class Model, class LossFn>
TrainStep(Model, LossFn, TrainStepOptions) -> TrainStep<LossFn>;
template <class Model, class LossFn, class Pipe>
TrainStep(Model, LossFn, TrainStepOptions, Pipe) -> TrainStep<LossFn, Pipe>;

}  // namespace reprise::fronts

namespace reprise {
using fronts::TrainStep;
}  // namespace reprise
