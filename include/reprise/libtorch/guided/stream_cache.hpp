#pragma once
// The streams of ops that a loop has made so far, each with its plan, and which of them a new step
// is going to be.
//
//   step 1   a b c d e        learned and planned: A
//   step 2   a b c d e        begins like A: A's plan is followed
//   step 3   a b X            leaves A at X; no other stream begins with a b X: online from there, learned and planned: B
//   step 4   a b X …          follows A until X, then B
//
// The streams that were seen most recently are kept. One that is planned for less memory than there
// is now is planned anew, in the background where that is asked for: the step then goes on online.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <reprise/libtorch/guided/guided_stream.hpp>
#include <reprise/libtorch/options/memory_budget_options.hpp>
#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/plan/advice.hpp>
#include <reprise/plan/background_planner.hpp>
#include <reprise/plan/step_plans.hpp>
#include <reprise/plan/strategies.hpp>

namespace reprise {

class StreamCache {
 public:
  /// `options`, `counters` and `log` must outlive the cache.
  StreamCache(const MemoryBudgetOptions& options, GuidedCounters& counters, const Log& log)
      : options_(options), counters_(counters), log_(log) {}
  ~StreamCache() {
    for (Known& known : streams_) forget(known);
  }
  /// Where notices go.
  void on_notice(std::function<void(const std::string&)> tell) { tell_ = std::move(tell); }
  StreamCache(const StreamCache&) = delete;
  StreamCache& operator=(const StreamCache&) = delete;

  /// A plan that may be followed from here on, and its peak above the base.
  struct Found {
    std::shared_ptr<const PlannedStream> stream{};
    Bytes above{};
  };

  /// For a step that has come so far and goes on with `next`, with `room` above the base.
  [[nodiscard]] Found find(const Recording& so_far, const Call& next, Bytes room) {
    for (Known& known : streams_) {
      if (!known.stream->graph || !begins_like(*known.stream->recording, so_far, next)) continue;
      const Bytes all = known.stream->recording->peak - known.stream->recording->base;
      if (all <= room) return {known.without_plan, all};
      keep_planned(known, room);
      if (!known.stream->plan || known.above > room) continue;
      if (!std::exchange(known.used, true))
        log_.info("the plan is used for the first time: " +
                  std::to_string(known.stream->plan->recomputed()) + " ops again");
      return {known.stream, known.above};
    }
    return {};
  }

  /// A step has made this stream, and no plan was followed to its end. `room`: above the base; none
  /// where it is not known yet.
  void learn(Recording recording, std::optional<Bytes> room) {
    const auto known = std::ranges::find_if(
        streams_, [&](const Known& k) { return same_stream(*k.stream->recording, recording); });
    if (known != streams_.end()) {
      streams_.splice(streams_.begin(), streams_, known);
      new_in_a_row_ = 0;
    } else {
      ++new_in_a_row_;
      add(std::move(recording));
    }
    // nothing comes again: what does will be planned when it does
    if (new_in_a_row_ > patience) return;
    look_at(streams_.front());
    if (room && options_.max_plans > 0) keep_planned(streams_.front(), *room);
  }

  /// A stream that was followed to its end, as `now`: the one that was seen last. `room`: what
  /// there was above the base.
  void seen(const PlannedStream& stream, const Recording& now, Bytes room) {
    new_in_a_row_ = 0;
    const auto it = std::ranges::find_if(
        streams_, [&](const Known& k) { return k.stream->recording == stream.recording; });
    if (it == streams_.end()) return;
    // not one of several that take turns: they enter each other's plans in the middle
    const bool again = it == streams_.begin();
    streams_.splice(streams_.begin(), streams_, it);
    if (options_.refine && again && stream.plan) refine(streams_.front(), now, room);
  }

  /// The stream that was learned last went above its limit: it needs this much above the base.
  void note_need(Bytes above) {
    if (streams_.empty()) return;
    streams_.front().needed_above = std::max(streams_.front().needed_above, above);
  }
  /// What a step that begins like this one is known to need above the base, whatever is evicted; 0
  /// where nothing is known.
  [[nodiscard]] Bytes needed_above(const Recording& so_far) const {
    for (const Known& known : streams_)
      if (known.needed_above > Bytes{0} && begins_like(*known.stream->recording, so_far))
        return known.needed_above;
    return {};
  }

  /// The stream that was seen last; none where there is none, or it was not looked at.
  [[nodiscard]] const PlannedStream* last() const {
    return streams_.empty() || !streams_.front().stream->graph ? nullptr
                                                               : streams_.front().stream.get();
  }
  /// Why the next step, with `room` above the base, is not going to be planned; empty where it may
  /// be.
  [[nodiscard]] std::string hopeless(Bytes room) const {
    if (new_in_a_row_ > patience)
      return "the last " + std::to_string(new_in_a_row_) +
             " steps made ops that had not come before";
    const bool others = std::ranges::any_of(
        streams_, [](const Known& known) { return known.stream->plan.has_value(); });
    const bool none = !others && !streams_.empty() && streams_.front().unplannable &&
                      room <= streams_.front().room;
    return none ? "no plan was found for " + format_bytes(streams_.front().room) + " above the base"
                : "";
  }
  /// What has not come again so far may do so from here on.
  void hope_again() { new_in_a_row_ = 0; }
  /// What no schedule of the last stream can go below, above the base.
  [[nodiscard]] std::optional<Bytes> floor_above_base() const {
    if (last() == nullptr) return std::nullopt;
    return streams_.front().floor_above;
  }

  /// For a budget by its cost: the smallest room above the base in which the last stream takes at
  /// most so much more time; at least that of the others. None while it is looked for.
  [[nodiscard]] std::optional<Bytes> room_for_cost(double percent) {
    if (last() == nullptr) return std::nullopt;
    Known& front = streams_.front();
    if (!front.job && front.cost_percent != percent) begin_for_cost(front, percent);
    Bytes room{};
    for (Known& known : streams_) {
      take(known, !options_.plan_in_background);
      if (known.cost_percent != percent) continue;
      if (known.job) return std::nullopt;
      room = std::max(room, known.above_for_cost);
    }
    return room > Bytes{0} ? std::optional(room) : std::nullopt;
  }

  /// Whether a plan for the last stream is being made.
  [[nodiscard]] bool planning() const {
    return !streams_.empty() && streams_.front().job != nullptr;
  }
  /// What the smallest plan for the last stream takes, without what no op of the step touches;
  /// looked for at the first call, in the background where that is asked for. None until it is
  /// there.
  [[nodiscard]] const Advice* smallest_plan() {
    if (last() == nullptr) return nullptr;
    Known& known = streams_.front();
    if (!known.advice) begin_advice(known);
    if (options_.plan_in_background && !known.advice_job->done()) return nullptr;
    known.advice_job->wait();
    return known.advice->schedule.empty() ? nullptr : known.advice.get();
  }
  /// From here on the last stream follows its smallest plan, which smallest_plan() has given. What
  /// that takes above the base; none where it cannot be followed.
  [[nodiscard]] std::optional<Bytes> use_smallest_plan() {
    Known& known = streams_.front();
    try {
      use(known, FollowedPlan(*known.stream->graph, known.advice->schedule));
    } catch (const Error& error) {
      tell_(std::string("the smallest plan cannot be followed: ") + error.what());
      return std::nullopt;
    }
    known.room = known.above;
    known.unplannable = false;
    return known.above;
  }

  /// Takes up plans for the last stream; waits for them where that is asked for.
  void plan_last(Bytes room) {
    if (last() != nullptr && options_.max_plans > 0) keep_planned(streams_.front(), room);
  }
  void wait() {
    for (Known& known : streams_) {
      take(known, true);
      if (known.advice_job) known.advice_job->wait();
    }
  }

  /// The user's own planner, or the strategy of that name.
  [[nodiscard]] static PlanFunction planner_of(const MemoryBudgetOptions& options) {
    if (options.planner) return options.planner;
    return [strategy = options.strategy](const StepGraph& graph, const PlanRequest& request) {
      return plan_with(strategy, graph, request);
    };
  }

  [[nodiscard]] static Bytes start_bytes(const StepGraph& graph) {
    Bytes sum = graph.persistent_bytes();
    for (std::size_t i = 0; i < graph.value_count(); ++i)
      if (graph.value(ValueId{i}).initial) sum += graph.value(ValueId{i}).bytes;
    return sum;
  }

 private:
  static constexpr int patience = 4;
  static constexpr int most_tries = 3;                  // each with another seed and more work
  static constexpr double worth_planning_again = 0.03;  // more room, as a share

  struct Known {
    std::shared_ptr<const PlannedStream> stream{};
    Bytes above{};  // the plan's peak above what the step starts from
    Bytes room{};   // what it was planned for
    Bytes floor_above{};
    Bytes needed_above{};  // where it went above its limit: what it needed
    // to follow where there is room for everything
    std::shared_ptr<const PlannedStream> without_plan{};
    std::shared_ptr<PlanJob> job{};
    Bytes job_room{};
    double cost_percent = 0;  // extra time that the smallest plan may cost, where one is looked for
    Bytes above_for_cost{};   // of that plan
    std::shared_ptr<PlanJob> advice_job{};
    std::shared_ptr<Advice> advice{};  // by advice_job; without a schedule where none was found
    bool unplannable = false;          // for `room`
    bool used = false;
    bool refined = false;  // its times are those of a step that was not the first
  };

  void add(Recording recording) {
    auto stream = std::make_shared<PlannedStream>();
    stream->recording = std::make_shared<const Recording>(std::move(recording));
    streams_.emplace_front();
    streams_.front().stream = std::move(stream);
    if (streams_.size() <= std::max<std::size_t>(options_.max_plans, 1)) return;
    forget(streams_.back());
    streams_.pop_back();
  }
  static void forget(Known& known) {
    if (known.job) known.job->cancel();
    if (known.advice_job) known.advice_job->cancel();
  }

  void look_at(Known& known) const {
    if (known.stream->graph) return;
    auto stream = std::make_shared<PlannedStream>(*known.stream);
    stream->graph = std::make_shared<const StepGraph>(graph_of(*stream->recording, options_.name));
    known.floor_above = floor_bytes(*stream->graph) - start_bytes(*stream->graph);
    known.stream = known.without_plan = std::move(stream);
  }

  // What ops take when they run for the first time is not what they take later.
  void refine(Known& known, const Recording& now, Bytes room) {
    const PlannedStream& stream = *known.stream;
    if (known.refined || known.job || !stream.plan || stream.plan->recomputed() == 0 ||
        now.calls.size() != stream.graph->node_count())
      return;
    known.refined = true;
    std::vector<Microseconds> times;
    for (const Call& call : now.calls) times.push_back(call.time);
    if (!times_differ(*stream.graph, times)) return;
    auto graph = std::make_shared<StepGraph>(*stream.graph);
    for (std::size_t i = 0; i < times.size(); ++i) graph->set_time(NodeId{i}, times[i]);
    auto warm = std::make_shared<PlannedStream>(stream);
    warm->graph = std::move(graph);
    known.stream = std::move(warm);
    log_.info("ops take another time than in the first step: planned again");
    const auto start = std::chrono::steady_clock::now();
    begin(known, std::min(known.room, room));
    take(known, !options_.plan_in_background);
    counters_.plan_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Sees to it that there is a plan for this much room, or that one is being made.
  void keep_planned(Known& known, Bytes room) {
    const auto start = std::chrono::steady_clock::now();
    take(known, false);
    if (!known.job && needs_plan(known, room)) begin(known, room);
    take(known, !options_.plan_in_background);
    counters_.plan_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  [[nodiscard]] static bool needs_plan(const Known& known, Bytes room) {
    if (known.stream->recording->peak - known.stream->recording->base <= room) return false;
    const bool more_room = static_cast<double>(room.count) >
                           (1 + worth_planning_again) * static_cast<double>(known.room.count);
    if (!known.stream->plan || known.above > room) return !known.unplannable || more_room;
    return known.stream->plan->recomputed() > 0 && more_room;
  }

  // A step that waits for its plan leaves its cores to it; one that goes on meanwhile does not.
  [[nodiscard]] Tries seeds() const {
    const auto cores = static_cast<unsigned>(std::max(at::get_num_threads(), 1));
    const std::string_view strategy = options_.planner ? std::string_view{} : options_.strategy;
    return tries_of(strategy, options_.planning,
                    options_.plan_in_background ? Tries{2, 1} : Tries{4, cores});
  }

  void begin(Known& known, Bytes room) {
    constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max() / 4;
    known.job_room = room;
    const Bytes budget =
        room.count >= unlimited ? Bytes{unlimited} : start_bytes(*known.stream->graph) + room;
    if (budget <= Bytes{0}) {
      known.unplannable = true;
      known.room = room;
      return;
    }
    ++counters_.plans;
    PlanRequest request = request_to_plan();
    request.keep_order = true;
    request.budget = budget;
    auto work = [graph = known.stream->graph, planner = planner_of(options_), request,
                 seeds = seeds()](std::stop_token stop) mutable {
      request.cancel = std::move(stop);
      const PlanRequest whole = started(request);  // all tries together
      for (int i = 0; i < most_tries && !StopSignal{whole}(); ++i) {
        if (i > 0 && request.seconds > 0) request.seconds = seconds_left(whole);
        Plan found = plan_best_of(*graph, request, i == 0 ? seeds : Tries{}, planner);
        if (found.within_budget()) return std::move(found.schedule);
        ++request.seed;
        request.effort *= 3;
      }
      return Schedule{};
    };
    known.job = start(std::move(work));
  }

  [[nodiscard]] PlanRequest request_to_plan() const {
    return options_.plan_in_background ? options_.planning : not_for_long(options_.planning);
  }

  [[nodiscard]] std::shared_ptr<PlanJob> start(PlanJob::Work work) {
    if (options_.plan_in_background) return planner_.submit(std::move(work));
    auto job = std::make_shared<PlanJob>(std::move(work));
    job->run();
    return job;
  }

  void begin_for_cost(Known& known, double percent) {
    ++counters_.plans;
    known.cost_percent = percent;
    known.job_room = Bytes{std::numeric_limits<std::int64_t>::max() / 4};
    PlanRequest request = request_to_plan();
    request.keep_order = true;
    using Clock = std::chrono::steady_clock;
    const auto begun = Clock::now();
    known.job = start([graph = known.stream->graph, planner = planner_of(options_), request,
                       percent](std::stop_token stop) mutable {
      request.cancel = std::move(stop);
      return plan_within_time(*graph, request, percent, planner).schedule;
    });
    if (!options_.plan_in_background)
      counters_.plan_seconds += std::chrono::duration<double>(Clock::now() - begun).count();
  }

  void begin_advice(Known& known) {
    known.advice = std::make_shared<Advice>();
    PlanRequest request = not_for_long(options_.planning);
    request.keep_order = true;
    known.advice_job = start([graph = known.stream->graph, planner = planner_of(options_), request,
                              found = known.advice](std::stop_token stop) mutable {
      request.cancel = std::move(stop);
      try {
        *found = advise(*graph, request, planner);
      } catch (...) {  // a planner of the user's own may throw anything: then there is no advice
      }
      return Schedule{};
    });
  }

  void use(Known& known, FollowedPlan plan) {
    auto planned = std::make_shared<PlannedStream>(*known.stream);
    planned->plan.emplace(std::move(plan));
    known.above = planned->plan->peak() - start_bytes(*planned->graph);
    log_.info("planned: " + std::to_string(planned->plan->recomputed()) + " of " +
              std::to_string(planned->graph->node_count()) + " ops again, " +
              format_bytes(known.above) + " above the base");
    known.used = false;
    known.stream = std::move(planned);
  }

  void take(Known& known, bool wait) {
    if (!known.job || (!wait && !known.job->done())) return;
    std::optional<FollowedPlan> plan;
    std::string why = "none was found";
    try {
      if (Schedule found = std::exchange(known.job, nullptr)->take(); !found.empty())
        plan.emplace(*known.stream->graph, std::move(found));
      if (plan && plan->peak() - start_bytes(*known.stream->graph) > known.job_room) {
        why = "one was made that holds " + format_bytes(plan->peak());
        plan.reset();
      }
      // also where a planner of the user's own has made none that can be followed
    } catch (const std::exception& error) {
      why = error.what();
    } catch (...) {
      why = "the planner threw something that is no std::exception";
    }
    const bool for_cost = known.job_room.count == std::numeric_limits<std::int64_t>::max() / 4;
    if (for_cost && plan) {
      use(known, std::move(*plan));
      known.room = known.above_for_cost = known.above;
      known.unplannable = false;
      return;
    }
    known.room = known.job_room;
    known.unplannable = !plan;
    if (!plan) {
      tell_("no plan for " + format_bytes(known.room) + " above the base: " + why +
            (known.stream->plan ? "" : "; steps stay online"));
      return;
    }
    if (known.stream->plan && known.above <= known.room &&
        is_as_fast(known.stream->plan->schedule(), plan->schedule(), *known.stream->graph)) {
      log_.info("the plan that there is stays: no faster one was found");
      return;
    }
    use(known, std::move(*plan));
  }

  [[nodiscard]] static bool is_as_fast(const Schedule& a, const Schedule& b,
                                       const StepGraph& graph) {
    return simulate(graph, a).time <= simulate(graph, b).time;
  }

  const MemoryBudgetOptions& options_;
  GuidedCounters& counters_;
  const Log& log_;
  std::function<void(const std::string&)> tell_ = [](const std::string& /*text*/) {};
  std::list<Known> streams_;  // most recently seen first
  int new_in_a_row_ = 0;
  BackgroundPlanner planner_;
};

}  // namespace reprise
