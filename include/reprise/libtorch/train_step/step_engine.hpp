#pragma once
// A StepEngine runs one step after the other, each the best way that there is for it. It knows the
// loss function as something to call only: TrainStep is the thin front that makes tensors of its
// arguments.
//
//   call ──▶ signature known? ──no──▶ capture (a valid step, inside the budget) ──can it be run again?──no──▶ eagerly, with a notice
//                 │ yes                                              │ yes: plan for what the budget leaves (step_planning.hpp)
//                 ▼                                                  ▼
//              replay ──a host value or a data-decided shape differs──▶ put back, capture anew
//
// It is what takes long to compile, and it does not depend on the loss function: a program of many
// files can compile it in one.
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
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/train_step/known_step.hpp>
#include <reprise/libtorch/train_step/replay_runner.hpp>
#include <reprise/libtorch/train_step/signature.hpp>
#include <reprise/libtorch/train_step/step_capture.hpp>
#include <reprise/libtorch/train_step/step_check.hpp>
#include <reprise/libtorch/train_step/step_ledger.hpp>
#include <reprise/libtorch/train_step/step_meter.hpp>
#include <reprise/libtorch/train_step/step_planning.hpp>
#include <reprise/libtorch/train_step/step_stages.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>

namespace reprise::training {

/// The model of a step, asked anew before each: modules may be added, exchanged and switched
/// between calls.
struct StepModel {
  std::function<ModelTensors()> tensors{};
  /// what they are, whether they train, their options; empty where there is no module
  std::function<std::string()> modules{};
};

/// `Pipe`: the pipeline that the step is made of.
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

  [[nodiscard]] const TrainStepCounters& counters() const { return ledger_.counters; }
  [[nodiscard]] const TrainStepReport& last() const { return ledger_.last; }
  [[nodiscard]] const StepGraph& graph() const;
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] std::string refusal() const {
    return current_ == nullptr ? std::string{} : current_->key.refusal;
  }
  [[nodiscard]] const PlanRequest& planning_request() const { return ledger_.options.run.planning; }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] Bytes resident_growth() const { return ResidentProbe::process_peak() - idle_; }

 private:
  using Known = KnownSteps::Known;

  // A capture that reads the model's memory through tensors that are not the model's holds for that
  // memory alone.
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

  /// Guards that keep failing mean that the step is not the same from call to call: it is then left
  /// to eager.
  static constexpr int patience = 3;

  std::vector<at::Tensor> choose_and_run(Known& known, const ModelTensors& model,
                                         const StepArguments& arguments, const Run& run) {
    KnownStep& key = known.key;
    ++key.calls;
    if (!key.refusal.empty()) return run_without_graph(known, model, arguments, run);
    if (!key.captured) return capture_anew(known, model, arguments, run);
    if (ledger_.options.recheck && is_recheck_due(key.calls - key.captured_at + 1))
      return check_again(known, model, arguments, run);
    if (!planning_.ensure_program(known)) return run_without_graph(known, model, arguments, run);
    const std::int64_t verify_every = ledger_.options.run.verify_every;
    if (verify_every > 0 && ++key.verifiable % verify_every == 0)
      return verify(known, model, arguments, run);
    std::vector<at::Tensor> results;
    return replay(known, model, arguments, results) ? results
                                                    : capture_anew(known, model, arguments, run);
  }

  // ── running ────────────────────────────────────────────────────────────────────────────────────

  // What cannot be captured or planned runs as it is; under a budget, inside it by moving out what
  // the running op does not read.
  std::vector<at::Tensor> run_without_graph(Known& known, const ModelTensors& model,
                                            const StepArguments& arguments, const Run& run) {
    runner_.release_arena();
    if (ledger_.options.budget.given()) {
      ++ledger_.counters.fallbacks;
      CapturedStep step = capture_.inside(known, model, arguments, run);
      ledger_.last.moved = step.transfers().bytes_out;
      planning_.resolve(known, step);
      return step.take_results();
    }
    ++ledger_.counters.eager_runs;
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
    ledger_.step_completed = true;
    ledger_.last.moved = step.transfers().bytes_out;
    std::vector<at::Tensor> results = step.take_results();
    KnownStep& key = known.key;
    std::string why = step.refusal();
    if (why.empty()) {
      const auto difference = diff(key.captured->graph(), step.graph());
      if (!difference) why = exchanged_tensor(key.captured->recording(), step.recording());
      if (!difference && why.empty()) {
        ++ledger_.counters.rechecks;
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
    ++ledger_.counters.failed_rechecks;
    key.refusal = "call " + std::to_string(key.calls) +
                  " is not the step that was captured (last found equal: call " +
                  std::to_string(key.last_equal) + "): " + why;
    forget_capture(known);
    if (ledger_.options.on_fallback == OnFallback::error) refuse(known);
    ledger_.notice("from now on this step runs without its graph: " + key.refusal);
    return results;
  }

  void forget_capture(Known& known) {
    planning_.steps().forget_plan(known);
    known.graph.reset();
    known.key.captured.reset();
    known.key.floor.reset();
    known.key.measured.clear();
  }
  // From here on this is the captured step, and it is looked at as closely as the first one was.
  void set_capture(Known& known, CapturedStep step) {
    KnownStep& key = known.key;
    key.captured = std::make_shared<CapturedStep>(std::move(step));
    known.graph = {key.captured, &key.captured->graph()};
    key.captured_at = key.last_equal = key.calls;
    key.told_of_fallback = false;
  }

  // The replay first, then everything that it changed is put back and the user's own code runs,
  // under the recorder.
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
    if (!ours.completed) {  // a guard: the next call finds it out, and captures anew
      ++ledger_.counters.failed_rechecks;
      return results;
    }
    ++ledger_.counters.verified;
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
    throw Error(Errc::capture_failed, std::exchange(known.key.refusal, {}) + ledger_.afterwards());
  }

  void refuse_after_difference(Known& known, const std::string& difference) {
    ++ledger_.counters.differences;
    known.key.refusal = "a replay was not equal to eager: " + difference;
    ledger_.notice("from now on this step runs without its graph: " + known.key.refusal);
    if (ledger_.options.on_fallback == OnFallback::error)
      throw Error(Errc::capture_failed, known.key.refusal);
  }

  std::vector<at::Tensor> replace_capture(Known& known, CapturedStep step,
                                          std::vector<at::Tensor> results) {
    ++ledger_.counters.guard_failures;
    ++ledger_.counters.captures;
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
      ++ledger_.counters.guard_failures;
      ledger_.notice("captured anew: " + outcome.difference);
      if (++known.key.failures >= patience)
        known.key.refusal = "the step differs from call to call: " + outcome.difference;
      return false;
    }
    const auto& gradient_of = known.key.captured->gradient_of();
    for (std::size_t i = 0; i < gradient_of.size(); ++i)
      leaves[gradient_of[i]].tensor.mutable_grad() = std::move(outcome.gradients[i]);
    results = std::move(outcome.results);
    ++ledger_.counters.replays;
    known.key.failures = 0;
    meter_.replayed(*known.made);
    return true;
  }

  std::vector<at::Tensor> capture_anew(Known& known, const ModelTensors& model,
                                       const StepArguments& arguments, const Run& run) {
    forget_capture(known);
    ++ledger_.counters.captures;
    runner_.release_arena();
    TraceHooks hooks;
    CapturedStep captured = capture_(known, model, arguments, run, &hooks);
    ledger_.step_completed = true;
    KnownStep& key = known.key;
    key.trace = std::move(hooks.trace);
    std::vector<at::Tensor> results = captured.take_results();
    ledger_.last.moved = captured.transfers().bytes_out;
    // to the end of this call it was another one: the next may find it as it was
    if (model_.modules && model_.modules() != modules_) {
      planning_.resolve(known, captured);
      ledger_.log.info(
          "the loss function itself changes a module's mode or options: a call that begins like "
          "this one is captured each time");
      return results;
    }
    key.storages = captured.recording().reads_aliases ? storages_of(model) : std::string{};
    if (key.refusal.empty()) key.refusal = captured.refusal();
    if (!key.refusal.empty()) {
      planning_.resolve(known, captured);
      if (ledger_.options.on_fallback == OnFallback::error) refuse(known);
      const std::string how = ledger_.options.budget.given() ? "by moving storages out" : "eagerly";
      ledger_.notice("from now on this step runs " + how + ": " + key.refusal);
      return results;
    }
    set_capture(known, std::move(captured));
    planning_.ensure_program(known);
    return results;
  }

  StepModel model_;
  Pipe pipeline_;
  StepLedger ledger_;
  StepMeter meter_{ledger_};
  StepPlanning planning_;
  StepCapture capture_{ledger_, meter_, planning_};
  ReplayRunner<Pipe> runner_{pipeline_, ledger_, meter_, planning_};
  std::string modules_;  // what they were when the call began
  Known* current_ = nullptr;
  Bytes idle_ = ResidentProbe::process_peak();
};

// Not inline, any of these: an extern template declaration then keeps all of the above out of a
// file.

template <class Pipe>
StepEngine<Pipe>::StepEngine(StepModel model, TrainStepOptions options, Pipe pipeline)
    : model_(std::move(model)),
      pipeline_(std::move(pipeline)),
      ledger_(std::move(options)),
      planning_(ledger_, step_stages(pipeline_, ledger_.options.run)) {
  if (!memory_is_counted())
    ledger_.notice(
        "another library has put its allocator in the place of Reprise's: results stay right, but "
        "no memory is counted");
}

template <class Pipe>
StepEngine<Pipe>::~StepEngine() = default;

template <class Pipe>
std::vector<at::Tensor> StepEngine<Pipe>::step(const StepArguments& arguments, const Run& run) {
  DispatchHook::refuse_inside_another();  // a replay would not be seen by the step around it
  runner_.memory().settle();
  const ModelTensors model = model_.tensors();
  modules_ = model_.modules ? model_.modules() : std::string{};
  Known& known = known_step(model, signature_of(model, modules_, arguments));
  current_ = &known;
  ledger_.step_completed = false;
  // what waits for another's steps would take room from this one's
  if (ledger_.options.budget.given()) page_blocks().clear();
  runner_.release_arena_beyond(planning_.known_budget(known));
  meter_.begin(runner_.memory().capacity());
  const StepBytes own(cpu_memory().serial());
  pipeline_.profiler().probe().begin_run();
  std::vector<at::Tensor> results = choose_and_run(known, model, arguments, run);
  ledger_.last.probed_peak = pipeline_.profiler().probe().end_run();
  meter_.end();
  ++ledger_.counters.steps;
  ledger_.counters.planned_steps += ledger_.last.planned ? 1 : 0;
  ledger_.counters.fitting_steps += ledger_.last.fits ? 1 : 0;
  if (ledger_.options.on_step) ledger_.options.on_step(ledger_.last);
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
  return step_summary(ledger_.options.run.name, ledger_.counters, ledger_.last, resident_growth());
}

}  // namespace reprise::training
