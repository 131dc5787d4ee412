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
// planned. Later steps that make the same stream of ops follow the plan; one that leaves it goes on
// online, and its stream is planned for the next time.
//
// REPRISE=off in the environment makes step() do nothing, REPRISE_LOG=info tells what is done.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/libtorch/guided/guided_step.hpp>
#include <reprise/libtorch/guided/stream_cache.hpp>
#include <reprise/libtorch/options/budget.hpp>
#include <reprise/libtorch/options/memory_budget_options.hpp>
#include <reprise/libtorch/options/step_report.hpp>
#include <reprise/libtorch/torch/model_tensors.hpp>
#include <reprise/plan/advice.hpp>

namespace reprise {

template <class Policy = CostSizeStaleness>
class BasicMemoryBudget {
  static_assert(is_eviction_policy<Policy>());

 public:
  explicit BasicMemoryBudget(Budget budget, MemoryBudgetOptions options = {}, Policy policy = {})
      : budget_(checked(budget)),
        options_(std::move(options)),
        policy_(std::move(policy)),
        log_(options_.name, options_.log_level, options_.on_log),
        file_(options_.spill_folder),
        streams_(options_, counters_, log_) {
    if (!options_.planner) check_strategy(options_.strategy);
    const char* off = std::getenv("REPRISE");
    off_ = off != nullptr && std::string_view(off) == "off";
    streams_.on_notice([this](const std::string& text) { notice(text); });
    if (!memory_is_counted())
      notice(
          "another library has put its allocator in the place of Reprise's: results stay right, "
          "but no memory is counted");
  }
  explicit BasicMemoryBudget(Bytes bytes, MemoryBudgetOptions options = {})
      : BasicMemoryBudget(Budget(bytes), std::move(options)) {}
  /// What the machine has free now.
  explicit BasicMemoryBudget(Fit /*fit*/, MemoryBudgetOptions options = {}, Policy policy = {})
      : BasicMemoryBudget(what_fits(), std::move(options), std::move(policy)) {
    tell_of_fit();
  }
  ~BasicMemoryBudget() { page_blocks().stop(); }
  BasicMemoryBudget(const BasicMemoryBudget&) = delete;
  BasicMemoryBudget& operator=(const BasicMemoryBudget&) = delete;

  /// Joins another thread to the step, for as long as it is in scope there.
  class Here {
   public:
    explicit Here(const DispatchHook* hook) {
      if (hook != nullptr) joined_.emplace(*hook);
    }

   private:
    std::optional<DispatchHook::Joined> joined_;
  };

  /// One training step: from here to the end of the scope.
  class Step {
   public:
    explicit Step(BasicMemoryBudget& budget)
        : budget_(budget), exceptions_(std::uncaught_exceptions()) {
      if (budget.off_) return;
      measured_ = budget.left_to_blocks();
      if (measured_) budget_.begin_measuring();
      else budget_.begin(guide_);
    }
    /// Never throws: what could not be brought back inside the budget is brought back over it.
    ~Step() {
      if (!guide_ && !measured_) return;
      if (std::uncaught_exceptions() > exceptions_) {
        guide_.reset();
        return;
      }
      try {
        finish();
      } catch (const std::exception& error) {
        guide_.reset();
        budget_.notice(std::string("at the end of the step: ") + error.what());
      }
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    /// Ends the step now: every tensor that is alive is readable. May throw where that does not fit
    /// into the budget.
    void finish() {
      if (guide_) budget_.end(guide_);
      if (std::exchange(measured_, false)) budget_.end_measuring();
    }
    /// The host keeps a pointer to this tensor: it is brought back, and never dropped or moved from
    /// here on.
    void pin(const at::Tensor& tensor) {
      if (guide_) guide_->pin(tensor);
    }
    /// On a thread of the user's own that runs a part of the step: `auto here = step.here();`
    /// there, before its first op.
    [[nodiscard]] Here here() { return Here(guide_ ? &guide_->recorder() : nullptr); }

   private:
    BasicMemoryBudget& budget_;
    std::optional<GuidedStep<Policy>> guide_;
    bool measured_ = false;  // and nothing else: the user's own checkpoints do the rest
    int exceptions_;
  };

  /// Throws Errc::bad_argument where a step is under way on this thread already.
  [[nodiscard]] Step step() { return Step(*this); }

  /// Names for what the model holds, in errors, reports and graphs.
  template <class Model>
  void watch(const Model& model) {
    list_tensors_ = [model] { return tensors_of(model); };
  }

  /// Another budget, from the next step on.
  void set(Budget budget) {
    budget_ = checked(budget);
    resolved_ = stretched_ = stretched_above_ = {};
    slow_because_.clear();
    told_slow_ = false;
    blocks_because_.clear();
    streams_.hope_again();
    resolve(base_);
    plan_last();
  }
  void set(Bytes bytes) { set(Budget(bytes)); }
  void set(Fit /*fit*/) {
    set(what_fits());
    tell_of_fit();
  }

  /// Bytes that the allocator holds for something else (another model in the process): the budget
  /// does not bound them, and no number of last() counts them.
  void exclude(Bytes others) { excluded_ = others; }

  [[nodiscard]] const GuidedStepReport& last() const { return last_; }
  [[nodiscard]] const GuidedCounters& counters() const { return counters_; }
  /// Called after each step.
  void on_step(std::function<void(const GuidedStepReport&)> callback) {
    on_step_ = std::move(callback);
  }

  /// Waits for plans that are being made.
  void wait() { streams_.wait(); }

  /// What was done so far, in a few lines.
  [[nodiscard]] std::string summary() const {
    const char* warning =
        "  pointers    this LibTorch does not tell when one is taken: say step.pin(tensor) before "
        "writing through one in a step\n";
    return guided_summary(options_.name, counters_, last_) + (watches_host() ? "" : warning);
  }

  /// The smallest budget that a plan is found for, what it costs, and what the floor consists of.
  /// After one step at least, that ran with any budget; plans for `planning.seconds`, or 5 seconds
  /// of processor time.
  [[nodiscard]] Advice advise() const {
    const PlannedStream& stream = last_stream();
    PlanRequest request = not_for_long(options_.planning);
    request.keep_order = true;
    Advice advice = reprise::advise(*stream.graph, request, StreamCache::planner_of(options_),
                                    base_ - StreamCache::start_bytes(*stream.graph));
    // autograd holds more than the graph's own order
    advice.unconstrained = base_ + (stream.recording->peak - stream.recording->base);
    return advice;
  }

  /// The graph of the stream that was seen last, as it is planned.
  [[nodiscard]] const StepGraph& graph() const { return *last_stream().graph; }

  /// A page about the stream that was seen last: its profile, memory before and after, what is
  /// computed again, extra time against budget. Plans `points` budgets for the last of these; 0
  /// leaves it out.
  void report(const std::filesystem::path& file, std::size_t points = 6) const {
    const PlannedStream& stream = last_stream();
    PlanRequest request = not_for_long(options_.planning);
    request.keep_order = true;
    Plan plan;
    plan.schedule = stream.plan ? stream.plan->schedule() : own_order(*stream.graph);
    if (last_.budget > Bytes{0})
      plan.budget = last_.budget - (base_ - StreamCache::start_bytes(*stream.graph));
    write_step_report(file, *stream.graph, plan, request, points, summary());
  }

 private:
  friend class Step;
  using Clock = std::chrono::steady_clock;

  static Budget checked(Budget budget) {
    if (!budget.given())
      throw Error(Errc::bad_argument, "a MemoryBudget needs a budget: bytes, or a share");
    return budget;
  }

  // The rest is for what LibTorch's allocator does not count.
  static Budget what_fits() { return Budget::of_free_memory(80, cpu_memory().live()); }
  void tell_of_fit() const {
    notice("the budget is " + format_bytes(budget_.bytes) +
           ": 80 % of the memory that the machine has free, and what LibTorch holds already");
  }

  [[nodiscard]] const PlannedStream& last_stream() const {
    if (streams_.last() == nullptr)
      throw Error(Errc::bad_argument,
                  "no step has been looked at: run one first (a loop whose ops never come again is "
                  "not planned)");
    return *streams_.last();
  }

  void begin(std::optional<GuidedStep<Policy>>& guide) {
    if (!slow_because_.empty()) throw Error(Errc::budget_unreachable, slow_because_);
    if (memory_gate() != nullptr && DispatchHook::current() == nullptr)
      throw Error(Errc::bad_argument,
                  "a memory limit is in force on this thread: a MemoryBudget's step cannot be used "
                  "inside of it");
    const bool first = counters_.steps == 0;
    const bool error = options_.over_budget == OverBudget::error ||
                       (options_.over_budget == OverBudget::error_at_first && first);
    guide.emplace(
        limit_here(), error, file_, policy_,
        [this, &guide](const Recording& so_far, const Call& next, Bytes base) {
          resolve(base - excluded_);
          guide->set_limit(limit_here());
          return choose(so_far, next, base);
        },
        [this] { return advice_text(); });
    guide->ask_for_need([this](const Recording& so_far) { return streams_.needed_above(so_far); });
    if (options_.verify) guide->verify();
    if (options_.raw_pointers) guide->keep_pointers();
    guide->recorder().reuse(std::exchange(followed_, {}));
    guide->expect(expected_.calls, expected_.values, expected_.storages);
    ++counters_.steps;
    last_ = {};
    following_.reset();
    cpu_memory().reset_peak();
    started_with_ = cpu_memory().live() - guide->recorder().bytes().live() - excluded_;
    start_ = Clock::now();
    if (list_tensors_) know(guide->recorder());
  }

  // ── steps that are left to the blocks that the user has named ──────────────────────────────────

  // Until another budget is set: what a step would be like that is seen again cannot be known from
  // one that is not looked at.
  [[nodiscard]] bool left_to_blocks() {
    if (!options_.blocks_where_unplanned || !blocks_because_.empty())
      return !blocks_because_.empty();
    blocks_because_ = streams_.hopeless(room_above(base_, limit_now()));
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
    ++counters_.steps;
    last_ = {.base = cpu_memory().live() - excluded_};
    cpu_memory().reset_peak();
    start_ = Clock::now();
  }
  void end_measuring() {
    base_ = last_.base;
    last_.peak = last_.eager_peak = cpu_memory().peak() - excluded_;
    last_.budget = limit_now();
    last_.over_budget = last_.budget > Bytes{0} && last_.peak > last_.budget;
    last_.time = {std::chrono::duration<double, std::micro>(Clock::now() - start_).count()};
    if (last_.over_budget)
      notice("a step took " + format_bytes(last_.peak) +
             " with its own checkpoints: that is more than the budget of " +
             format_bytes(last_.budget));
    ++counters_.block_steps;
    if (on_step_) on_step_(last_);
  }

  // For an error that is about to be thrown: nothing that goes wrong here may take its place, nor
  // ask for advice again.
  [[nodiscard]] std::string advice_text() {
    if (streams_.last() == nullptr || std::exchange(advising_, true)) return {};
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

  // A share is known once a step has been seen.
  [[nodiscard]] Bytes limit_now() const {
    if (budget_.kind == Budget::Kind::bytes) return budget_.bytes;
    if (resolved_ > Bytes{0}) return resolved_;
    if (options_.limit_until_known > Bytes{0}) return options_.limit_until_known;
    const Bytes free = free_memory();
    return free > Bytes{0} ? cpu_memory().live() - excluded_ + share_of(80, free) : Bytes{0};
  }

  // What is enforced: more where the budget is passed by choice.
  [[nodiscard]] Bytes enforced() const {
    const Bytes limit = limit_now();
    return limit > Bytes{0} ? std::max(limit, stretched_) : limit;
  }

  // The same, as the allocator counts.
  [[nodiscard]] Bytes limit_here() const {
    const Bytes limit = enforced();
    return limit > Bytes{0} ? limit + excluded_ : limit;
  }

  [[nodiscard]] static Bytes room_above(Bytes base, Bytes limit) {
    return limit > Bytes{0} ? limit - base : Bytes{std::numeric_limits<std::int64_t>::max() / 2};
  }

  std::shared_ptr<const PlannedStream> choose(const Recording& so_far, const Call& next,
                                              Bytes base) {
    if (options_.max_plans == 0) return nullptr;
    const StreamCache::Found found = streams_.find(so_far, next, room_above(base, limit_here()));
    last_.predicted_peak = found.stream ? base - excluded_ + found.above : Bytes{};
    following_ = found.stream;
    return found.stream;
  }

  void end(std::optional<GuidedStep<Policy>>& guide) {
    Recording recording = guide->finish();
    const GuidedStepCounters counters = guide->counters();
    const Bytes own_peak = started_with_ + guide->recorder().bytes().peak();
    expected_ = {recording.calls.size(), recording.values.size(),
                 guide->recorder().storages().size()};
    last_.base = base_ = recording.base - excluded_;
    last_.peak = cpu_memory().peak() - excluded_;
    last_.budget = limit_now();
    last_.planned = counters.followed || (counters.carried_out && following_);
    if (!counters.predicted && counters.followed) last_.predicted_peak = {};
    last_.elsewhere = std::max(last_.peak - own_peak, Bytes{0});
    last_.over_budget =
        guide->went_over() || (last_.budget > Bytes{0} && last_.peak > last_.budget);
    last_.only_spills = counters.only_spills;
    const Bytes needed = guide->needed_above_base();
    last_.recomputed = counters.recomputed;
    last_.brought_back = counters.brought_back;
    last_.evicted = counters.evicted;
    last_.moved = guide->transfers().bytes_out;
    last_.extra_time = counters.extra_time;
    last_.moving_time = guide->transfers().time_out + guide->transfers().time_in;
    for (const Call& call : recording.calls) last_.own_time += call.time;
    last_.eager_peak = recording.peak - excluded_;
    last_.time = {std::chrono::duration<double, std::micro>(Clock::now() - start_).count()};
    guide.reset();
    if (!counters.followed) tell_of_leaving(counters);
    if (last_.over_budget && stretched_ <= Bytes{0}) tell_of_overshoot(own_peak);
    (last_.planned ? counters_.planned_steps : counters_.online_steps) += 1;
    counters_.recomputed += counters.recomputed;
    counters_.brought_back += counters.brought_back;
    counters_.moved += last_.moved;
    learn(std::move(recording), counters.followed);
    if (needed > Bytes{0} && !counters.followed) streams_.note_need(needed);
    if (!last_.planned) look_at_speed();
    if (on_step_) on_step_(last_);
  }

  void tell_of_overshoot(Bytes own_peak) const {
    const bool others = own_peak <= last_.budget && last_.elsewhere > Bytes{0};
    if (others)
      notice("a step went above its budget of " + format_bytes(last_.budget) +
             ": the allocator held " + format_bytes(last_.peak) + ", of which " +
             format_bytes(last_.elsewhere) +
             " belong to threads that are not part of the step. Leave room for them (exclude()), "
             "or let " +
             "them join the step");
    else
      notice("a step took " + format_bytes(last_.peak) +
             ": what it cannot do without is more than the budget of " +
             format_bytes(last_.budget));
  }

  void tell_of_leaving(const GuidedStepCounters& counters) {
    last_.left_because = counters.divergence;
    last_.left_at = counters.diverged_at;
    if (!counters.divergence.empty())
      log_.info("the plan was left at node " + std::to_string(counters.diverged_at) + ": " +
                counters.divergence);
  }

  void learn(Recording recording, bool followed) {
    const bool known_bytes = budget_.kind == Budget::Kind::bytes || resolved_ > Bytes{0};
    if (followed) {
      streams_.seen(*following_, recording, room_above(last_.base, enforced()));
      followed_ = std::move(recording);
      followed_.calls.clear();  // what they hold must not outlive the step
      followed_.values.clear();
    } else {
      const Bytes room = room_above(last_.base, enforced());
      streams_.learn(std::move(recording), known_bytes ? std::optional(room) : std::nullopt);
    }
    if (const auto floor = streams_.floor_above_base()) {
      last_.floor = last_.base + *floor;
      above_ = std::max(above_, last_.eager_peak - last_.base);
      floor_above_ = std::max(floor_above_, *floor);
    }
    resolve(last_.base);
    plan_last();
  }

  // A step without a plan was slow, and none is being made: says so once, when it is known what
  // would do.
  void look_at_speed() {
    if (told_slow_ || last_.slow_down() <= options_.slow_down || streams_.planning()) return;
    const bool by_budget = last_.budget > Bytes{0} && last_.eager_peak > last_.budget;
    if (!by_budget) return;
    char factor[32], planned[32];
    std::snprintf(factor, sizeof factor, "%.1f", last_.slow_down());
    std::string text = "steps take " + std::string(factor) + " times what their own ops take (" +
                       format_time(last_.own_time) + ", and " + format_time(last_.extra_time) +
                       " to run ops again, " + format_time(last_.moving_time) +
                       " to move storages): there is no plan for " + format_bytes(last_.budget);
    if (streams_.last() != nullptr) {
      const Advice* advice = streams_.smallest_plan();
      if (advice == nullptr && options_.plan_in_background) return;  // later
      if (advice != nullptr) {
        const StepGraph& graph = *streams_.last()->graph;
        const Bytes smallest = advice->smallest + base_ - StreamCache::start_bytes(graph);
        std::snprintf(planned, sizeof planned, "%.2f", 1 + advice->extra_time());
        text += "; the smallest budget with a plan is " + format_bytes(smallest) + " (" +
                std::to_string(smallest.count) + " bytes), and takes " + planned + " times as long";
      }
    } else {
      text += ", since their ops do not come again";
    }
    told_slow_ = true;
    if (options_.when_slow == WhenSlow::fail) slow_because_ = text;
    const bool goes_above = options_.when_slow == WhenSlow::go_above && streams_.last() != nullptr;
    if (goes_above && streams_.smallest_plan() != nullptr) {
      if (const auto above = streams_.use_smallest_plan()) {
        stretched_above_ = *above;
        stretched_ = base_ + stretched_above_;
        text += ". From now on they take that";
      }
    }
    notice(text);
  }

  // Of a share: in bytes, by what the largest step so far would take above this base.
  void resolve(Bytes base) {
    if (stretched_above_ > Bytes{0}) stretched_ = base + stretched_above_;
    if (budget_.kind == Budget::Kind::extra_time) {
      if (const auto room = streams_.room_for_cost(budget_.percent)) resolved_ = base + *room;
      return;
    }
    if (budget_.kind != Budget::Kind::bytes && floor_above_ > Bytes{0})
      resolved_ = budget_.resolve(base + above_, base + floor_above_);
  }

  void plan_last() {
    if (resolved_ > Bytes{0}) streams_.plan_last(room_above(base_, enforced()));
  }

  void notice(const std::string& text) const {
    if (options_.on_notice) options_.on_notice(text);
    log_.notice(text);
  }

  /// How much the last step made the recorder note: the next one is much like it.
  struct StepSize {
    std::size_t calls = 0, values = 0, storages = 0;
  };

  Budget budget_;
  MemoryBudgetOptions options_;
  Policy policy_;
  Log log_;
  SpillFile file_;
  bool off_ = false, advising_ = false;
  // why steps are left to the user's own checkpoints; empty where they are not
  std::string blocks_because_;
  Bytes resolved_{}, excluded_{};
  Bytes started_with_{};  // what was held when the step began
  // what the smallest plan takes, where steps may take that
  Bytes stretched_{}, stretched_above_{};
  std::string slow_because_;  // why the next step is not begun
  bool told_slow_ = false;
  Bytes base_{};  // of the last step that ended
  // of the largest step so far, above its base: without a budget, and no schedule can go below
  Bytes above_{}, floor_above_{};
  GuidedCounters counters_;
  StreamCache streams_;
  std::shared_ptr<const PlannedStream> following_;
  std::function<ModelTensors()> list_tensors_;
  std::function<void(const GuidedStepReport&)> on_step_;
  GuidedStepReport last_;
  StepSize expected_;
  Recording followed_;  // of the last step that was as planned: its memory is for the next one's
  Clock::time_point start_;
};

using MemoryBudget = BasicMemoryBudget<CostSizeStaleness>;

}  // namespace reprise
