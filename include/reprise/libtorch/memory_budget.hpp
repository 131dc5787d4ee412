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
// The first step is recorded while an eviction policy keeps it inside the budget; then it is planned. Later steps that make the
// same stream of ops follow the plan; one that leaves it goes on online, and its stream is planned for the next time.

#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <memory>
#include <optional>
#include <sstream>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <reprise/libtorch/budget.hpp>
#include <reprise/libtorch/guide.hpp>
#include <reprise/libtorch/model_tensors.hpp>
#include <reprise/plan/strategies.hpp>

namespace reprise {

/// What to do where one op alone needs more than the budget.
enum class OverBudget : std::uint8_t {
  error_at_first,  ///< an error in the first step, a notice in later ones
  error,
  go_on,
};

struct MemoryBudgetOptions {
  std::string name = "step";
  std::string strategy = "anneal";
  PlanRequest planning{};          ///< effort, seed, seconds; its budget and order are set here
  bool plan_in_background = true;  ///< steps go on online meanwhile; false: the step that ends waits for its plan
  std::size_t max_plans = 8;       ///< streams that are kept, the least recently used is forgotten
  OverBudget over_budget = OverBudget::error_at_first;
  Bytes limit_until_known{};             ///< for a share: the limit of the first step; 0 for none
  std::filesystem::path spill_folder{};  ///< for what can neither be kept nor made again
  std::function<void(const std::string&)> on_notice{};
};

/// One step, measured.
struct GuidedStepReport {
  Bytes base{}, budget{}, peak{}, predicted_peak{}, eager_peak{}, floor{};
  bool planned = false;  ///< a plan was carried out; predicted_peak is then known
  bool over_budget = false;
  std::int64_t recomputed = 0, brought_back = 0, evicted = 0;
  Bytes moved{};
  Microseconds extra_time{};
  std::string left_because{};  ///< where a plan was left on the way
  std::size_t left_at = 0;     ///< and at which node
};

struct GuidedCounters {
  std::int64_t steps = 0, planned_steps = 0, online_steps = 0, plans = 0, recomputed = 0, brought_back = 0;
  Bytes moved{};
};

template <EvictionPolicy Policy = CostSizeStaleness>
class BasicMemoryBudget {
 public:
  explicit BasicMemoryBudget(Budget budget, MemoryBudgetOptions options = {}, Policy policy = {})
      : budget_(budget), options_(std::move(options)), policy_(std::move(policy)), file_(options_.spill_folder) {
    if (budget_.kind == Budget::Kind::extra_time)
      throw Error(Errc::bad_argument, "a budget by extra time is for TrainStep: name bytes, or a share");
    const char* off = std::getenv("REPRISE");
    off_ = off != nullptr && std::string_view(off) == "off";
  }
  explicit BasicMemoryBudget(Bytes bytes, MemoryBudgetOptions options = {}) : BasicMemoryBudget(Budget(bytes), std::move(options)) {}
  ~BasicMemoryBudget() { cancel_.request_stop(); }
  BasicMemoryBudget(const BasicMemoryBudget&) = delete;
  BasicMemoryBudget& operator=(const BasicMemoryBudget&) = delete;

  /// One training step: from here to the end of the scope.
  class Step {
   public:
    explicit Step(BasicMemoryBudget& budget) : budget_(budget), exceptions_(std::uncaught_exceptions()) {
      if (!budget.off_) budget_.begin(guide_);
    }
    /// Never throws: what could not be brought back inside the budget is brought back over it.
    ~Step() {
      if (!guide_) return;
      if (std::uncaught_exceptions() > exceptions_) {
        guide_.reset();
        return;
      }
      try {
        finish();
      } catch (const std::exception& error) {
        budget_.notice(std::string("at the end of the step: ") + error.what());
        guide_.reset();
      }
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

    /// Ends the step now: every tensor that is alive is readable. May throw where that does not fit into the budget.
    void finish() {
      if (!guide_) return;
      budget_.end(guide_);
    }
    /// The host keeps a pointer to this tensor: it is never dropped or moved.
    void pin(const at::Tensor& tensor) {
      if (guide_) guide_->pin(tensor);
    }

   private:
    BasicMemoryBudget& budget_;
    std::optional<Guide<Policy>> guide_;
    int exceptions_;
  };

  [[nodiscard]] Step step() { return Step(*this); }

  /// Names for what the model holds, in errors, reports and graphs.
  template <class Model>
  void watch(const Model& model) {
    list_tensors_ = [model] { return tensors_of(model); };
  }

  /// Another budget, from the next step on.
  void set(Budget budget) { budget_ = budget; }
  void set(Bytes bytes) { budget_ = Budget(bytes); }

  [[nodiscard]] const GuidedStepReport& last() const { return last_; }
  [[nodiscard]] const GuidedCounters& counters() const { return counters_; }
  /// Called after each step.
  void on_step(std::function<void(const GuidedStepReport&)> callback) { on_step_ = std::move(callback); }

  /// Waits for a plan that is being made.
  void wait() {
    for (auto& stream : streams_) take_plan(*stream, true);
  }

  [[nodiscard]] std::string summary() const {
    std::ostringstream out;
    out << options_.name << ": " << counters_.steps << " steps, " << counters_.planned_steps << " planned, " << counters_.online_steps
        << " online\n"
        << "  budget      " << format_bytes(last_.budget) << '\n'
        << "  peak        " << format_bytes(last_.peak);
    if (last_.planned) out << " (predicted " << format_bytes(last_.predicted_peak) << ")";
    out << ", without a budget " << format_bytes(last_.eager_peak) << ", at least " << format_bytes(last_.floor) << '\n'
        << "  ran again   " << last_.recomputed << " ops in the last step, " << last_.extra_time.count / 1000 << " ms\n"
        << "  moved out   " << format_bytes(counters_.moved) << " in all\n";
    return out.str();
  }

 private:
  friend class Step;

  struct Known {
    std::shared_ptr<const PlannedStream> stream{};  // its plan is for `room`
    Bytes above{};                                  // the plan's peak above what the step starts from
    Bytes room{};
    std::future<Schedule> planning{};
    Bytes planning_room{};
    bool unplannable = false;
  };

  void begin(std::optional<Guide<Policy>>& guide) {
    ++counters_.steps;
    last_ = {};
    const bool first = counters_.steps == 1;
    const bool error = options_.over_budget == OverBudget::error || (options_.over_budget == OverBudget::error_at_first && first);
    cpu_memory().reset_peak();
    using Over = typename Guide<Policy>::OverBudget;
    guide.emplace(limit_now(), error ? Over::error : Over::go_on, file_, policy_, [this](Bytes base) { return choose(base); });
    if (list_tensors_) know(guide->recorder());
  }

  void know(Recorder& recorder) const {
    const ModelTensors model = list_tensors_();
    for (std::size_t i = 0; i < model.parameters.size(); ++i)
      recorder.know(model.parameters[i].tensor, Origin::parameter, i, Role::parameter, model.parameters[i].name);
    for (std::size_t i = 0; i < model.buffers.size(); ++i)
      recorder.know(model.buffers[i].tensor, Origin::buffer, i, Role::buffer, model.buffers[i].name);
  }

  // A share is known once a step has been seen.
  [[nodiscard]] Bytes limit_now() {
    if (budget_.kind == Budget::Kind::bytes) return budget_.bytes;
    return resolved_ > Bytes{0} ? resolved_ : options_.limit_until_known;
  }

  static Bytes above_base(const PlannedStream& stream) { return stream.recording.peak - stream.recording.base; }
  static Bytes start_bytes(const StepGraph& graph) {
    Bytes sum = graph.persistent_bytes();
    for (std::size_t i = 0; i < graph.value_count(); ++i)
      if (graph.value(ValueId{i}).initial) sum += graph.value(ValueId{i}).bytes;
    return sum;
  }

  // The plan to follow, where one fits into what the budget leaves above the base.
  std::shared_ptr<const PlannedStream> choose(Bytes base) {
    last_.base = base;
    if (streams_.empty()) return nullptr;
    Known& known = *streams_.front();
    const Bytes limit = limit_now();
    const Bytes room = limit > Bytes{0} ? limit - base : Bytes{std::numeric_limits<std::int64_t>::max() / 2};
    take_plan(known, false);
    if (!known.stream->plan || known.above > room) {
      if (known.unplannable && room <= known.room) return nullptr;
      plan(known, room);
      take_plan(known, !options_.plan_in_background);
    }
    if (!known.stream->plan || known.above > room) return nullptr;
    last_.predicted_peak = base + known.above;
    return known.stream;
  }

  // Starts planning for so much room above the base.
  void plan(Known& known, Bytes room) {
    if (known.planning.valid()) return;
    ++counters_.plans;
    PlanRequest request = options_.planning;
    request.keep_order = true;
    request.cancel = cancel_.get_token();
    const Bytes start = start_bytes(known.stream->graph);
    request.budget =
        room.count > std::numeric_limits<std::int64_t>::max() / 4 ? Bytes{std::numeric_limits<std::int64_t>::max() / 2} : start + room;
    known.planning_room = room;
    known.unplannable = false;
    if (request.budget <= Bytes{0}) {
      known.unplannable = true;
      known.room = room;
      return;
    }
    const auto make = [stream = known.stream, strategy = options_.strategy, request] {
      const Plan found = plan_with(strategy, stream->graph, request);
      return found.within_budget() ? found.schedule : Schedule{};
    };
    known.planning = std::async(options_.plan_in_background ? std::launch::async : std::launch::deferred, make);
  }

  void take_plan(Known& known, bool wait) {
    if (!known.planning.valid()) return;
    if (!wait && options_.plan_in_background && known.planning.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
    Schedule schedule = known.planning.get();
    known.room = known.planning_room;
    known.unplannable = schedule.empty();
    if (known.unplannable) {
      notice("no plan was found for " + format_bytes(known.room) + " above the base: steps stay online");
      return;
    }
    auto planned = std::make_shared<PlannedStream>(*known.stream);
    planned->plan.emplace(planned->graph, std::move(schedule));
    known.above = planned->plan->peak() - start_bytes(planned->graph);
    notice("planned: " + std::to_string(planned->plan->recomputed()) + " ops again, " + format_bytes(known.above) + " above the base");
    known.stream = std::move(planned);
  }

  void end(std::optional<Guide<Policy>>& guide) {
    Recording recording = guide->finish();
    const GuideCounters& counters = guide->counters();
    last_.base = recording.base;
    last_.peak = cpu_memory().peak();
    last_.budget = limit_now();
    last_.planned = counters.followed || counters.carried_out;
    last_.over_budget = guide->went_over();
    last_.recomputed = counters.recomputed;
    last_.brought_back = counters.brought_back;
    last_.evicted = counters.evicted;
    last_.moved = guide->transfers().bytes_out;
    last_.extra_time = counters.extra_time;
    last_.eager_peak = recording.peak;
    if (!counters.followed) {
      last_.left_because = counters.left_because;
      last_.left_at = counters.left_at;
    }
    (last_.planned ? counters_.planned_steps : counters_.online_steps) += 1;
    counters_.recomputed += counters.recomputed;
    counters_.brought_back += counters.brought_back;
    counters_.moved += last_.moved;
    const bool followed = counters.followed;
    guide.reset();
    if (!followed) learn(std::move(recording));
    if (!streams_.empty())
      last_.floor = last_.base + (floor_bytes(streams_.front()->stream->graph) - start_bytes(streams_.front()->stream->graph));
    if (budget_.kind != Budget::Kind::bytes) {
      resolved_ = budget_.resolve(last_.eager_peak, last_.floor);
      if (!followed && !streams_.empty() && !streams_.front()->stream->plan) plan(*streams_.front(), resolved_ - last_.base);
      if (!streams_.empty()) take_plan(*streams_.front(), !options_.plan_in_background);
    }
    if (on_step_) on_step_(last_);
  }

  // A stream that no plan was followed to the end for.
  void learn(Recording recording) {
    for (auto it = streams_.begin(); it != streams_.end(); ++it) {
      if (!same_stream((*it)->stream->recording, recording)) continue;
      streams_.splice(streams_.begin(), streams_, it);  // seen before; choose() plans it again where it has to
      return;
    }
    auto stream = std::make_shared<PlannedStream>();
    stream->graph = graph_of(recording, options_.name);
    stream->recording = std::move(recording);
    auto known = std::make_unique<Known>();
    known->stream = std::move(stream);
    streams_.push_front(std::move(known));
    if (streams_.size() > options_.max_plans) streams_.pop_back();
    if (budget_.kind != Budget::Kind::bytes) return;
    plan(*streams_.front(), budget_.bytes - last_.base);
    take_plan(*streams_.front(), !options_.plan_in_background);
  }

  void notice(const std::string& text) {
    if (options_.on_notice) options_.on_notice(text);
    else if (std::getenv("REPRISE_LOG") != nullptr) std::cerr << "reprise: " << options_.name << ": " << text << '\n';
  }

  Budget budget_;
  MemoryBudgetOptions options_;
  Policy policy_;
  SpillFile file_;
  bool off_ = false;
  Bytes resolved_{};
  std::list<std::unique_ptr<Known>> streams_;  // most recently seen first
  std::function<ModelTensors()> list_tensors_;
  std::function<void(const GuidedStepReport&)> on_step_;
  GuidedStepReport last_;
  GuidedCounters counters_;
  std::stop_source cancel_;
};

using MemoryBudget = BasicMemoryBudget<CostSizeStaleness>;

}  // namespace reprise
