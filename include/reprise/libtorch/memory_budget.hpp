#pragma once
// Any training loop inside a budget, unchanged but for two lines:
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
// The first step is recorded while an eviction policy keeps it inside the budget; then it is
// planned. Later steps that make the same op sequence follow the plan; one that diverges from it
// goes on online, and its sequence is planned for the next time.
//
//   BasicMemoryBudget budget{4_GiB, Mine{}, LargestFirst{}};      a pipeline and an eviction policy of one's own
//
// REPRISE=off in the environment makes step() do nothing, REPRISE_LOG=info tells what is done.

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
#include <reprise/libtorch/pipeline/profiled_ops.hpp>
#include <reprise/libtorch/torch/model_tensors.hpp>
#include <reprise/plan/advice.hpp>

namespace reprise::fronts {

/// `Policy`: what is evicted where no plan decides. `Pipe`: the pipeline that plans are made by,
/// libtorch/pipeline/default_pipeline.hpp.
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
  /// A pipeline of one's own, and an eviction policy.
  BasicMemoryBudget(Budget budget, Pipe pipeline, Policy policy = {},
                    MemoryBudgetOptions options = {})
      : BasicMemoryBudget(budget, std::move(options), std::move(policy), std::move(pipeline)) {}
  /// What the machine has free now.
  explicit BasicMemoryBudget(Fit /*fit*/, MemoryBudgetOptions options = {}, Policy policy = {})
      : BasicMemoryBudget(what_fits(), std::move(options), std::move(policy)) {
    tell_of_fit();
  }
  ~BasicMemoryBudget() { page_blocks().stop(); }
  BasicMemoryBudget(const BasicMemoryBudget&) = delete;
  BasicMemoryBudget& operator=(const BasicMemoryBudget&) = delete;

  /// One training step: from here to the end of the scope.
  using Step = BudgetStep<BasicMemoryBudget, Policy>;

  /// Throws Errc::bad_argument where a step is under way on this thread already.
  [[nodiscard]] Step step() { return Step(*this); }

  /// Names for what the model holds, in errors, reports and graphs.
  template <class Model>
  void watch(const Model& model) {
    list_tensors_ = [model] { return tensors_of(model); };
  }

  /// Another budget, from the next step on.
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

  /// Bytes that the allocator holds for something else (another model in the process): the budget
  /// does not bound them, and no number of last() counts them.
  void exclude(Bytes others) { limit_.exclude(others); }

  [[nodiscard]] const GuidedStepReport& last() const { return meter_.last(); }
  [[nodiscard]] const GuidedCounters& counters() const { return meter_.counters(); }
  /// Waits for plans that are being made.
  void wait() { sequences_.wait(); }

  /// What was done so far, in a few lines.
  [[nodiscard]] std::string summary() const {
    const char* warning =
        "  pointers    this LibTorch does not tell when one is taken: say step.pin(tensor) before "
        "writing through one in a step\n";
    return guided_summary(options_.run.name, counters(), last()) + (watches_host() ? "" : warning);
  }

  /// The smallest budget that a plan is found for, what it costs, and what the floor consists of.
  /// After one step at least, that ran with any budget; plans for `planning.seconds`, or 5 seconds
  /// of processor time.
  [[nodiscard]] Advice advise() const {
    const PlannedStream& stream = last_sequence();
    PlanRequest request = not_for_long(options_.run.planning);
    request.keep_order = true;
    Advice advice = reprise::planning::advise(*stream.graph, request, sequences_.planner().plan,
                                              meter_.base() - start_bytes(*stream.graph));
    // autograd holds more than the graph's own order
    advice.unconstrained = meter_.base() + (stream.recording->peak - stream.recording->base);
    return advice;
  }

  /// The graph of the op sequence that was seen last, as it is planned.
  [[nodiscard]] const StepGraph& graph() const { return *last_sequence().graph; }

  /// A page about the op sequence that was seen last: its profile, memory before and after, what is
  /// recomputed, extra time against budget. Plans `points` budgets for the last of these; 0
  /// leaves it out. Include <reprise/libtorch/options/step_report.hpp> for it.
  template <class Page = StepPage>
  void report(const std::filesystem::path& file, std::size_t points = 6) const {
    static_assert(
        requires { sizeof(Page); }, "include <reprise/libtorch/options/step_report.hpp>");
    const PlannedStream& stream = last_sequence();
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

  [[nodiscard]] GuidedStages stages() {
    return {.planner = plan_stage(pipeline_.planner(), options_.run),
            .floor = [this](const StepGraph& g) { return pipeline_.analyse(g).memory.floor; },
            .check =
                [this](const StepGraph& graph, const Schedule& schedule) {
                  static_cast<void>(pipeline_.rewriter().checked(graph, schedule));
                }};
  }

  // The rest is for what LibTorch's allocator does not count.
  static Budget what_fits() { return Budget::of_free_memory(80, cpu_memory().live()); }
  void tell_of_fit() const {
    notice("the budget is " + format_bytes(limit_.budget().bytes) +
           ": 80 % of the memory that the machine has free, and what LibTorch holds already");
  }

  [[nodiscard]] const PlannedStream& last_sequence() const {
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
    if constexpr (OpTimerOf::is_needed) guide->recorder().time_with(&ops_);
    if (options_.raw_pointers) guide->keep_pointers();
    guide->recorder().reuse(std::exchange(followed_, {}));
    guide->expect(expected_.calls, expected_.values, expected_.storages);
    meter_.begin(guide->recorder().bytes().live(), sequences_.counters());
    pipeline_.profiler().probe().begin_run();
    if (list_tensors_) know(guide->recorder());
  }

  // ── steps that are left to the blocks that the user has named ──────────────────────────────────

  // Every n-th step: the n-th, the 2n-th, ….
  [[nodiscard]] bool compares_next_step() const {
    const std::int64_t every = options_.run.verify_every;
    return every > 0 && (counters().steps + 1) % every == 0;
  }

  // Stays true until set() is called. These steps are not recorded, so nobody sees whether their op
  // sequence begins to repeat.
  [[nodiscard]] bool left_to_blocks() {
    if (!options_.blocks_where_unplanned || !blocks_because_.empty())
      return !blocks_because_.empty();
    blocks_because_ =
        sequences_.why_unplannable(BudgetLimit::headroom(meter_.base(), limit_.now()));
    if (blocks_because_.empty()) return false;
    page_blocks().stop();  // what waits for guided steps would be of no use to any other
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

  // For an error that is about to be thrown: nothing that goes wrong here may take its place, nor
  // ask for advice again.
  [[nodiscard]] std::string advice_text() {
    if (sequences_.last() == nullptr || std::exchange(advising_, true)) return {};
    std::string text;
    try {
      text = advise().text();
    } catch (...) {  // a planner of the user's own may throw anything
    }
    advising_ = false;
    return text;
  }

  void know(Recorder& recorder) const {
    const ModelTensors model = list_tensors_();
    for (std::size_t i = 0; i < model.parameters.size(); ++i)
      recorder.know(model.parameters[i].tensor, Origin::parameter, i, Role::parameter,
                    model.parameters[i].name);
    for (std::size_t i = 0; i < model.buffers.size(); ++i)
      recorder.know(model.buffers[i].tensor, Origin::buffer, i, Role::buffer,
                    model.buffers[i].name);
  }

  std::shared_ptr<const PlannedStream> choose(const Recording& so_far, const Call& next,
                                              Bytes base) {
    if (options_.run.max_plans == 0) return nullptr;
    const Bytes headroom = BudgetLimit::headroom(base, limit_.enforced_with_excluded());
    meter_.follows(sequences_.choose_or_plan(so_far, next, headroom), base);
    return meter_.following().stream;
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
    if (!last().left_because.empty())
      log_.info("the plan was left at node " + std::to_string(last().left_at) + ": " +
                last().left_because);
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
      followed_.calls.clear();  // what they hold must not outlive the step
      followed_.values.clear();
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

  /// How much the last step made the recorder note: the next one is much like it.
  struct StepSize {
    std::size_t calls = 0, values = 0, storages = 0;
  };

  using OpTimerOf = decltype(ProfiledOps(std::declval<Pipe&>().profiler()));

  BudgetLimit limit_;
  GuidedMeter meter_{limit_};
  MemoryBudgetOptions options_;
  Pipe pipeline_;
  OpTimerOf ops_{pipeline_.profiler()};
  Policy policy_;
  Log log_;
  SpillFile file_;
  bool off_ = false, advising_ = false;
  // why steps are left to the user's own checkpoints; empty where they are not
  std::string blocks_because_;
  KnownSequences sequences_;
  SlowSteps slow_;
  std::function<ModelTensors()> list_tensors_;
  StepSize expected_;
  Recording followed_;  // of the last step that was as planned: its memory is for the next one's
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
