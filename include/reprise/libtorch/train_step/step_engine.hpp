#pragma once
// A StepEngine runs the calls of a TrainStep, each in the best possible way. It knows the loss
// function only as something to call: TrainStep is the thin front that converts the arguments to
// tensors.
//
//   call ──▶ signature known? ──no──▶ capture (a valid step, inside the budget) ──can it be replayed?──no──▶ eagerly, with a notice
//                 │ yes                                              │ yes: plan for the headroom (step_planning.hpp)
//                 ▼                                                  ▼
//              replay ──a data-dependent value or shape differs──▶ restore the state, capture anew
//
// The StepEngine takes long to compile and does not depend on the loss function. A program of many
// files can therefore compile it in one file.
//
//   extern template class reprise::training::StepEngine<>;      in a header that every file includes, after <reprise/libtorch.hpp>
//   template class reprise::training::StepEngine<>;             in one file

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reprise/graph/diff.hpp>
#include <reprise/libtorch/options/summaries.hpp>
#include <reprise/libtorch/pipeline/default_pipeline.hpp>
#include <reprise/libtorch/pipeline/measured_ops.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/train_step/known_step.hpp>
#include <reprise/libtorch/train_step/replay_runner.hpp>
#include <reprise/libtorch/train_step/signature.hpp>
#include <reprise/libtorch/train_step/step_capture.hpp>
#include <reprise/libtorch/train_step/step_check.hpp>
#include <reprise/libtorch/train_step/step_context.hpp>
#include <reprise/libtorch/train_step/step_meter.hpp>
#include <reprise/libtorch/train_step/step_planning.hpp>
#include <reprise/libtorch/train_step/step_stages.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>

namespace reprise::training {

/// The model of a step. The StepEngine asks for it before each call, because user code may add,
/// exchange and switch modules between calls.
struct StepModel {
  std::function<ModelTensors()> tensors{};
  /// the modules' types, modes and options; empty if there is no module
  std::function<std::string()> modules{};
};

/// `Pipe`: the pipeline of the step.
template <class Pipe = DefaultPipeline>
class StepEngine {
 public:
  using Run = std::function<std::vector<at::Tensor>()>;

  StepEngine(StepModel model, TrainStepOptions options, Pipe pipeline);
  ~StepEngine();
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  /// One step: `run` calls the loss function with these arguments. Returns its results.
  std::vector<at::Tensor> step(const StepArguments& arguments, const Run& run);
  void release();
  /// What the next capture uses instead of making a plan.
  void give(GivenPlan plan) { planning_.given = std::move(plan); }
  void exclude(Bytes others) { meter_.exclude(others); }

  [[nodiscard]] const TrainStepCounters& counters() const { return context_.counters; }
  [[nodiscard]] const TrainStepReport& last() const { return context_.last; }
  [[nodiscard]] const StepGraph& graph() const;
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] std::string refusal() const {
    return current_ == nullptr ? std::string{} : current_->key.refusal;
  }
  [[nodiscard]] const PlanRequest& planning_request() const {
    return context_.options.run.planning;
  }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] Bytes resident_growth() const { return ResidentProbe::process_peak() - idle_; }

 private:
  using Known = KnownSteps::Known;
  using OpMeterOf = decltype(MeasuredOps(std::declval<Pipe&>().profiler()));

  // If a capture reads the model's storages through tensors that are not the model's, it is valid
  // for these storages only.
  Known& known_step(const ModelTensors& model, std::string signature) {
    Known& known = find_or_add(signature);
    if (known.key.storages.empty()) return known;
    std::string storages = storages_of(model);
    if (storages == known.key.storages) return known;
    return find_or_add(std::move(signature) + std::move(storages));
  }
  Known& find_or_add(const std::string& signature) {
    return planning_.steps().find_or_add(
        [&](const KnownStep& key) { return key.signature == signature; },
        [&] { return KnownStep{.signature = signature}; });
  }

  /// If so many guards fail in a row, the step differs from call to call: it runs eagerly from then
  /// on.
  static constexpr int patience = 3;

  std::vector<at::Tensor> choose_and_run(Known& known, const ModelTensors& model,
                                         const StepArguments& arguments, const Run& run) {
    KnownStep& key = known.key;
    ++key.calls;
    if (!key.refusal.empty()) return run_without_graph(known, model, arguments, run);
    if (!key.captured) return capture_anew(known, model, arguments, run);
    if (context_.options.recheck && is_recheck_due(key.calls - key.captured_at + 1))
      return check_again(known, model, arguments, run);
    if (!planning_.ensure_program(known)) return run_without_graph(known, model, arguments, run);
    const std::int64_t verify_every = context_.options.run.verify_every;
    if (verify_every > 0 && ++key.verifiable % verify_every == 0)
      return verify(known, model, arguments, run);
    std::vector<at::Tensor> results;
    return replay(known, model, arguments, results) ? results
                                                    : capture_anew(known, model, arguments, run);
  }

  // ── running ────────────────────────────────────────────────────────────────────────────────────

  // A step that cannot be captured or planned runs unchanged. Under a budget, it stays inside by
  // spilling storages that the running op does not read.
  std::vector<at::Tensor> run_without_graph(Known& known, const ModelTensors& model,
                                            const StepArguments& arguments, const Run& run) {
    runner_.release_arena();
    if (context_.options.budget.given()) {
      ++context_.counters.fallbacks;
      CapturedStep step = capture_.inside(known, model, arguments, run);
      context_.last.moved = step.transfers().bytes_out;
      planning_.resolve(known, step);
      return step.take_results();
    }
    ++context_.counters.eager_runs;
    std::vector<at::Tensor> results = run();
    run_backward(results);
    for (at::Tensor& result : results)
      if (result.defined()) result = result.tensor_data();
    return results;
  }

  std::vector<at::Tensor> check_again(Known& known, const ModelTensors& model,
                                      const StepArguments& arguments, const Run& run) {
    runner_.release_arena();
    planning_.resolve(known);
    TraceHooks hooks;
    CapturedStep step = capture_(known, model, arguments, run, &hooks);
    context_.step_completed = true;
    context_.last.moved = step.transfers().bytes_out;
    std::vector<at::Tensor> results = step.take_results();
    KnownStep& key = known.key;
    std::string why = step.refusal();
    if (why.empty()) {
      const auto difference = diff(key.captured->graph(), step.graph());
      if (!difference) why = exchanged_tensor(key.captured->recording(), step.recording());
      if (!difference && why.empty()) {
        ++context_.counters.rechecks;
        key.last_equal = key.calls;
        return results;
      }
      if (difference && is_data_decided(step.recording(), difference->node)) {
        key.trace = std::move(hooks.trace);
        key.storages = step.recording().reads_aliases ? storages_of(model) : std::string{};
        return replace_capture(known, std::move(step), std::move(results));
      }
      if (difference) why = difference->message;
    }
    ++context_.counters.failed_rechecks;
    key.refusal = "call " + std::to_string(key.calls) +
                  " is not the step that was captured (last found equal: call " +
                  std::to_string(key.last_equal) + "): " + why;
    forget_capture(known);
    if (context_.options.on_fallback == OnFallback::error) refuse(known);
    context_.notice("from now on this step runs without its graph: " + key.refusal);
    return results;
  }

  void forget_capture(Known& known) {
    planning_.steps().forget_plan(known);
    known.graph.reset();
    known.key.captured.reset();
    known.key.floor.reset();
    known.key.measured.clear();
  }
  // From here on, this is the captured step. It is rechecked as often as the first capture was.
  void set_capture(Known& known, CapturedStep step) {
    KnownStep& key = known.key;
    key.captured = std::make_shared<CapturedStep>(std::move(step));
    known.graph = {key.captured, &key.captured->graph()};
    key.captured_at = key.last_equal = key.calls;
    key.told_of_fallback = false;
  }

  // Runs the replay first. Then it restores everything that the replay changed, and runs the user's
  // own code under the recorder.
  std::vector<at::Tensor> verify(Known& known, const ModelTensors& model,
                                 const StepArguments& arguments, const Run& run) {
    meter_.unbound();
    const std::vector<NamedTensor> leaves = leaves_of(model, arguments);
    const Bindings bindings{model.parameters, model.buffers, arguments.tensors, leaves};
    const std::vector<at::Tensor> written = known.made->program->written(bindings);
    const StepSnapshot before(written);
    NodeHashes replayed;
    const RunOutcome ours = runner_.run_observed(known, bindings, HashObserver{replayed});
    const StepSnapshot after(written);
    before.restore();
    HashHooks hooks;
    hooks.known = &known.key.captured->recording();
    CapturedStep eager = capture_(known, model, arguments, run, &hooks);
    std::vector<at::Tensor> results = eager.take_results();
    if (!ours.completed) {  // a guard failed: the next call fails too, and captures anew
      ++context_.counters.failed_rechecks;
      return results;
    }
    ++context_.counters.verified;
    std::string difference =
        describe_difference(*known.graph, first_difference(replayed, hooks.hashes));
    if (difference.empty())
      difference = compare_handed_over(*known.key.captured, ours, results, leaves);
    if (difference.empty() && !after.holds_now())
      difference = "a buffer, an input or the generator was changed otherwise";
    if (!difference.empty()) refuse_after_difference(known, difference);
    return results;
  }

  [[noreturn]] void refuse(Known& known) const {
    throw Error(Errc::capture_failed, std::exchange(known.key.refusal, {}) + context_.afterwards());
  }

  void refuse_after_difference(Known& known, const std::string& difference) {
    ++context_.counters.differences;
    known.key.refusal = "a replay was not equal to eager: " + difference;
    context_.notice("from now on this step runs without its graph: " + known.key.refusal);
    if (context_.options.on_fallback == OnFallback::error)
      throw Error(Errc::capture_failed, known.key.refusal);
  }

  std::vector<at::Tensor> replace_capture(Known& known, CapturedStep step,
                                          std::vector<at::Tensor> results) {
    ++context_.counters.guard_failures;
    ++context_.counters.captures;
    forget_capture(known);
    set_capture(known, std::move(step));
    planning_.ensure_program(known);
    return results;
  }

  bool replay(Known& known, const ModelTensors& model, const StepArguments& arguments,
              std::vector<at::Tensor>& results) {
    const std::vector<NamedTensor> leaves = leaves_of(model, arguments);
    RunOutcome outcome =
        runner_.run(known, {model.parameters, model.buffers, arguments.tensors, leaves});
    if (!outcome.completed) {
      ++context_.counters.guard_failures;
      context_.notice("captured anew: " + outcome.difference);
      if (++known.key.failures >= patience)
        known.key.refusal = "the step differs from call to call: " + outcome.difference;
      return false;
    }
    const auto& gradient_of = known.key.captured->gradient_of();
    for (std::size_t i = 0; i < gradient_of.size(); ++i)
      leaves[gradient_of[i]].tensor.mutable_grad() = std::move(outcome.gradients[i]);
    results = std::move(outcome.results);
    ++context_.counters.replays;
    known.key.failures = 0;
    meter_.replayed(*known.made);
    return true;
  }

  std::vector<at::Tensor> capture_anew(Known& known, const ModelTensors& model,
                                       const StepArguments& arguments, const Run& run) {
    forget_capture(known);
    ++context_.counters.captures;
    runner_.release_arena();
    TraceHooks hooks;
    CapturedStep captured = capture_(known, model, arguments, run, &hooks);
    context_.step_completed = true;
    KnownStep& key = known.key;
    key.trace = std::move(hooks.trace);
    std::vector<at::Tensor> results = captured.take_results();
    context_.last.moved = captured.transfers().bytes_out;
    // this call changed the modules' state: the next call may find them as before
    if (model_.modules && model_.modules() != modules_) {
      planning_.resolve(known, captured);
      context_.log.info(
          "the loss function itself changes a module's mode or options: a call that begins like "
          "this one is captured each time");
      return results;
    }
    key.storages = captured.recording().reads_aliases ? storages_of(model) : std::string{};
    if (key.refusal.empty()) key.refusal = captured.refusal();
    if (!key.refusal.empty()) {
      planning_.resolve(known, captured);
      if (context_.options.on_fallback == OnFallback::error) refuse(known);
      const std::string how =
          context_.options.budget.given() ? "by moving storages out" : "eagerly";
      context_.notice("from now on this step runs " + how + ": " + key.refusal);
      return results;
    }
    set_capture(known, std::move(captured));
    planning_.ensure_program(known);
    return results;
  }

  StepModel model_;
  Pipe pipeline_;
  StepContext context_;
  StepMeter meter_{context_};
  StepPlanning planning_;
  OpMeterOf ops_{pipeline_.profiler()};
  StepCapture capture_{context_, meter_, planning_, ops_.if_needed()};
  ReplayRunner<Pipe> runner_{pipeline_, context_, meter_, planning_};
  std::string modules_;  // state of the modules when the call began
  Known* current_ = nullptr;
  Bytes idle_ = ResidentProbe::process_peak();
};

// None of these is inline: an extern template declaration then keeps the code above out of a file.

template <class Pipe>
StepEngine<Pipe>::StepEngine(StepModel model, TrainStepOptions options, Pipe pipeline)
    : model_(std::move(model)),
      pipeline_(std::move(pipeline)),
      context_(std::move(options)),
      planning_(context_, step_stages(pipeline_, context_.options.run)) {
  if (!memory_is_counted())
    context_.notice(
        "another library has put its allocator in the place of Reprise's: results stay right, but "
        "no memory is counted");
}

template <class Pipe>
StepEngine<Pipe>::~StepEngine() = default;

template <class Pipe>
std::vector<at::Tensor> StepEngine<Pipe>::step(const StepArguments& arguments, const Run& run) {
  DispatchHook::refuse_inside_another();  // the outer step would not see a replay
  runner_.memory().settle();
  const ModelTensors model = model_.tensors();
  modules_ = model_.modules ? model_.modules() : std::string{};
  Known& known = known_step(model, signature_of(model, modules_, arguments));
  current_ = &known;
  context_.step_completed = false;
  // another step's cached pages would reduce this step's headroom
  if (context_.options.budget.given()) ThisDevice::release_cached();
  runner_.release_arena_beyond(planning_.known_budget(known));
  meter_.begin(runner_.memory().capacity());
  const StepBytes own(device_memory().serial());
  pipeline_.profiler().probe().begin_run();
  std::vector<at::Tensor> results = choose_and_run(known, model, arguments, run);
  context_.last.probed_peak = pipeline_.profiler().probe().end_run();
  meter_.end();
  ++context_.counters.steps;
  context_.counters.planned_steps += context_.last.planned ? 1 : 0;
  context_.counters.fitting_steps += context_.last.fits ? 1 : 0;
  if (context_.options.on_step) context_.options.on_step(context_.last);
  return results;
}

template <class Pipe>
void StepEngine<Pipe>::release() {
  runner_.memory().release();
}

template <class Pipe>
const StepGraph& StepEngine<Pipe>::graph() const {
  if (current_ == nullptr || !current_->graph)
    throw Error(Errc::bad_argument,
                "the last step has no graph: it ran eagerly, or none has run yet");
  return *current_->graph;
}

template <class Pipe>
const Plan& StepEngine<Pipe>::plan() const {
  if (current_ == nullptr || !current_->made)
    throw Error(Errc::bad_argument,
                "the last step has no plan: it ran eagerly, or none has run yet");
  return current_->made->plan;
}

template <class Pipe>
std::string StepEngine<Pipe>::summary() const {
  return step_summary(context_.options.run.name, context_.counters, context_.last,
                      resident_growth());
}

}  // namespace reprise::training
