#pragma once
// KnownSequences keeps the op sequences that a loop has made, each with its plan, and finds the
// sequence that a new step follows.
//
//   step 1   a b c d e        learned and planned: A
//   step 2   a b c d e        begins like A: A's plan is followed
//   step 3   a b X            diverges from A at X; no other sequence begins with a b X: online from there, learned and planned: B
//   step 4   a b X …          follows A until X, then B; or B at once, where A and B have taken turns before
//
// In the background a sequence is first planned in haste, or follows what was planned for the same
// ops of other sizes; a thorough search begins when it has followed that once. The loop's first
// sequence is planned when it comes again: mostly it never does, since optimizers make their state
// in it. When a plan is made again, and which one stays, is the Replanner's business
// (plan/replanner.hpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <reprise/base/error.hpp>
#include <reprise/base/log.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/guided/planned_sequence.hpp>
#include <reprise/libtorch/options/memory_budget_options.hpp>
#include <reprise/libtorch/record/graph_of.hpp>
#include <reprise/pipeline/stages.hpp>
#include <reprise/plan/advice.hpp>
#include <reprise/plan/replanner.hpp>
#include <reprise/plan/turns.hpp>

namespace reprise::guided {

/// A sequence with everything that is known about it except its plan.
struct KnownSequence {
  std::uint64_t id = 0;
  std::shared_ptr<const Recording> recording{};
  /// to follow if the headroom is enough without evictions; null before the graph has been made
  std::shared_ptr<const PlannedSequence> without_plan{};
  Bytes floor_above{};     ///< no schedule can go below, above the start
  Bytes needed_above{};    ///< where it went above its limit: what it needed
  Bytes above_for_cost{};  ///< of the plan for a budget by its cost
  /// The loop's first sequence, which has not come again: not planned for this headroom yet.
  std::optional<Bytes> put_off{};
  /// What plans leave free, because the step began with a little more each time.
  Bytes slack{};
  std::shared_ptr<Advice> advice{};  ///< by advice_job; without a schedule if none was found
  std::shared_ptr<PlanJob> advice_job{};

  /// Peak above the start bytes if nothing is evicted.
  [[nodiscard]] Bytes all() const { return recording->peak - recording->base; }
};

/// A plan that a step can follow.
struct FollowablePlan {
  std::shared_ptr<const PlannedSequence> stream{};
  Bytes above{};  ///< its peak above the start bytes
  Microseconds extra{};
  bool used = false;

  [[nodiscard]] bool fits(Bytes headroom) const { return above <= headroom; }
  [[nodiscard]] std::size_t recomputed() const { return stream->plan->recomputed(); }
  [[nodiscard]] double extra_time(const StepGraph& graph) const {
    const double own = simulate(graph, own_order(graph)).time.count;
    return own > 0 ? simulate(graph, stream->plan->schedule()).time.count / own - 1 : 0;
  }
};

class KnownSequences {
 public:
  using Steps = Replanner<KnownSequence, FollowablePlan>;
  using Known = Steps::Known;

  /// `options` and `log` must outlive this. `tell` gets notices.
  KnownSequences(const MemoryBudgetOptions& options, Stages stages, const Log& log,
                 std::function<void(const std::string&)> tell)
      : options_(options),
        stages_(std::move(stages)),
        log_(log),
        tell_(std::move(tell)),
        steps_(rules(options, stages_.planner), hooks()) {}
  ~KnownSequences() {
    for (Known& known : steps_.steps())
      if (known.key.advice_job) known.key.advice_job->cancel();
  }
  KnownSequences(const KnownSequences&) = delete;
  KnownSequences& operator=(const KnownSequences&) = delete;

  /// A sequence to follow from here on, with its peak above the start bytes and the predicted
  /// extra time of its plan.
  struct Choice {
    std::shared_ptr<const PlannedSequence> stream{};
    Bytes above{};
    Microseconds extra{};
  };

  /// For a step that has made the calls `so_far` and goes on with `next`. Plans if that is
  /// necessary.
  [[nodiscard]] Choice choose_or_plan(const Recording& so_far, const Call& next, Bytes headroom) {
    for (Known* candidate : in_likely_order()) {
      Known& known = *candidate;
      if (!known.graph || known.key.put_off || !may_become(*known.key.recording, so_far, next))
        continue;
      if (known.key.all() <= headroom) return {known.key.without_plan, known.key.all(), {}};
      ensure_planned(known, headroom);
      if (!known.made || !known.made->fits(headroom)) continue;
      if (!std::exchange(known.made->used, true))
        log_.info("the plan is used for the first time: " +
                  std::to_string(known.made->recomputed()) + " ops again");
      return {known.made->stream, known.made->above, known.made->extra};
    }
    return {};
  }

  /// A step has made this sequence and followed no plan to its end. `headroom` is empty if it is
  /// not known yet.
  void learn(Recording recording, std::optional<Bytes> headroom) {
    bool is_new = false;
    Known& known = steps_.find_or_add(
        [&](const KnownSequence& key) { return same_sequence(*key.recording, recording); },
        [&] {
          is_new = true;
          return KnownSequence{
              .id = ++last_id_,
              .recording = std::make_shared<const Recording>(std::move(recording))};
        });
    turns_.note(known.key.id);
    new_in_a_row_ = is_new ? new_in_a_row_ + 1 : 0;
    const bool first = known.key.id == 1 && is_new;
    known.key.put_off.reset();
    // no sequence repeats in this loop: a sequence is planned when it repeats
    if (new_in_a_row_ > patience) return;
    make_graph(known);
    if (first && in_background()) known.key.put_off = headroom.value_or(Bytes{0});
    else if (headroom && options_.run.max_plans > 0) ensure_planned(known, *headroom);
  }

  /// A step has followed this sequence to its end, as `now`. The sequence becomes the last one
  /// seen.
  void seen(const PlannedSequence& stream, const Recording& now, Bytes headroom) {
    new_in_a_row_ = 0;
    const auto it = std::ranges::find_if(steps_.steps(), [&](const Known& known) {
      return known.key.recording == stream.recording;
    });
    if (it == steps_.steps().end()) return;
    Known& known = *it;
    // not one of several that take turns: steps enter each other's plans in the middle
    const bool again = &known == &steps_.steps().front();
    steps_.touch(known);
    turns_.note(known.key.id);
    if (!stream.plan) return;
    if (again && steps_.wants_times(known)) return refine(known, now, headroom);
    steps_.improve(known);
    if (in_background()) ensure_planned(known, headroom);
  }

  /// The last learned sequence exceeded its limit: it needs `above` bytes above its start bytes.
  void note_need(Bytes above) {
    if (steps_.steps().empty()) return;
    Bytes& needed = steps_.steps().front().key.needed_above;
    needed = std::max(needed, above);
  }
  /// Known need of a step that begins with these calls, above its start bytes, whatever is evicted;
  /// 0 if nothing is known.
  [[nodiscard]] Bytes needed_above(const Recording& so_far) const {
    for (const Known& known : steps_.steps())
      if (known.key.needed_above > Bytes{0} && may_become(*known.key.recording, so_far))
        return known.key.needed_above;
    return {};
  }

  /// The last seen sequence, with its plan if it has one. Null if there is no such sequence, or if
  /// no graph was made of it.
  [[nodiscard]] const PlannedSequence* last() const {
    if (steps_.steps().empty() || !steps_.steps().front().graph) return nullptr;
    const Known& front = steps_.steps().front();
    return front.made ? front.made->stream.get() : front.key.without_plan.get();
  }
  /// Why the next step is not going to be planned; empty if it may be.
  [[nodiscard]] std::string why_unplannable(Bytes headroom) const {
    if (new_in_a_row_ > patience)
      return "the last " + std::to_string(new_in_a_row_) +
             " steps made ops that had not come before";
    const bool others = std::ranges::any_of(
        steps_.steps(), [](const Known& known) { return known.made != nullptr; });
    const bool none = !others && !steps_.steps().empty() && steps_.steps().front().unplannable &&
                      headroom <= steps_.steps().front().headroom;
    return none ? "no plan was found for a headroom of " +
                      format_bytes(steps_.steps().front().headroom)
                : "";
  }
  /// Forgets how many new sequences came in a row: the next ones are planned again.
  void reset_new_sequence_count() { new_in_a_row_ = 0; }
  /// The floor of the last sequence, above its start bytes.
  [[nodiscard]] std::optional<Bytes> floor_above_start() const {
    if (last() == nullptr) return std::nullopt;
    return steps_.steps().front().key.floor_above;
  }

  /// For a budget by its cost: the smallest headroom in which the last sequence takes at most
  /// `percent` % extra time, and at least the headroom of the other sequences. Empty while the
  /// search runs.
  [[nodiscard]] std::optional<Bytes> headroom_for_cost(double percent) {
    if (last() == nullptr) return std::nullopt;
    Known& front = steps_.steps().front();
    if (!steps_.planning(front)) steps_.ensure(front, {.headroom = unlimited, .percent = percent});
    Bytes most{};
    for (Known& known : steps_.steps()) {
      if (steps_.planning(known) && known.goal.percent) steps_.take(known, !in_background());
      if (steps_.planning(known) && known.goal.percent) return std::nullopt;
      most = std::max(most, known.key.above_for_cost);
    }
    return most > Bytes{0} ? std::optional(most) : std::nullopt;
  }

  /// Whether a plan for the last sequence is being made, or has been put off.
  [[nodiscard]] bool planning() const {
    if (steps_.steps().empty()) return false;
    return steps_.steps().front().key.put_off || steps_.planning(steps_.steps().front());
  }
  /// The smallest plan for the last sequence, without the bytes that no op of the step reads. The
  /// first call starts the search, in the background if the options say so. Null until the search
  /// has ended.
  [[nodiscard]] const Advice* smallest_plan() {
    if (last() == nullptr) return nullptr;
    Known& known = steps_.steps().front();
    if (!known.key.advice) begin_advice(known);
    if (in_background() && !known.key.advice_job->done()) return nullptr;
    known.key.advice_job->wait();
    return known.key.advice->schedule.empty() ? nullptr : known.key.advice.get();
  }
  /// From here on, the last sequence follows its smallest plan, which smallest_plan() has returned.
  /// Returns the peak above the start bytes; empty if the plan cannot be followed.
  [[nodiscard]] std::optional<Bytes> use_smallest_plan() {
    Known& known = steps_.steps().front();
    try {
      auto made = followable(known, known.key.advice->schedule);
      const Bytes above = made->above;
      steps_.put(known, std::move(made), above);
      return above;
    } catch (const Error& error) {
      tell_(std::string("the smallest plan cannot be followed: ") + error.what());
      return std::nullopt;
    }
  }

  /// Starts to use finished plans for the last sequence. Waits for them if the options say so.
  void plan_last(Bytes headroom) {
    if (last() == nullptr || options_.run.max_plans == 0) return;
    Known& known = steps_.steps().front();
    if (known.key.put_off) known.key.put_off = headroom;
    else ensure_planned(known, headroom);
  }
  /// After the loop's first step: also for its plan, which is made now.
  void wait() {
    if (!steps_.steps().empty()) {
      Known& front = steps_.steps().front();
      const auto headroom = std::exchange(front.key.put_off, std::nullopt);
      if (headroom > Bytes{0} && options_.run.max_plans > 0) ensure_planned(front, *headroom);
    }
    steps_.wait();
    for (Known& known : steps_.steps())
      if (known.key.advice_job) known.key.advice_job->wait();
  }

  [[nodiscard]] const PlanStage& planner() const { return stages_.planner; }
  [[nodiscard]] const ReplanCounters& counters() const { return steps_.counters(); }

 private:
  static constexpr int patience = 4;
  /// Of the usual effort: a tenth of a second for a thousand ops.
  static constexpr double hasty_effort = 0.05;
  /// How many more steps a plan should last where each begins with a little more, and the most that
  /// this may take off its headroom.
  static constexpr std::int64_t steps_to_last = 64, least_share = 50;
  static constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max() / 4};

  [[nodiscard]] bool in_background() const { return options_.plan_in_background; }

  // The one whose turn it is, then the others.
  [[nodiscard]] std::vector<Known*> in_likely_order() {
    std::vector<Known*> all;
    for (Known& known : steps_.steps()) all.push_back(&known);
    std::ranges::stable_partition(
        all, [next = turns_.next()](const Known* known) { return known->key.id == next; });
    return all;
  }

  // A step that waits for its plan leaves its cores to the planner; a step that goes on does not.
  static ReplanRules rules(const MemoryBudgetOptions& options, const PlanStage& planner) {
    PlanSearchRules search{.planner = planner.plan,
                           .planning = options.run.planning,
                           .keep_order = true,
                           .waited_for = !options.plan_in_background,
                           .first_effort = options.plan_in_background ? hasty_effort : 1};
    search.tries = [name = planner.strategy, planning = options.run.planning,
                    background = options.plan_in_background](bool hasty) {
      if (hasty) return Tries{};
      const auto cores = static_cast<unsigned>(std::max(at::get_num_threads(), 1));
      return tries_of(name, planning, background ? Tries{2, 1} : Tries{4, cores});
    };
    return {.search = std::move(search),
            .in_background = options.plan_in_background,
            .quick_first = options.plan_in_background,
            .refine = options.run.refine,
            .max_plans = options.run.max_plans,
            .own_costs = planner.own_costs};
  }

  Steps::Hooks hooks() {
    return {.make = [this](Known& known, Plan plan,
                           const Steps::Again&) { return made_of(known, std::move(plan)); },
            .ask_first = [](const Known& known) { return with_slack(known); },
            .starts = [this](const Known& known) { return starts_for(known); },
            .used = [this](const Known& known) { tell_of_plan(known); },
            .none_found = [this](const Known& known) { tell_of_none(known); },
            .log = [this](const std::string& text) { log_.info(text); }};
  }

  void make_graph(Known& known) const {
    if (known.graph) return;
    auto stream = std::make_shared<PlannedSequence>();
    stream->recording = known.key.recording;
    stream->graph = std::make_shared<const StepGraph>(
        graph_of(*stream->recording, options_.run.name, GraphDetail::structure));
    known.graph = stream->graph;
    Bytes floor{};
    try {
      floor = stages_.analyse(*known.graph).memory.floor;
    } catch (const Error& error) {  // the step goes on without a plan
      log_.info(std::string("the step cannot be analysed: ") + error.what());
      floor = floor_bytes(*known.graph);
    }
    known.key.floor_above = std::max(floor - start_bytes(*known.graph), Bytes{0});
    known.key.without_plan = std::move(stream);
  }

  // The first runs of ops take other times than later runs.
  void refine(Known& known, const Recording& now, Bytes headroom) {
    if (!steps_.wants_times(known)) return;
    std::vector<Microseconds> times;
    for (const Call& call : now.calls) times.push_back(call.time);
    steps_.refine(known, times, [&] {
      auto graph = std::make_shared<StepGraph>(*known.graph);
      for (std::size_t i = 0; i < times.size(); ++i) graph->set_time(NodeId{i}, times[i]);
      auto warm = std::make_shared<PlannedSequence>(*known.key.without_plan);
      known.graph = warm->graph = std::move(graph);
      known.key.without_plan = std::move(warm);
      auto followed = std::make_shared<PlannedSequence>(*known.made->stream);
      followed->graph = known.graph;
      known.made->stream = std::move(followed);
    });
    ensure_planned(known, headroom);
  }

  // Plans of the same ops, its own among them.
  [[nodiscard]] std::vector<Schedule> starts_for(const Known& known) const {
    std::vector<Schedule> starts;
    for (const Known& other : steps_.steps())
      if (other.made && other.made->stream->plan &&
          (&other == &known || same_ops(*other.key.recording, *known.key.recording)))
        starts.push_back(other.made->stream->plan->schedule());
    return starts;
  }

  [[nodiscard]] static std::optional<Bytes> with_slack(const Known& known) {
    if (known.key.slack == Bytes{0}) return std::nullopt;
    return known.headroom - known.key.slack;
  }
  // Losses that a loop keeps, and the like: the plan is too large by a few bytes, step after step.
  void note_growth(Known& known, Bytes headroom) const {
    if (!in_background() || !known.made || known.made->fits(headroom)) return;
    const std::int64_t lacks = (known.made->above - headroom).count;
    const std::int64_t most = std::max<std::int64_t>(headroom.count / least_share, 0);
    if (steps_.planning(known) || lacks > most) return;
    const std::int64_t wanted = std::max(steps_to_last * lacks, known.key.slack.count);
    known.key.slack = Bytes{std::min(wanted, most)};
  }

  // Makes sure that a plan for this headroom exists or is being made.
  void ensure_planned(Known& known, Bytes headroom) {
    if (known.key.all() <= headroom) return steps_.take(known, !in_background());
    note_growth(known, headroom);
    steps_.ensure(known, {.headroom = headroom});
  }

  [[nodiscard]] std::shared_ptr<FollowablePlan> followable(const Known& known,
                                                           Schedule schedule) const {
    static_cast<void>(stages_.rewrite(*known.graph, schedule));
    auto stream = std::make_shared<PlannedSequence>(*known.key.without_plan);
    stream->plan.emplace(*known.graph, std::move(schedule));
    auto made = std::make_shared<FollowablePlan>();
    made->above = stream->plan->peak() - start_bytes(*known.graph);
    made->extra = simulate(*known.graph, stream->plan->schedule()).time -
                  simulate(*known.graph, own_order(*known.graph)).time;
    made->stream = std::move(stream);
    return made;
  }
  std::shared_ptr<FollowablePlan> made_of(Known& known, Plan plan) const {
    auto made = followable(known, std::move(plan.schedule));
    if (known.goal.percent) known.key.above_for_cost = made->above;
    return made;
  }

  void tell_of_plan(const Known& known) const {
    log_.info("planned: " + std::to_string(known.made->recomputed()) + " of " +
              std::to_string(known.graph->node_count()) + " ops again, " +
              format_bytes(known.made->above) + " above the start");
  }
  void tell_of_none(const Known& known) const {
    tell_("no plan for a headroom of " + format_bytes(known.headroom) + " (" +
          std::to_string(known.headroom.count) + " bytes): " + known.why +
          (known.made ? "; the older plan stays" : "; steps stay online"));
  }

  void begin_advice(Known& known) {
    known.key.advice = std::make_shared<Advice>();
    PlanRequest request = not_for_long(options_.run.planning);
    request.keep_order = true;
    known.key.advice_job =
        steps_.start([graph = known.graph, planner = stages_.planner.plan, request,
                      found = known.key.advice](std::stop_token stop) mutable {
          request.cancel = std::move(stop);
          try {
            *found = advise(*graph, request, planner);
          } catch (...) {  // a user's planner may throw anything: then there is no plan
          }
          return Schedule{};
        });
  }

  const MemoryBudgetOptions& options_;
  Stages stages_;
  const Log& log_;
  std::function<void(const std::string&)> tell_;
  Steps steps_;
  int new_in_a_row_ = 0;
  std::uint64_t last_id_ = 0;
  Turns turns_;
};

}  // namespace reprise::guided
