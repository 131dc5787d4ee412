#pragma once
// MemoryBudget keeps any training loop inside a budget. The loop changes in two lines:
//
//   reprise::MemoryBudget budget{4_GiB};
//   for (auto& [x, y] : batches) {
//     auto step = budget.step();                  // until the end of the block: one training step, inside 4 GiB
//     optimizer.zero_grad();
//     auto loss = loss_fn(model->forward(x), y);
//     loss.backward();                            // same loss, same gradients, to the last bit
//     optimizer.step();
//   }
//   std::cout << budget.summary();
//
// The first step is recorded while an eviction policy keeps it inside the budget. Then its op
// sequence is planned. Later steps with the same op sequence follow the plan. A step that diverges
// from its plan goes on online, and its sequence is planned for the next time.
//
//   BasicMemoryBudget budget{4_GiB, Mine{}, LargestFirst{}};      with a pipeline and an eviction policy of the user's
//
// REPRISE=off in the environment makes step() do nothing. REPRISE_LOG=info writes a log.

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/libtorch/guided/budget_limit.hpp>
#include <reprise/libtorch/guided/budget_step.hpp>
#include <reprise/libtorch/guided/guided_meter.hpp>
#include <reprise/libtorch/guided/guided_step.hpp>
#include <reprise/libtorch/guided/known_sequences.hpp>
#include <reprise/libtorch/guided/slow_steps.hpp>
#include <reprise/libtorch/options/budget.hpp>
#include <reprise/libtorch/options/memory_budget_options.hpp>
#include <reprise/libtorch/options/summaries.hpp>
#include <reprise/libtorch/pipeline/default_pipeline.hpp>
#include <reprise/libtorch/pipeline/measured_ops.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/torch/model_tensors.hpp>
#include <reprise/plan/advice.hpp>

namespace reprise::fronts {

/// `Policy` picks victims when no plan decides. `Pipe` is the pipeline that makes the plans
/// (libtorch/pipeline/default_pipeline.hpp).
template <class Policy = CostSizeStaleness, class Pipe = DefaultPipeline>
class BasicMemoryBudget {
  static_assert(is_eviction_policy<Policy>() && is_step_pipeline<Pipe>());

 public:
  explicit BasicMemoryBudget(Budget budget, MemoryBudgetOptions options = {}, Policy policy = {},
                             Pipe pipeline = Pipe{})
      : limit_(budget, options.run.limit_until_known),
        options_(std::move(options)),
        pipeline_(std::move(pipeline)),
        policy_(std::move(policy)),
        log_(options_.run.name, options_.run.log_level, options_.run.on_log),
        file_(options_.run.spill_folder),
        sequences_(options_, stages(), log_, [this](const std::string& text) { notice(text); }),
        slow_(options_) {
    const char* off = std::getenv("REPRISE");
    off_ = off != nullptr && std::string_view(off) == "off";
    if (!memory_is_counted())
      notice(
          "another library has put its allocator in the place of Reprise's: results stay right, "
          "but no memory is counted");
  }
  explicit BasicMemoryBudget(Bytes bytes, MemoryBudgetOptions options = {}, Policy policy = {})
      : BasicMemoryBudget(Budget(bytes), std::move(options), std::move(policy)) {}
  /// With a pipeline and an eviction policy of the user's.
  BasicMemoryBudget(Budget budget, Pipe pipeline, Policy policy = {},
                    MemoryBudgetOptions options = {})
      : BasicMemoryBudget(budget, std::move(options), std::move(policy), std::move(pipeline)) {}
  /// The budget is 80 % of the memory that the machine has free now, plus the live bytes.
  explicit BasicMemoryBudget(Fit /*fit*/, MemoryBudgetOptions options = {}, Policy policy = {})
      : BasicMemoryBudget(what_fits(), std::move(options), std::move(policy)) {
    tell_of_fit();
  }
  ~BasicMemoryBudget() { ThisDevice::stop_caching(); }
  BasicMemoryBudget(const BasicMemoryBudget&) = delete;
  BasicMemoryBudget& operator=(const BasicMemoryBudget&) = delete;

  /// One training step: from here to the end of the scope.
  using Step = BudgetStep<BasicMemoryBudget, Policy>;

  /// Throws Errc::bad_argument if a step is running on this thread already.
  [[nodiscard]] Step step() { return Step(*this); }

  /// Sets names for the model's tensors in errors, reports and graphs.
  template <class Model>
  void name_tensors_of(const Model& model) {
    list_tensors_ = [model] { return tensors_of(model); };
  }

  /// Sets another budget, from the next step on.
  void set(Budget budget) {
    limit_.set(budget);
    slow_.reset();
    blocks_because_.clear();
    sequences_.reset_new_sequence_count();
    resolve(meter_.base());
    plan_last();
  }
  void set(Bytes bytes) { set(Budget(bytes)); }
  void set(Fit /*fit*/) {
    set(what_fits());
    tell_of_fit();
  }

  /// Live bytes of the allocator that do not belong to this loop (another model in the process).
  /// The budget does not bound them, and last() does not count them.
  void exclude(Bytes others) { limit_.exclude(others); }

  [[nodiscard]] const GuidedStepReport& last() const { return meter_.last(); }
  [[nodiscard]] const MemoryBudgetCounters& counters() const { return meter_.counters(); }
  /// Waits for plans that are being made.
  void wait() { sequences_.wait(); }

  /// A summary of all steps so far, in a few lines.
  [[nodiscard]] std::string summary() const {
    const char* warning =
        "  pointers    this LibTorch does not tell when one is taken: say step.pin(tensor) before "
        "writing through one in a step\n";
    return guided_summary(options_.run.name, counters(), last()) + (watches_host() ? "" : warning);
  }

  /// The smallest budget for which a plan is found, the plan's cost, and the shares of the floor.
  /// Needs at least one step, with any budget. Plans for `planning.seconds`, or for 5 seconds of
  /// processor time.
  [[nodiscard]] Advice advise() const {
    const PlannedSequence& stream = last_sequence();
    PlanRequest request = not_for_long(options_.run.planning);
    request.keep_order = true;
    Advice advice = reprise::planning::advise(*stream.graph, request, sequences_.planner().plan,
                                              meter_.base() - start_bytes(*stream.graph));
    // autograd keeps tensors longer than the graph's own order
    advice.unconstrained = meter_.base() + (stream.recording->peak - stream.recording->base);
    return advice;
  }

  /// The graph of the op sequence that was seen last, as it is planned, with attributes and shapes.
  [[nodiscard]] const StepGraph& graph() const {
    const PlannedSequence& stream = last_sequence();
    if (told_of_ == stream.graph) return told_graph_;
    told_graph_ = graph_of(*stream.recording, options_.run.name);
    for (NodeId n : told_graph_.node_ids()) told_graph_.set_time(n, stream.graph->node(n).time);
    told_of_ = stream.graph;
    return told_graph_;
  }

  /// Writes a page about the last seen op sequence: its profile, memory before and after,
  /// recomputed ops, and extra time by budget. Plans `points` budgets for the last of these; 0
  /// leaves it out. Include <reprise/libtorch/options/step_report.hpp> for it.
  template <class Page = StepPage>
  void report(const std::filesystem::path& file, std::size_t points = 6) const {
    static_assert(
        requires { sizeof(Page); }, "include <reprise/libtorch/options/step_report.hpp>");
    const PlannedSequence& stream = last_sequence();
    PlanRequest request = not_for_long(options_.run.planning);
    request.keep_order = true;
    Plan plan;
    plan.schedule = stream.plan ? stream.plan->schedule() : own_order(*stream.graph);
    if (last().budget > Bytes{0})
      plan.budget = last().budget - (meter_.base() - start_bytes(*stream.graph));
    Page::write(file, *stream.graph, plan, request, points, summary());
  }

 private:
  friend class BudgetStep<BasicMemoryBudget, Policy>;

  [[nodiscard]] Stages stages() {
    return stages_of(pipeline_, plan_stage(pipeline_.planner(), options_.run));
  }

  // The rest is for memory that LibTorch's allocator does not count.
  static Budget what_fits() { return Budget::of_free_memory(80, device_memory().live()); }
  void tell_of_fit() const {
    notice("the budget is " + format_bytes(limit_.budget().bytes) +
           ": 80 % of the memory that the machine has free, and what LibTorch holds already");
  }

  [[nodiscard]] const PlannedSequence& last_sequence() const {
    if (sequences_.last() == nullptr)
      throw Error(Errc::bad_argument,
                  "no graph yet: run one step first (after more than four steps in a row with new "
                  "op sequences, a graph is made only where a sequence comes again)");
    return *sequences_.last();
  }

  void begin(std::optional<GuidedStep<Policy>>& guide) {
    if (!slow_.refusal().empty()) throw Error(Errc::budget_unreachable, slow_.refusal());
    if (memory_gate() != nullptr && DispatchHook::current() == nullptr)
      throw Error(Errc::bad_argument,
                  "a memory limit is in force on this thread: a MemoryBudget's step cannot be used "
                  "inside of it");
    const bool first = counters().steps == 0;
    const bool error = options_.over_budget == OverBudget::error ||
                       (options_.over_budget == OverBudget::error_at_first && first);
    guide.emplace(
        limit_.enforced_with_excluded(), error, file_, policy_,
        [this, &guide](const Recording& so_far, const Call& next, Bytes base) {
          resolve(base - limit_.excluded());
          guide->set_limit(limit_.enforced_with_excluded());
          return choose(so_far, next, base);
        },
        [this] { return advice_text(); });
    guide->ask_for_need(
        [this](const Recording& so_far) { return sequences_.needed_above(so_far); });
    if (compares_next_step()) guide->verify();
    guide->recorder().measure_with(ops_.if_needed());
    if (options_.raw_pointers) guide->keep_pointers();
    guide->recorder().reuse(std::exchange(followed_, {}));
    guide->expect(expected_.calls, expected_.values, expected_.storages);
    meter_.begin(guide->recorder().bytes().live(), sequences_.counters());
    pipeline_.profiler().probe().begin_run();
    if (list_tensors_) know_model(guide->recorder(), list_tensors_());
  }

  // ── steps without a plan, with the user's own checkpoints ──────────────────────────────────────

  // Every n-th step: the n-th, the 2n-th, ….
  [[nodiscard]] bool compares_next_step() const {
    const std::int64_t every = options_.run.verify_every;
    return every > 0 && (counters().steps + 1) % every == 0;
  }

  // Stays true until set() is called. These steps are not recorded, so Reprise cannot see whether
  // their op sequence begins to repeat.
  [[nodiscard]] bool uses_checkpoints() {
    if (!options_.use_checkpoints_if_unplanned || !blocks_because_.empty())
      return !blocks_because_.empty();
    blocks_because_ =
        sequences_.why_unplannable(BudgetLimit::headroom(meter_.base(), limit_.now()));
    if (blocks_because_.empty()) return false;
    ThisDevice::stop_caching();  // what waits for guided steps would be of no use to any other
    notice("from now on steps run as they are, with the checkpoints that they have: " +
           blocks_because_);
    return true;
  }
  void begin_measuring() {
    if (memory_gate() != nullptr || DispatchHook::current() != nullptr)
      throw Error(Errc::bad_argument,
                  "a step or a memory limit is under way on this thread: a MemoryBudget's step "
                  "cannot be used inside of it");
    meter_.begin_measuring();
  }
  void end_measuring() {
    meter_.end_measuring();
    if (last().over_budget) notice(meter_.overshoot_with_blocks());
    if (options_.on_step) options_.on_step(last());
  }

  // For an error that is about to be thrown. A failure here must not replace that error, nor ask
  // for advice recursively.
  [[nodiscard]] std::string advice_text() {
    if (sequences_.last() == nullptr || std::exchange(advising_, true)) return {};
    std::string text;
    try {
      text = advise().text();
    } catch (...) {  // a user's planner may throw anything
    }
    advising_ = false;
    return text;
  }

  std::shared_ptr<const PlannedSequence> choose(const Recording& so_far, const Call& next,
                                                Bytes base) {
    if (options_.run.max_plans == 0) return nullptr;
    const Bytes headroom = BudgetLimit::headroom(base, limit_.enforced_with_excluded());
    const KnownSequences::Choice choice = sequences_.choose_or_plan(so_far, next, headroom);
    meter_.follows(choice, base);
    return choice.stream;
  }

  void end(std::optional<GuidedStep<Policy>>& guide) {
    Recording recording = guide->finish();
    const GuidedStepCounters counters = guide->counters();
    const Bytes needed = guide->needed_above_base();
    expected_ = {recording.calls.size(), recording.values.size(),
                 guide->recorder().storages().size()};
    meter_.probed(pipeline_.profiler().probe().end_run());
    meter_.end(recording, counters, guide->transfers(), guide->recorder().bytes().peak(),
               guide->went_over());
    guide.reset();
    if (!last().divergence.empty())
      log_.info("the plan was left at node " + std::to_string(last().diverged_at) + ": " +
                last().divergence);
    if (last().over_budget && !limit_.is_stretched()) notice(meter_.overshoot());
    learn(std::move(recording), counters.followed);
    if (needed > Bytes{0} && !counters.followed) sequences_.note_need(needed);
    if (!last().planned && !last().fits)
      slow_.look_at(last(), sequences_, limit_, [this](const std::string& t) { notice(t); });
    meter_.count(sequences_.counters());
    if (options_.on_step) options_.on_step(last());
  }

  void learn(Recording recording, bool followed) {
    const Bytes headroom = BudgetLimit::headroom(last().base, limit_.enforced());
    const bool known_bytes = limit_.is_known();
    if (followed) {
      sequences_.seen(*meter_.following().stream, recording, headroom);
      followed_ = std::move(recording);
      followed_.clear();  // what it holds must not outlive the step
    } else {
      sequences_.learn(std::move(recording), known_bytes ? std::optional(headroom) : std::nullopt);
    }
    if (const auto floor = sequences_.floor_above_start()) {
      meter_.floor(*floor);
      limit_.note_step(last().eager_peak - last().base, *floor);
    }
    resolve(last().base);
    plan_last();
  }

  void resolve(Bytes base) {
    limit_.resolve(base, [this](double percent) { return sequences_.headroom_for_cost(percent); });
  }

  void plan_last() {
    if (limit_.is_resolved_share())
      sequences_.plan_last(BudgetLimit::headroom(meter_.base(), limit_.enforced()));
  }

  void notice(const std::string& text) const {
    if (options_.run.on_notice) options_.run.on_notice(text);
    log_.notice(text);
  }

  /// Number of items that the last step recorded: the next step is about as large.
  struct StepSize {
    std::size_t calls = 0, values = 0, storages = 0;
  };

  using OpMeterOf = decltype(MeasuredOps(std::declval<Pipe&>().profiler()));

  BudgetLimit limit_;
  GuidedMeter meter_{limit_};
  MemoryBudgetOptions options_;
  Pipe pipeline_;
  OpMeterOf ops_{pipeline_.profiler()};
  Policy policy_;
  Log log_;
  SpillStore file_;
  bool off_ = false, advising_ = false;
  // why steps use the user's own checkpoints; empty if they do not
  std::string blocks_because_;
  KnownSequences sequences_;
  SlowSteps slow_;
  std::function<ModelTensors()> list_tensors_;
  StepSize expected_;
  mutable StepGraph told_graph_;                      // by graph()
  mutable std::shared_ptr<const StepGraph> told_of_;  // what it is, without attributes
  Recording followed_;  // of the last step that followed its plan: the next step reuses its memory
};

template <class Amount, class A, class B, class C, class D, class Policy>
BasicMemoryBudget(Amount, Pipeline<A, B, C, D>, Policy)
    -> BasicMemoryBudget<Policy, Pipeline<A, B, C, D>>;
template <class Amount, class A, class B, class C, class D, class Policy>
BasicMemoryBudget(Amount, Pipeline<A, B, C, D>, Policy, MemoryBudgetOptions)
    -> BasicMemoryBudget<Policy, Pipeline<A, B, C, D>>;
template <class Amount, class A, class B, class C, class D>
BasicMemoryBudget(Amount, Pipeline<A, B, C, D>)
    -> BasicMemoryBudget<CostSizeStaleness, Pipeline<A, B, C, D>>;

using MemoryBudget = BasicMemoryBudget<CostSizeStaleness>;

}  // namespace reprise::fronts

namespace reprise {
using fronts::BasicMemoryBudget;
using fronts::MemoryBudget;
}  // namespace reprise
