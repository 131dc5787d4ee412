#pragma once
// A TrainStep is a training step as a function: captured on its first call, run from its graph on the following ones, inside a
// memory budget where one is given.
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
// The contract: which ops the loss function runs, and with which numbers, depends on the shapes of its arguments, on LibTorch's
// settings and on what it asks LibTorch for (.item()) alone. Host state (a counter, a branch on a host random number, values read
// through const_data_ptr, a closure's tensor that is another one in the next step) is what a replay cannot see: rechecks look for it.
//
//   call ──▶ signature known? ──no──▶ capture (a valid step, inside the budget) ──can it be run again?──no──▶ eagerly, with a notice
//                 │ yes                                              │ yes: plan for what the budget leaves
//                 ▼                                                  ▼
//              replay ──a host value or a data-decided shape differs──▶ put back, capture anew
//
// The budget bounds what the allocator holds in the process. When the base changes (Adam's state appears after the first step), the
// plan is made again for what is left.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reprise/free_memory.hpp>
#include <reprise/graph/diff.hpp>
#include <reprise/libtorch/arena.hpp>
#include <reprise/libtorch/allocator_probe.hpp>
#include <reprise/libtorch/budget.hpp>
#include <reprise/libtorch/capture.hpp>
#include <reprise/libtorch/known_steps.hpp>
#include <reprise/libtorch/libtorch_backend.hpp>
#include <reprise/libtorch/program.hpp>
#include <reprise/libtorch/signature.hpp>
#include <reprise/libtorch/step_check.hpp>
#include <reprise/libtorch/step_observer.hpp>
#include <reprise/libtorch/step_options.hpp>
#include <reprise/libtorch/step_report.hpp>
#include <reprise/log.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/step_plans.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

namespace reprise {

/// `Memory`: ArenaMemory, or AllocatorMemory. `Clock` times ops, `Probe` measures memory beside the allocator's own count.
template <class LossFn, StepMemory Memory = ArenaMemory, Timer Clock = SteadyTimer, MemProbe Probe = AllocatorProbe>
class TrainStep {
 public:
  /// `model`: a torch::nn module holder, a pointer to a module, or a list of parameters.
  template <class Model>
  TrainStep(Model model, LossFn loss_fn, TrainStepOptions options = {}, Memory memory = {}, Clock clock = {}, Probe probe = {})
      : loss_fn_(std::move(loss_fn)),
        options_(std::move(options)),
        log_(options_.name, options_.log_level, options_.on_log),
        memory_(std::move(memory)),
        clock_(std::move(clock)),
        probe_(std::move(probe)) {
    list_tensors_ = [model] { return tensors_of(model); };
    if constexpr (ModuleLike<Model>) list_training_ = training_flags(model);
    if (!memory_is_counted())
      notice("another library has put its allocator in the place of Reprise's: results stay right, but no memory is counted");
  }

  TrainStep(const TrainStep&) = delete;
  TrainStep& operator=(const TrainStep&) = delete;
  TrainStep(TrainStep&&) = default;
  TrainStep& operator=(TrainStep&&) = default;

  /// One step: forward and backward. Returns the loss, or what the loss function returns where that is more.
  template <class... Arguments>
  auto operator()(const Arguments&... arguments) {
    using Result = std::remove_cvref_t<decltype(loss_fn_(arguments...))>;
    const StepArguments flat = arguments_of(arguments...);
    return as<Result>(step(flat, [&] { return results_of(loss_fn_(arguments...)); }));
  }

  /// Gives the arena back until the next step needs it.
  void release() { memory_.release(); }

  [[nodiscard]] const StepCounters& counters() const { return counters_; }
  [[nodiscard]] const StepMeasurement& last() const { return last_; }
  /// The graph of the last call. Throws where that call ran eagerly and has none.
  [[nodiscard]] const StepGraph& graph() const {
    if (current_ == nullptr || !current_->captured)
      throw Error(Errc::bad_argument, "the last step has no graph: it ran eagerly, or none has run yet");
    return current_->captured->graph();
  }
  /// Why the last call's signature runs eagerly; empty where it is replayed.
  [[nodiscard]] std::string refusal() const { return current_ == nullptr ? std::string{} : current_->refusal; }
  /// The plan of the last call; its peak is the graph's, persistent values included.
  [[nodiscard]] const Plan& plan() const {
    if (current_ == nullptr || !current_->program)
      throw Error(Errc::bad_argument, "the last step has no plan: it ran eagerly, or none has run yet");
    return current_->plan;
  }
  /// What was done so far, in a few lines.
  [[nodiscard]] std::string summary() const { return step_summary(options_.name, counters_, last_, resident_growth()); }
  /// What the process has grown by at most since this step was made, as the system counts it; 0 where it does not say.
  [[nodiscard]] Bytes resident_growth() const { return ResidentProbe::process_peak() - idle_; }
  /// A page about the last call: its profile, memory before and after, what is computed again, extra time against budget. Plans
  /// `points` budgets for the last of these; 0 leaves it out.
  void report(const std::filesystem::path& file, std::size_t points = 6) const {
    PlanRequest request = options_.planning;
    request.effort = std::min(request.effort, 0.3);
    const std::vector<Plan> curve = points > 0 ? frontier(graph(), request, points) : std::vector<Plan>{};
    std::ofstream out(file);
    write_step_report(out, graph(), plan(), curve, summary());
  }
  /// Writes the last call's plan as a reprise.plan file.
  void save_plan(const std::filesystem::path& file) const { write_plan_file(file.string(), graph(), plan()); }
  /// The plan that the next capture uses instead of making one. It is refused, by name, where it was made for another graph.
  void load_plan(std::filesystem::path file) { plan_file_ = std::move(file); }
  /// Bytes that the allocator holds for something else (another model in the process): the budget does not bound them, and no
  /// number of last() counts them.
  void exclude(Bytes others) { excluded_ = others; }

 private:
  /// Guards that keep failing mean that the step is not the same from call to call: it is then left to eager.
  static constexpr int patience = 3;
  static constexpr int most_refinements = 1;
  /// The replay that is timed: the one before it has touched the arena, and warmed the caches of primitives.
  static constexpr int timed_replay = 1;
  /// Of the usual effort, for a plan that will be made again with the times of warm ops.
  static constexpr double quick_effort = 0.3;
  /// Seconds for all planning of a call, unless the user's request has a limit of its own: quickly, and with the times of warm ops.
  static constexpr double quick_seconds = 1.5, most_seconds = 3;
  /// As a share of the step's time: what fresh pages cost eager.
  static constexpr double worth_of_arena = 0.06;

  using Known = KnownStep;
  using Run = std::function<std::vector<at::Tensor>()>;

  // Modules may be added, exchanged and switched between calls: they are listed anew each time.
  template <class Model>
  static std::function<std::string()> training_flags(const Model& model) {
    return [model] {
      std::string flags(1, model->is_training() ? 't' : 'e');
      for (const auto& module : model->modules(/*include_self=*/false)) flags += module->is_training() ? 't' : 'e';
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
    const auto start = std::chrono::steady_clock::now();
    memory_.settle();
    const ModelTensors model = list_tensors_();
    Known& known =
        known_.find_or_add(signature_of(model, list_training_ ? list_training_() : std::string{}, arguments), options_.max_plans);
    current_ = &known;
    last_ = {.base = cpu_memory().live() - excluded_};
    cpu_memory().reset_peak();
    probe_.begin_run();
    std::vector<at::Tensor> results = run_somehow(known, model, arguments, run);
    last_.probed_peak = probe_.end_run();
    last_.peak = cpu_memory().peak() - excluded_;
    last_.reserved_peak = cpu_memory().reserved_peak() - excluded_;
    if (!last_.replayed) last_.predicted_peak = last_.peak;
    last_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (options_.on_step) options_.on_step(last_);
    return results;
  }

  std::vector<at::Tensor> run_somehow(Known& known, const ModelTensors& model, const StepArguments& arguments, const Run& run) {
    if (!known.refusal.empty()) return run_without_graph(model, arguments, run);
    if (!known.captured) return capture_anew(known, model, arguments, run);
    if (options_.recheck && is_due(++known.calls)) return check_again(known, model, arguments, run);
    if (!fits(known)) return run_without_graph(model, arguments, run);
    if (options_.verify > 0 && ++known.verifiable % options_.verify == 0) return verify(known, model, arguments, run);
    std::vector<at::Tensor> results;
    return replay(known, model, arguments, results) ? results : capture_anew(known, model, arguments, run);
  }

  // ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────────

  // What cannot be captured or planned runs as it is; under a budget, inside it by moving out what the running op does not read.
  std::vector<at::Tensor> run_without_graph(const ModelTensors& model, const StepArguments& arguments, const Run& run) {
    ++counters_.eager_runs;
    make_room();
    if (options_.budget.given()) {
      ++counters_.fallbacks;
      CapturedStep step = capture_step(model, arguments, run, capture_options());
      last_.moved = step.transfers().bytes_out;
      return step.take_results();
    }
    std::vector<at::Tensor> results = run();
    detail::run_backward(results);
    for (at::Tensor& result : results)
      if (result.defined()) result = result.tensor_data();
    return results;
  }

  // `calls` counts from the one after the capture.
  [[nodiscard]] static bool is_due(std::int64_t calls) {
    const std::int64_t n = calls + 1;
    return n <= 4 || n % 100 == 0 || (n < 100 && (n & (n - 1)) == 0);
  }

  std::vector<at::Tensor> check_again(Known& known, const ModelTensors& model, const StepArguments& arguments, const Run& run) {
    make_room();
    TraceHooks hooks;
    CapturedStep step = capture_step(model, arguments, run, capture_options(&hooks));
    last_.moved = step.transfers().bytes_out;
    last_.budget = options_.budget.kind == Budget::Kind::bytes ? options_.budget.bytes : budget_;
    std::vector<at::Tensor> results = step.take_results();
    std::string why = step.refusal();
    if (why.empty()) {
      const auto difference = diff(known.captured->graph(), step.graph());
      if (!difference) {
        ++counters_.rechecks;
        known.last_equal = known.calls + 1;
        return results;
      }
      if (is_guard(step.recording(), difference->node)) {
        known.trace = std::move(hooks.trace);
        return take_over(known, std::move(step), std::move(results));
      }
      why = difference->message;
    }
    known.refusal = "call " + std::to_string(known.calls + 1) + " is not the step that was captured (last found equal: call " +
                    std::to_string(known.last_equal) + "): " + why;
    known.forget_program();
    known.captured.reset();
    if (options_.on_fallback == OnFallback::error) throw Error(Errc::capture_failed, std::exchange(known.refusal, {}));
    notice("from now on this step runs without its graph: " + known.refusal);
    return results;
  }

  // The replay first, then everything that it changed is put back and the user's own code runs, under the recorder.
  std::vector<at::Tensor> verify(Known& known, const ModelTensors& model, const StepArguments& arguments, const Run& run) {
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
    CapturedStep eager = capture_step(model, arguments, run, capture_options(&hooks));
    std::vector<at::Tensor> results = eager.take_results();
    if (!ours.completed) return results;  // a guard: the next call finds it out, and captures anew
    ++counters_.verified;
    std::string difference = describe_difference(known.captured->graph(), first_difference(replayed, hooks.hashes));
    if (difference.empty()) difference = compare_handed_over(*known.captured, ours, results, leaves);
    if (difference.empty() && !after.holds_now()) difference = "a buffer, an input or the generator was changed otherwise";
    if (!difference.empty()) refuse_after_difference(known, difference);
    return results;
  }

  void refuse_after_difference(Known& known, const std::string& difference) {
    ++counters_.differences;
    known.refusal = "a replay was not equal to eager: " + difference;
    notice("from now on this step runs without its graph: " + known.refusal);
    if (options_.on_fallback == OnFallback::error) throw Error(Errc::capture_failed, known.refusal);
  }

  // What runs beside the arena must not share the budget with it.
  void make_room() {
    if (options_.budget.given()) memory_.release();
  }

  // Where data decides (a number for the host, a shape), another number is not another step: the new one is taken from here on.
  [[nodiscard]] static bool is_guard(const Recording& recording, NodeId n) {
    if (n.index >= recording.calls.size() || recording.calls[n.index].kind != CallKind::op) return false;
    const OpFacts& facts = *recording.calls[n.index].facts;
    return facts.reads_to_host || facts.dynamic_shape;
  }

  std::vector<at::Tensor> take_over(Known& known, CapturedStep step, std::vector<at::Tensor> results) {
    ++counters_.guard_failures;
    ++counters_.captures;
    known.forget_program();
    known.captured = std::make_unique<CapturedStep>(std::move(step));
    static_cast<void>(fits(known));
    return results;
  }

  bool replay(Known& known, const ModelTensors& model, const StepArguments& arguments, std::vector<at::Tensor>& results) {
    const std::vector<NamedTensor> leaves = detail::leaves_of(model, arguments);
    RunOutcome outcome = run_program(known, {model.parameters, model.buffers, arguments.tensors, leaves});
    counters_.workspace_changes += static_cast<std::int64_t>(outcome.workspace_changes);
    if (!outcome.completed) {
      ++counters_.guard_failures;
      notice("captured anew: " + outcome.difference);
      if (++known.failures >= patience) known.refusal = "the step differs from call to call: " + outcome.difference;
      return false;
    }
    const auto& gradient_of = known.captured->gradient_of();
    for (std::size_t i = 0; i < gradient_of.size(); ++i) leaves[gradient_of[i]].tensor.mutable_grad() = std::move(outcome.gradients[i]);
    results = std::move(outcome.results);
    ++counters_.replays;
    known.failures = 0;
    last_.replayed = true;
    last_.predicted_peak = last_.base + known.program->peak_above_base();
    last_.recomputed = known.plan.schedule.size() - known.captured->graph().node_count();
    last_.extra_time_predicted = known.plan.overhead();
    return true;
  }

  RunOutcome run_program(Known& known, const Bindings& bindings) {
    StepObserver<Clock, Probe> observer{clock_, probe_, wants_times(known)};
    if (observer.timed) clock_.begin_run(known.plan.schedule.size());
    ++known.replays;
    RunOutcome outcome = known.layout ? run_in_arena(known, bindings, observer) : run_in_allocator(known, bindings, observer);
    if (observer.timed) known.measured = by_node(clock_.end_run(), known.plan.schedule, known.captured->graph().node_count());
    if (!outcome.completed) known.measured.clear();
    return outcome;
  }

  template <class Observer>
  RunOutcome run_in_allocator(Known& known, const Bindings& bindings, Observer& observer) {
    make_room();
    return known.program->run(bindings, observer);
  }

  template <class Observer>
  RunOutcome run_in_arena(Known& known, const Bindings& bindings, Observer& observer) {
    if (options_.budget.given() && memory_.capacity() > known.layout->counted && memory_.capacity() + known.layout->outside > room())
      memory_.release();  // grown for another shape
    memory_.start(*known.layout);
    RunOutcome outcome = known.program->run(bindings, observer, memory_);
    const ArenaUse use = memory_.use();
    last_.arena = memory_.capacity();
    last_.arena_blocks = use.taken;
    last_.arena_misses = use.fallbacks;
    return outcome;
  }

  // What ops take when caches are warm is not what they took when the step was captured.
  [[nodiscard]] bool wants_times(const Known& known) const {
    return options_.refine && options_.budget.given() && plan_file_.empty() && known.plan.overhead() > 0 &&
           known.replays == timed_replay && known.refinements < most_refinements;
  }

  // Times that add up to a quarter more or less, op by op, make another plan worth its while; so does one that was made in a hurry.
  void refine(Known& known) {
    if (known.measured.empty()) return;
    StepGraph& graph = known.captured->graph();
    double sum = 0, off = 0;
    for (std::size_t i = 0; i < known.measured.size(); ++i) {
      sum += known.measured[i].count;
      off += std::abs(known.measured[i].count - graph.node(NodeId{i}).time.count);
    }
    const std::vector<Microseconds> measured = std::exchange(known.measured, {});
    if (off <= 0.25 * sum && !known.quick) return;
    for (std::size_t i = 0; i < measured.size(); ++i) graph.set_time(NodeId{i}, measured[i]);
    ++known.refinements;
    ++counters_.refinements;
    known.stale = true;
    log_.info("ops take another time than when they were captured: planned again");
  }

  std::vector<at::Tensor> capture_anew(Known& known, const ModelTensors& model, const StepArguments& arguments, const Run& run) {
    known.forget_program();
    known.captured.reset();
    known.unplannable = false;
    ++counters_.captures;
    make_room();
    TraceHooks hooks;
    auto captured = std::make_unique<CapturedStep>(capture_step(model, arguments, run, capture_options(&hooks)));
    known.trace = std::move(hooks.trace);
    std::vector<at::Tensor> results = captured->take_results();
    last_.moved = captured->transfers().bytes_out;
    if (known.refusal.empty()) known.refusal = captured->refusal();
    if (!known.refusal.empty()) {
      if (options_.on_fallback == OnFallback::error) throw Error(Errc::capture_failed, std::exchange(known.refusal, {}));
      notice("from now on this step runs " + std::string(options_.budget.given() ? "by moving storages out" : "eagerly") + ": " +
             known.refusal);
      return results;
    }
    known.captured = std::move(captured);
    static_cast<void>(fits(known));
    return results;
  }

  [[nodiscard]] CaptureOptions capture_options(RecorderHooks* hooks = nullptr) const {
    CaptureOptions options{.name = options_.name, .hooks = hooks, .spill_folder = options_.spill_folder};
    if (options_.budget.kind == Budget::Kind::bytes) options.memory_limit = options_.budget.bytes;
    else if (budget_ > Bytes{0}) options.memory_limit = budget_;
    else if (options_.budget.given()) options.memory_limit = limit_until_known();
    if (options.memory_limit > Bytes{0}) options.memory_limit += excluded_;
    return options;
  }

  /// Of a budget that is a share of what is not known yet.
  [[nodiscard]] Bytes limit_until_known() const {
    if (options_.limit_until_known > Bytes{0}) return options_.limit_until_known;
    const Bytes free = free_memory();
    return free > Bytes{0} ? last_.base + Bytes{free.count / 5 * 4} : Bytes{0};
  }

  // ── planning ──────────────────────────────────────────────────────────────────────────────────────────────────────────

  // Makes sure that there is a program for what the budget leaves above the base. False where none was found.
  bool fits(Known& known) {
    const StepGraph& graph = known.captured->graph();
    const Bytes persistent = graph.persistent_bytes();
    last_.eager_peak = last_.base + (known.captured->recording().peak - known.captured->recording().base);
    last_.floor = last_.base + (floor_bytes(graph) - persistent);
    if (!options_.budget.given()) {
      if (!known.program) use(known, plan_file_.empty() ? plan_own_order(graph) : plan_from_file(plan_file_.string(), graph));
      return true;
    }
    if (!known.program && !plan_file_.empty()) use(known, plan_from_file(plan_file_.string(), graph));
    last_.budget = budget_now();
    refine(known);
    if (known.program && known.program->peak_above_base() <= room() && arena_fits(known) && !worth_planning_again(known, room()))
      return true;
    if (known.unplannable && room() <= known.room) return fall_back(known);
    return plan_for(known, room());
  }

  /// What the budget leaves above the base, and above the arenas of other steps.
  [[nodiscard]] Bytes room() const {
    return last_.budget - last_.base - (cpu_memory().reserved() - cpu_memory().live() - memory_.capacity());
  }
  [[nodiscard]] bool arena_fits(const Known& known) const { return !known.layout || known.layout->reserved() <= room(); }

  bool plan_for(Known& known, Bytes room) {
    const StepGraph& graph = known.captured->graph();
    PlanRequest request = options_.planning;
    request.budget = graph.persistent_bytes() + room;
    known.room = room;
    if (room <= Bytes{0}) return fall_back(known);
    known.stale = false;
    known.quick = options_.refine && known.refinements < most_refinements && !options_.planner;
    if (known.quick) request.effort *= quick_effort;
    Plan plan = plan_inside(known, request);
    ++counters_.plans;
    if (!plan.within_budget()) return fall_back(known, last_.base + (plan.peak - graph.persistent_bytes()));
    known.unplannable = false;
    use(known, plan);
    if (!arena_fits(known)) pack_lower(known, request, std::move(plan));
    log_.info("planned: " + format_bytes(known.plan.baseline_peak) + " to " + format_bytes(known.plan.peak) + ", " +
              std::to_string(known.plan.schedule.size() - graph.node_count()) + " ops again, " +
              (known.layout ? "an arena of " + format_bytes(known.layout->counted) : std::string("no arena")) + ", in " +
              format_time({1e6 * last_.plan_seconds}));
    return true;
  }

  // Where packing is known to waste something, that much less is asked for at once, if it is to be had.
  Plan plan_inside(const Known& known, PlanRequest request) {
    const StepGraph& graph = known.captured->graph();
    request.seconds = seconds_left(known);
    if (options_.budget.kind == Budget::Kind::extra_time)
      return timed(plan_within_time(graph, request, options_.budget.percent, [&](auto& g, auto& r) { return plan_by_option(g, r); }));
    const Bytes whole = request.budget;
    if (known.packing > 1) {
      const Bytes persistent = graph.persistent_bytes();
      request.budget = persistent + Bytes{static_cast<std::int64_t>(static_cast<double>((whole - persistent).count) / known.packing)};
      Plan plan = timed(plan_by_option(graph, request));
      plan.budget = whole;
      if (plan.within_budget()) return plan;
      request.seconds = seconds_left(known);
    }
    request.budget = whole;
    return timed(plan_by_option(graph, request));
  }

  [[nodiscard]] Plan plan_by_option(const StepGraph& graph, const PlanRequest& request) const {
    return options_.planner ? options_.planner(graph, request) : plan_with(options_.strategy, graph, request);
  }
  // Packing may ask for another plan: some time is left for that.
  [[nodiscard]] double seconds_left(const Known& known) const {
    if (options_.planning.seconds > 0) return options_.planning.seconds;
    return std::max(0.1, 0.6 * ((known.quick ? quick_seconds : most_seconds) - last_.plan_seconds));
  }
  Plan timed(Plan plan) {
    last_.plan_seconds += plan.seconds;
    return plan;
  }

  // Packing has wasted more than the budget leaves: planned again for that much less. Where that costs more time than an arena is
  // worth, or nothing fits, the first plan runs without one.
  void pack_lower(Known& known, PlanRequest request, Plan first) {
    constexpr int attempts = 2;
    for (int attempt = 0; attempt < attempts && options_.budget.kind != Budget::Kind::extra_time; ++attempt) {
      const Bytes excess = known.layout->reserved() - room();
      log_.info("an arena of " + format_bytes(known.layout->counted) + " is " + format_bytes(excess) + " too much: planned for less");
      known.packing = std::max(known.packing, packing_of(known)) + 0.005;  // packing does not shrink byte by byte with the plan
      Plan lower = plan_inside(known, request);
      if (!lower.within_budget() || lower.overhead() > first.overhead() + worth_of_arena) break;
      use(known, std::move(lower));
      if (arena_fits(known)) return;
    }
    use(known, std::move(first));
    known.layout.reset();
  }

  [[nodiscard]] static double packing_of(const Known& known) {
    return static_cast<double>(known.layout->reserved().count) / static_cast<double>(known.program->peak_above_base().count);
  }

  // `smallest`: the lowest peak that was found, where one was looked for.
  bool fall_back(Known& known, std::optional<Bytes> smallest = std::nullopt) {
    const std::string why = "no schedule within the budget of " + format_bytes(last_.budget) + " (" + std::to_string(last_.budget.count) +
                            " bytes) was found: the base is " + std::to_string(last_.base.count) + ", no schedule is below " +
                            std::to_string(last_.floor.count) +
                            (smallest ? ", the smallest peak found is " + std::to_string(smallest->count) : "");
    if (options_.on_fallback == OnFallback::error) throw Error(Errc::budget_unreachable, why);
    if (!known.unplannable) notice("this step runs inside the budget by moving storages out: " + why);
    known.unplannable = true;
    known.forget_program();
    return false;
  }

  // The base may shrink as well: what was planned for far less room pays for recomputation that is no longer needed.
  [[nodiscard]] static bool worth_planning_again(const Known& known, Bytes room) {
    if (known.stale) return true;
    return known.plan.overhead() > 0 && known.room > Bytes{0} && room.count > known.room.count + known.room.count / 20;
  }

  // A share is a share of what eager would take now: it counts the optimizer's state once that is there.
  Bytes budget_now() {
    if (options_.budget.kind == Budget::Kind::extra_time) return last_.eager_peak;
    budget_ = options_.budget.resolve(last_.eager_peak, last_.floor);
    return budget_;
  }

  void use(Known& known, Plan plan) {
    CapturedStep& captured = *known.captured;
    const Rewriting rewriting = rewrite(captured.graph(), plan.schedule);
    lint(captured.graph(), rewriting);
    known.program = std::make_unique<LibTorchProgram>(LibTorchBackend{}.compile(captured, rewriting));
    known.plan = std::move(plan);
    known.replays = 0;
    known.measured.clear();
    if constexpr (Memory::plans_addresses) lay_out(known, rewriting);
  }

  void lay_out(Known& known, const Rewriting& rewriting) {
    const Bytes enough = options_.budget.given() ? std::max(room(), Bytes{1}) : Bytes{0};
    ArenaLayout layout = layout_arena(known.captured->recording(), rewriting, known.trace, known.captured->result_count(), enough);
    known.layout = layout.planned > 0 ? std::make_unique<ArenaLayout>(std::move(layout)) : nullptr;
  }

  void notice(const std::string& text) {
    if (options_.on_notice) options_.on_notice(text);
    log_.notice(text);
  }

  LossFn loss_fn_;
  TrainStepOptions options_;
  Log log_;
  Memory memory_;
  Clock clock_;
  Probe probe_;
  std::function<ModelTensors()> list_tensors_;
  std::function<std::string()> list_training_;
  KnownSteps known_;
  Known* current_ = nullptr;
  Bytes idle_ = ResidentProbe::process_peak();
  Bytes budget_{};    // in bytes, once known
  Bytes excluded_{};  // of what the allocator holds
  std::filesystem::path plan_file_;
  StepCounters counters_;
  StepMeasurement last_;
};

template <class Model, class LossFn>
TrainStep(Model, LossFn) -> TrainStep<LossFn>;
template <class Model, class LossFn>
TrainStep(Model, LossFn, TrainStepOptions) -> TrainStep<LossFn>;
template <class Model, class LossFn, class Memory>
TrainStep(Model, LossFn, TrainStepOptions, Memory) -> TrainStep<LossFn, Memory>;
template <class Model, class LossFn, class Memory, class Clock>
TrainStep(Model, LossFn, TrainStepOptions, Memory, Clock) -> TrainStep<LossFn, Memory, Clock>;
template <class Model, class LossFn, class Memory, class Clock, class Probe>
TrainStep(Model, LossFn, TrainStepOptions, Memory, Clock, Probe) -> TrainStep<LossFn, Memory, Clock, Probe>;

}  // namespace reprise
