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
//   extern template class reprise::StepEngine<>;      in a header that every file includes, after <reprise/libtorch.hpp>
//   template class reprise::StepEngine<>;             in one file

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/free_memory.hpp>
#include <reprise/graph/diff.hpp>
#include <reprise/libtorch/options/step_report.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/replay/arena.hpp>
#include <reprise/libtorch/replay/program.hpp>
#include <reprise/libtorch/replay/step_observer.hpp>
#include <reprise/libtorch/torch/allocator_probe.hpp>
#include <reprise/libtorch/train_step/known_steps.hpp>
#include <reprise/libtorch/train_step/signature.hpp>
#include <reprise/libtorch/train_step/step_check.hpp>
#include <reprise/libtorch/train_step/step_ledger.hpp>
#include <reprise/libtorch/train_step/step_planning.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

namespace reprise {

/// The model of a step, asked anew before each: modules may be added, exchanged and switched
/// between calls.
struct StepModel {
  std::function<ModelTensors()> tensors{};
  /// what they are, whether they train, their options; empty where there is no module
  std::function<std::string()> modules{};
};

/// `Memory`: ArenaMemory, or AllocatorMemory. `Clock` times ops, `Probe` measures memory beside the
/// allocator's own count.
template <StepMemory Memory = ArenaMemory, Timer Clock = SteadyTimer,
          MemProbe Probe = AllocatorProbe>
class StepEngine {
 public:
  using Run = std::function<std::vector<at::Tensor>()>;

  StepEngine(StepModel model, TrainStepOptions options, Memory memory, Clock clock, Probe probe);
  ~StepEngine();
  StepEngine(const StepEngine&) = delete;
  StepEngine& operator=(const StepEngine&) = delete;

  /// One step: `run` calls the loss function with these arguments. Returns its results.
  std::vector<at::Tensor> step(const StepArguments& arguments, const Run& run);
  void release();
  void report(const std::filesystem::path& file, std::size_t points) const;
  void save_plan(const std::filesystem::path& file) const;
  void load_plan(std::filesystem::path file);
  void exclude(Bytes others) { excluded_ = others; }

  [[nodiscard]] const StepCounters& counters() const { return ledger_.counters; }
  [[nodiscard]] const StepMeasurement& last() const { return ledger_.last; }
  [[nodiscard]] const StepGraph& graph() const;
  [[nodiscard]] const Plan& plan() const;
  [[nodiscard]] std::string refusal() const {
    return current_ == nullptr ? std::string{} : current_->refusal;
  }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] Bytes resident_growth() const { return ResidentProbe::process_peak() - idle_; }

 private:
  // A capture that reads the model's memory through tensors that are not the model's holds for that
  // memory alone.
  KnownStep& known_step(const ModelTensors& model, std::string signature) {
    KnownStep& known = known_.find_or_add(signature, ledger_.options.max_plans);
    if (known.storages.empty()) return known;
    std::string storages = storages_of(model);
    if (storages == known.storages) return known;
    return known_.find_or_add(std::move(signature) + std::move(storages),
                              ledger_.options.max_plans);
  }

  /// Guards that keep failing mean that the step is not the same from call to call: it is then left
  /// to eager.
  static constexpr int patience = 3;

  std::vector<at::Tensor> run_somehow(KnownStep& known, const ModelTensors& model,
                                      const StepArguments& arguments, const Run& run) {
    if (!known.refusal.empty()) return run_without_graph(known, model, arguments, run);
    if (!known.captured) return capture_anew(known, model, arguments, run);
    if (ledger_.options.recheck && is_due(++known.calls))
      return check_again(known, model, arguments, run);
    if (!planning_.fits(known)) return run_without_graph(known, model, arguments, run);
    if (ledger_.options.verify > 0 && ++known.verifiable % ledger_.options.verify == 0)
      return verify(known, model, arguments, run);
    std::vector<at::Tensor> results;
    return replay(known, model, arguments, results) ? results
                                                    : capture_anew(known, model, arguments, run);
  }

  // ── running ────────────────────────────────────────────────────────────────────────────────────

  // What cannot be captured or planned runs as it is; under a budget, inside it by moving out what
  // the running op does not read.
  std::vector<at::Tensor> run_without_graph(KnownStep& known, const ModelTensors& model,
                                            const StepArguments& arguments, const Run& run) {
    ++ledger_.counters.eager_runs;
    make_room();
    if (ledger_.options.budget.given()) {
      ++ledger_.counters.fallbacks;
      CapturedStep step = capture_inside(known, model, arguments, run);
      ledger_.last.moved = step.transfers().bytes_out;
      planning_.resolve(known, step);
      return step.take_results();
    }
    std::vector<at::Tensor> results = run();
    detail::run_backward(results);
    for (at::Tensor& result : results)
      if (result.defined()) result = result.tensor_data();
    return results;
  }

  // Moving out cannot do everything: a budget below what the step begins or ends with is an error,
  // which says what would do.
  CapturedStep capture_inside(const KnownStep& known, const ModelTensors& model,
                              const StepArguments& arguments, const Run& run) {
    try {
      return capture_step(model, arguments, run, capture_options(known));
    } catch (const Error& error) {
      if (error.code() != Errc::budget_unreachable || ledger_.last.floor <= Bytes{0}) throw;
      throw Error(error.code(),
                  std::string(error.what()) + ". Of this step: " + planning_.what_it_needs());
    }
  }

  // `calls` counts from the one after the capture.
  [[nodiscard]] static bool is_due(std::int64_t calls) {
    const std::int64_t n = calls + 1;
    return n <= 4 || n % 100 == 0 || (n < 100 && (n & (n - 1)) == 0);
  }

  std::vector<at::Tensor> check_again(KnownStep& known, const ModelTensors& model,
                                      const StepArguments& arguments, const Run& run) {
    make_room();
    planning_.resolve(known);
    TraceHooks hooks;
    CapturedStep step = capture_step(model, arguments, run, capture_options(known, &hooks));
    ledger_.carried_out = true;
    ledger_.last.moved = step.transfers().bytes_out;
    std::vector<at::Tensor> results = step.take_results();
    std::string why = step.refusal();
    if (why.empty()) {
      const auto difference = diff(known.captured->graph(), step.graph());
      if (!difference) why = exchanged_tensor(known.captured->recording(), step.recording());
      if (!difference && why.empty()) {
        ++ledger_.counters.rechecks;
        known.last_equal = known.calls + 1;
        return results;
      }
      if (difference && is_guard(step.recording(), difference->node)) {
        known.trace = std::move(hooks.trace);
        known.storages = step.recording().reads_aliases ? storages_of(model) : std::string{};
        return take_over(known, std::move(step), std::move(results));
      }
      if (difference) why = difference->message;
    }
    known.refusal = "call " + std::to_string(known.calls + 1) +
                    " is not the step that was captured (last found equal: call " +
                    std::to_string(known.last_equal) + "): " + why;
    known.forget_program();
    known.captured.reset();
    if (ledger_.options.on_fallback == OnFallback::error) refuse(known);
    ledger_.notice("from now on this step runs without its graph: " + known.refusal);
    return results;
  }

  // Graphs are equal where only the tensors are others: a closure's that was exchanged for another
  // of the same shape, and lives on. (Where it has died, the next replay finds out.)
  static std::string exchanged_tensor(const Recording& before, const Recording& now) {
    const auto captured_in = [](const Recording& recording) {
      std::vector<const RecordedValue*> found;
      for (const RecordedValue& value : recording.values)
        if (value.origin == Origin::captured && value.captured) found.push_back(&value);
      return found;
    };
    const auto old_ones = captured_in(before), new_ones = captured_in(now);
    for (std::size_t i = 0; i < std::min(old_ones.size(), new_ones.size()); ++i) {
      const auto old_storage = old_ones[i]->captured->lock(),
                 new_storage = new_ones[i]->captured->lock();
      if (!old_storage || !new_storage) continue;
      if (old_storage == new_storage &&
          old_ones[i]->geometry.offset == new_ones[i]->geometry.offset)
        continue;
      return "the loss function reads another tensor in the place of '" + old_ones[i]->name +
             "', which is neither an argument nor of the model: pass it as an argument";
    }
    return {};
  }

  // The replay first, then everything that it changed is put back and the user's own code runs,
  // under the recorder.
  std::vector<at::Tensor> verify(KnownStep& known, const ModelTensors& model,
                                 const StepArguments& arguments, const Run& run) {
    unbounded_ = true;
    const std::vector<NamedTensor> leaves = detail::leaves_of(model, arguments);
    const Bindings bindings{model.parameters, model.buffers, arguments.tensors, leaves};
    const std::vector<at::Tensor> written = known.program->written(bindings);
    const StepSnapshot before(written);
    NodeHashes replayed;
    RunOutcome ours;
    if (known.layout) {
      memory_.start(*known.layout);
      ours = known.program->run(bindings, HashObserver{replayed}, memory_);
    } else {
      ours = known.program->run(bindings, HashObserver{replayed});
    }
    const StepSnapshot after(written);
    before.restore();
    HashHooks hooks;
    hooks.known = &known.captured->recording();
    CapturedStep eager = capture_step(model, arguments, run, capture_options(known, &hooks));
    std::vector<at::Tensor> results = eager.take_results();
    if (!ours.completed) return results;  // a guard: the next call finds it out, and captures anew
    ++ledger_.counters.verified;
    std::string difference =
        describe_difference(known.captured->graph(), first_difference(replayed, hooks.hashes));
    if (difference.empty())
      difference = compare_handed_over(*known.captured, ours, results, leaves);
    if (difference.empty() && !after.holds_now())
      difference = "a buffer, an input or the generator was changed otherwise";
    if (!difference.empty()) refuse_after_difference(known, difference);
    return results;
  }

  [[noreturn]] void refuse(KnownStep& known) const {
    throw Error(Errc::capture_failed, std::exchange(known.refusal, {}) + ledger_.afterwards());
  }

  void refuse_after_difference(KnownStep& known, const std::string& difference) {
    ++ledger_.counters.differences;
    known.refusal = "a replay was not equal to eager: " + difference;
    ledger_.notice("from now on this step runs without its graph: " + known.refusal);
    if (ledger_.options.on_fallback == OnFallback::error)
      throw Error(Errc::capture_failed, known.refusal);
  }

  // What has come since the last step (the optimizer's state) may leave less room than the arena
  // takes.
  void give_up_arena_beyond(Bytes budget) {
    if (budget > Bytes{0} && cpu_memory().reserved() - excluded_ > budget) memory_.release();
  }

  // What runs beside the arena must not share the budget with it.
  void make_room() {
    if (ledger_.options.budget.given()) memory_.release();
  }

  // Where data decides (a number for the host, a shape), another number is not another step: the
  // new one is taken from here on.
  [[nodiscard]] static bool is_guard(const Recording& recording, NodeId n) {
    if (n.index >= recording.calls.size() || recording.calls[n.index].kind != CallKind::op)
      return false;
    const OpFacts& facts = *recording.calls[n.index].facts;
    return facts.reads_to_host || facts.dynamic_shape;
  }

  std::vector<at::Tensor> take_over(KnownStep& known, CapturedStep step,
                                    std::vector<at::Tensor> results) {
    ++ledger_.counters.guard_failures;
    ++ledger_.counters.captures;
    known.forget_program();
    known.captured = std::make_unique<CapturedStep>(std::move(step));
    static_cast<void>(planning_.fits(known));
    return results;
  }

  bool replay(KnownStep& known, const ModelTensors& model, const StepArguments& arguments,
              std::vector<at::Tensor>& results) {
    const std::vector<NamedTensor> leaves = detail::leaves_of(model, arguments);
    RunOutcome outcome =
        run_program(known, {model.parameters, model.buffers, arguments.tensors, leaves});
    ledger_.counters.workspace_changes += static_cast<std::int64_t>(outcome.workspace_changes);
    if (!outcome.completed) {
      ++ledger_.counters.guard_failures;
      ledger_.notice("captured anew: " + outcome.difference);
      if (++known.failures >= patience)
        known.refusal = "the step differs from call to call: " + outcome.difference;
      return false;
    }
    const auto& gradient_of = known.captured->gradient_of();
    for (std::size_t i = 0; i < gradient_of.size(); ++i)
      leaves[gradient_of[i]].tensor.mutable_grad() = std::move(outcome.gradients[i]);
    results = std::move(outcome.results);
    ++ledger_.counters.replays;
    known.failures = 0;
    ledger_.last.replayed = true;
    ledger_.last.predicted_peak = ledger_.last.base + known.program->peak_above_base();
    ledger_.last.recomputed = known.plan.schedule.size() - known.captured->graph().node_count();
    ledger_.last.extra_time_predicted = known.plan.overhead();
    return true;
  }

  RunOutcome run_program(KnownStep& known, const Bindings& bindings) {
    StepObserver<Clock, Probe> observer{clock_, probe_, planning_.wants_times(known)};
    if (observer.timed) clock_.begin_run(known.plan.schedule.size());
    ++known.replays;
    RunOutcome outcome = known.layout ? run_in_arena(known, bindings, observer)
                                      : run_in_allocator(known, bindings, observer);
    if (observer.timed)
      known.measured =
          by_node(clock_.end_run(), known.plan.schedule, known.captured->graph().node_count());
    if (!outcome.completed) known.measured.clear();
    return outcome;
  }

  template <class Observer>
  RunOutcome run_in_allocator(KnownStep& known, const Bindings& bindings, Observer& observer) {
    make_room();
    return known.program->run(bindings, observer);
  }

  template <class Observer>
  RunOutcome run_in_arena(KnownStep& known, const Bindings& bindings, Observer& observer) {
    const Bytes capacity = memory_.capacity();
    const bool grown_for_another_shape =
        capacity > known.layout->counted && capacity + known.layout->outside > planning_.room();
    if (ledger_.options.budget.given() && grown_for_another_shape) memory_.release();
    memory_.start(*known.layout);
    RunOutcome outcome = known.program->run(bindings, observer, memory_);
    const ArenaUse use = memory_.use();
    ledger_.last.arena = memory_.capacity();
    ledger_.last.arena_blocks = use.taken;
    ledger_.last.arena_misses = use.fallbacks;
    if (use.fallbacks > 0) leave_room_for_misses(known);
    return outcome;
  }

  // Ops that asked for other blocks than planned have made the step hold more than its arena: the
  // next plan leaves room for as much.
  void leave_room_for_misses(KnownStep& known) {
    const Bytes planned = ledger_.last.base + std::max(memory_.capacity(), known.layout->counted) +
                          known.layout->outside;
    const Bytes held = own_reserved_peak() - ledger_.others;
    known.missed = std::max(known.missed, held - planned);
  }

  std::vector<at::Tensor> capture_anew(KnownStep& known, const ModelTensors& model,
                                       const StepArguments& arguments, const Run& run) {
    known.forget_program();
    known.captured.reset();
    known.unplannable = false;
    ++ledger_.counters.captures;
    make_room();
    TraceHooks hooks;
    auto captured = std::make_unique<CapturedStep>(
        capture_step(model, arguments, run, capture_options(known, &hooks)));
    ledger_.carried_out = true;
    known.trace = std::move(hooks.trace);
    std::vector<at::Tensor> results = captured->take_results();
    ledger_.last.moved = captured->transfers().bytes_out;
    // to the end of this call it was another one: the next may find it as it was
    if (model_.modules && model_.modules() != modules_) {
      planning_.resolve(known, *captured);
      ledger_.log.info(
          "the loss function itself changes a module's mode or options: a call that begins like "
          "this one is captured each time");
      return results;
    }
    known.storages = captured->recording().reads_aliases ? storages_of(model) : std::string{};
    if (known.refusal.empty()) known.refusal = captured->refusal();
    if (!known.refusal.empty()) {
      planning_.resolve(known, *captured);
      if (ledger_.options.on_fallback == OnFallback::error) refuse(known);
      const std::string how = ledger_.options.budget.given() ? "by moving storages out" : "eagerly";
      ledger_.notice("from now on this step runs " + how + ": " + known.refusal);
      return results;
    }
    known.captured = std::move(captured);
    static_cast<void>(planning_.fits(known));
    return results;
  }

  // A share is one of what this step takes; a budget in bytes is for all that the allocator holds.
  [[nodiscard]] bool is_share() const {
    return ledger_.options.budget.kind == Budget::Kind::share ||
           ledger_.options.budget.kind == Budget::Kind::savable;
  }
  // What there was when the call began, and what this step has taken since: as reserved_peak,
  // without what other threads did meanwhile.
  [[nodiscard]] Bytes own_reserved_peak() const {
    const ByteCounter* own = StepBytes::here();
    return own != nullptr ? started_with_ + own->reserved_peak()
                          : cpu_memory().reserved_peak() - excluded_;
  }

  // What the step was held to, compared with what was held at most. A share does not bound what
  // other threads take.
  void tell_of_overshoot() {
    StepMeasurement& last = ledger_.last;
    const Bytes own = own_reserved_peak();
    last.elsewhere = std::max(last.reserved_peak - own, Bytes{0});
    const bool bounded = ledger_.options.budget.given() &&
                         ledger_.options.budget.kind != Budget::Kind::extra_time && !unbounded_;
    const Bytes allowed = last.limit > Bytes{0} ? last.limit : last.budget;
    const Bytes held = is_share() ? own : last.reserved_peak;
    last.over_budget = bounded && allowed > Bytes{0} && held > allowed;
    if (!last.over_budget) return;
    ledger_.notice("this step went above its budget: it held " + format_bytes(held) + " (" +
                   std::to_string(held.count) + " bytes) of " + format_bytes(allowed) + " (" +
                   std::to_string(allowed.count) + " bytes). " +
                   (own <= allowed ? "Threads that are not part of the step took " +
                                         format_bytes(last.elsewhere) + " meanwhile"
                                   : "Its ops took other blocks than when it was captured; the "
                                     "next plan leaves room for them"));
  }

  [[nodiscard]] CaptureOptions capture_options(const KnownStep& known,
                                               RecorderHooks* hooks = nullptr) {
    CaptureOptions options{
        .name = ledger_.options.name, .hooks = hooks, .spill_folder = ledger_.options.spill_folder};
    ledger_.last.limit = planning_.known_budget(known);
    if (ledger_.last.limit == Bytes{0} && ledger_.options.budget.given())
      ledger_.last.limit =
          limit_until_known(ledger_.options.limit_until_known, ledger_.last.base, free_memory());
    if (ledger_.last.limit > Bytes{0}) options.memory_limit = ledger_.last.limit + excluded_;
    if (is_share() && known.budget > Bytes{0})
      options.held_at_start = ledger_.last.base + excluded_;
    return options;
  }

  StepModel model_;
  StepLedger ledger_;
  StepPlanning planning_{ledger_, Memory::plans_addresses};
  Memory memory_;
  Clock clock_;
  Probe probe_;
  KnownSteps known_;
  std::string modules_;  // what they were when the call began
  KnownStep* current_ = nullptr;
  Bytes idle_ = ResidentProbe::process_peak();
  Bytes excluded_{};        // of what the allocator holds
  bool unbounded_ = false;  // the running call takes more than its budget by design
  Bytes started_with_{};    // what was held when the call began, arenas as a whole
};

// Not inline, any of these: an extern template declaration then keeps all of the above out of a
// file.

template <StepMemory M, Timer C, MemProbe P>
StepEngine<M, C, P>::StepEngine(StepModel model, TrainStepOptions options, M memory, C clock,
                                P probe)
    : model_(std::move(model)),
      ledger_(std::move(options)),
      memory_(std::move(memory)),
      clock_(std::move(clock)),
      probe_(std::move(probe)) {
  if (!ledger_.options.planner) check_strategy(ledger_.options.strategy);
  if (!memory_is_counted())
    ledger_.notice(
        "another library has put its allocator in the place of Reprise's: results stay right, but "
        "no memory is counted");
}

template <StepMemory M, Timer C, MemProbe P>
StepEngine<M, C, P>::~StepEngine() = default;

template <StepMemory M, Timer C, MemProbe P>
std::vector<at::Tensor> StepEngine<M, C, P>::step(const StepArguments& arguments, const Run& run) {
  DispatchHook::refuse_inside_another();  // a replay would not be seen by the step around it
  const auto start = std::chrono::steady_clock::now();
  memory_.settle();
  const ModelTensors model = model_.tensors();
  modules_ = model_.modules ? model_.modules() : std::string{};
  KnownStep& known = known_step(model, signature_of(model, modules_, arguments));
  current_ = &known;
  ledger_.carried_out = unbounded_ = false;
  // what waits for another's steps would take room from this one's
  if (ledger_.options.budget.given()) page_blocks().clear();
  give_up_arena_beyond(planning_.known_budget(known));
  ledger_.last = {.base = cpu_memory().live() - excluded_};
  ledger_.others = cpu_memory().spare() - memory_.capacity();
  started_with_ = ledger_.last.base + cpu_memory().spare();
  const StepBytes own(cpu_memory().serial());
  cpu_memory().reset_peak();
  probe_.begin_run();
  std::vector<at::Tensor> results = run_somehow(known, model, arguments, run);
  ledger_.last.probed_peak = probe_.end_run();
  ledger_.last.peak = cpu_memory().peak() - excluded_;
  ledger_.last.reserved_peak = cpu_memory().reserved_peak() - excluded_;
  if (!ledger_.last.replayed) ledger_.last.predicted_peak = ledger_.last.peak;
  tell_of_overshoot();
  ledger_.last.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (ledger_.options.on_step) ledger_.options.on_step(ledger_.last);
  return results;
}

template <StepMemory M, Timer C, MemProbe P>
void StepEngine<M, C, P>::release() {
  memory_.release();
}

template <StepMemory M, Timer C, MemProbe P>
const StepGraph& StepEngine<M, C, P>::graph() const {
  if (current_ == nullptr || !current_->captured)
    throw Error(Errc::bad_argument,
                "the last step has no graph: it ran eagerly, or none has run yet");
  return current_->captured->graph();
}

template <StepMemory M, Timer C, MemProbe P>
const Plan& StepEngine<M, C, P>::plan() const {
  if (current_ == nullptr || !current_->program)
    throw Error(Errc::bad_argument,
                "the last step has no plan: it ran eagerly, or none has run yet");
  return current_->plan;
}

template <StepMemory M, Timer C, MemProbe P>
std::string StepEngine<M, C, P>::summary() const {
  return step_summary(ledger_.options.name, ledger_.counters, ledger_.last, resident_growth());
}

template <StepMemory M, Timer C, MemProbe P>
void StepEngine<M, C, P>::report(const std::filesystem::path& file, std::size_t points) const {
  write_step_report(file, graph(), plan(), ledger_.options.planning, points, summary());
}

template <StepMemory M, Timer C, MemProbe P>
void StepEngine<M, C, P>::load_plan(std::filesystem::path file) {
  if (!std::ifstream(file))
    throw Error(Errc::io,
                "cannot read the plan file '" + file.string() + "': " + std::strerror(errno));
  planning_.file = std::move(file);
}

template <StepMemory M, Timer C, MemProbe P>
void StepEngine<M, C, P>::save_plan(const std::filesystem::path& file) const {
  write_plan_file(file.string(), graph(), plan());
}

}  // namespace reprise
