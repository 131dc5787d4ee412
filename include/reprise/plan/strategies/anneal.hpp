#pragma once
// Anneal is the default strategy: annealing over whole schedules (penalised_search.hpp). It starts
// from the graph's own order, and from the best schedule of the other strategies and of a greedy
// search (recompute_search.hpp). Small graphs are solved exactly (exhaustive.hpp) if that is cheap.
//
// Anneal fails if the smallest feasible peak needs an order that no sequence of single evictions
// reaches. Graphs of that kind are small in practice, and the exact search solves them.
//
// The work is bounded by the number of nodes, not by the clock: about a second for a thousand
// nodes, five for ten thousand.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <reprise/graph/simulate.hpp>
#include <reprise/plan/concepts.hpp>
#include <reprise/plan/search/penalised_search.hpp>
#include <reprise/plan/search/recompute_search.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>

namespace reprise::planning {

class Anneal {
 public:
  struct Options {
    std::size_t exact_states = 60'000;  ///< states of the exact search; 0: no exact search
    double heat = 0.002;                ///< first temperature, as a share of the schedule's time
    /// start from the schedules of mu-two, min-cut and chain-dp as well
    bool other_strategies = true;
  };

  Anneal() = default;
  explicit Anneal(Options options) : options_(options) {}

  [[nodiscard]] std::string_view name() const { return "anneal"; }

  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    if (graph.node_count() <= 20 && options_.exact_states > 0) {
      const auto exact = Exhaustive{options_.exact_states}.search(graph, request);
      if (exact.verdict == Exhaustive::Verdict::optimal) return exact.schedule;
    }
    return within(graph, started(request));
  }

 private:
  // The clock runs already, for all parts together.
  [[nodiscard]] Schedule within(const StepGraph& graph, const PlanRequest& request) const {
    Schedule best = Run{graph, request, options_}.best();
    const Simulation found = simulate(graph, best);
    if (!found.valid || found.peak <= request.budget || StopSignal{request}()) return best;
    // Nothing fits: finds the smallest peak, and the fastest schedule with this peak.
    PlanRequest again = request;
    again.budget = found.peak;
    again.effort = request.effort / 4;
    again.progress = {};
    Schedule faster = schedule(graph, again);
    const Simulation second = simulate(graph, faster);
    return second.valid && second.peak <= found.peak && second.time < found.time ? faster : best;
  }

  class Run {
   public:
    Run(const StepGraph& graph, const PlanRequest& request, const Options& options)
        : graph_(graph), request_(request), options_(options), facts_(graph), stop_(request) {
      rules_.budget = request.budget.count;
      rules_.keep_order = request.keep_order;
      rules_.stop = [this] { return stop_(); };
      if (!request.keep.empty()) {
        rules_.keep.assign(graph.node_count(), false);
        for (NodeId n : request.keep) rules_.keep[n.index] = true;
      }
      work_ = static_cast<std::uint64_t>(
          static_cast<double>(default_search_work(graph.node_count())) * request.effort);
    }

    // Starts from the other strategies and one greedy search. Then anneals through schedules that
    // do not fit, and ends with a search inside the budget. The greedy search gets little work: if
    // it does not fit soon, it seldom fits well.
    Schedule best() {
      const bool large = graph_.node_count() > 5000, huge = graph_.node_count() > 12'000;
      if (options_.other_strategies) from_others(large);
      from(own_order(graph_), work_ / 16);
      report(0.1);
      double done = 0.1;
      const bool possible = rules_.budget >= floor_bytes(graph_).count;
      for (std::size_t k = 0; k < std::size(rounds) && possible && !stop_(); ++k) {
        if (rounds[k].last_resort && found_) continue;
        // a round would change little in the remaining time
        if (found_ && (huge || (large && k > 0))) break;
        cross(rounds[k], k);
        // the shares with the last resort add up to more than 1
        report(done = std::min(1.0, done + rounds[k].share));
      }
      if (!found_) smallest_peak();
      if (found_ && !stop_()) {
        RecomputeSearch search{facts_, best_, rules_, request_.seed * 977 + 5};
        search.improve(search.work() + work_ / (large ? 1 : 8), options_.heat / 2);
        take(search.live());
      }
      report(1);
      return best_;
    }

   private:
    void from(const Schedule& start, std::uint64_t work) {
      SearchRules rules = rules_;
      rules.keep_order = true;  // reordering early can lead astray
      RecomputeSearch search{facts_, start, rules, request_.seed * 1000};
      if (search.reach_budget(work)) search.improve(search.work() + work / 2, options_.heat);
      take(search.live());
    }

    // From the graph's own order, hot, then cooler from the best schedule so far. If nothing fits
    // yet, hotter and with a higher price from the start.
    struct Round {
      bool afresh = false;
      double heat = 0, price = 1;  // price: relative to the usual first price
      double share = 0;            // of the work
      bool last_resort = false;
      bool keep_order = false;
    };
    static constexpr Round rounds[] = {
        {true, 3, 1, 0.2, false, false},   {false, 0.5, 1, 0.1, false, false},
        {true, 10, 1, 0.2, false, true},   {true, 30, 10, 0.3, true, false},
        {false, 1, 1, 0.15, false, false}, {false, 0.3, 1, 0.1, false, false}};

    void cross(const Round& round, std::uint64_t k) {
      const Schedule own = own_order(graph_);
      SearchRules rules = rules_;
      rules.keep_order = rules.keep_order || round.keep_order;
      PenalisedSearch search{facts_, round.afresh || !found_ ? own : best_, rules,
                             request_.seed * 7919 + k};
      search.run(static_cast<std::uint64_t>(round.share * static_cast<double>(work_)), round.heat,
                 round.price * PenalisedSearch::first_price(facts_, rules_.budget));
      if (search.found()) take({facts_, search.best()});
    }

    // Nothing fits: searches the smallest feasible budget by bisection between the budget and the
    // smallest peak so far.
    void smallest_peak() {
      if (!stop_()) from(own_order(graph_), work_ / 4);
      if (options_.other_strategies && graph_.node_count() <= 5000) start_from(MuTwoExact{}, 0.3);
      std::int64_t low = std::max(rules_.budget, floor_bytes(graph_).count);
      for (std::uint64_t k = 0; k < 7 && !found_ && low < peak_ && !stop_(); ++k) {
        SearchRules rules = rules_;
        rules.budget = low + (peak_ - low) / 2;
        PenalisedSearch search{facts_, own_order(graph_), rules, request_.seed * 7919 + 100 + k};
        search.run(work_ / 6, rounds[0].heat, PenalisedSearch::first_price(facts_, rules.budget));
        if (search.found()) take({facts_, search.best()});
        else low = rules.budget;
      }
    }

    void from_others(bool large) {
      start_from(ChainDp{}, 0.2);
      if (large) return;
      start_from(MuTwo{}, 0.1);
      // More work seldom finds a fit, or only at a cost that the rounds beat.
      start_from(MuTwoExact{request_.effort / 8}, 0.1);
      start_from(MinCut{}, 0.1);
    }

    template <Strategy Other>
    void start_from(const Other& strategy, double share_of_time) {
      if (stop_()) return;
      const Schedule found = strategy.schedule(graph_, with_share(request_, share_of_time));
      const bool useful = found.size() > graph_.node_count() && simulate(graph_, found).valid;
      if (useful && (!request_.keep_order || keeps_order(graph_, found))) from(found, work_ / 64);
    }

    // A schedule that fits is better than one that does not; then the faster or the smaller one.
    void take(const LiveSchedule& live) {
      if (!live.valid()) return;
      const std::int64_t peak = live.peak().count, ticks = live.ticks();
      const bool fits = peak <= rules_.budget;
      const bool better = best_.empty() || (fits != found_ ? fits
                                            : fits         ? ticks < ticks_
                                                           : peak < peak_);
      if (!better) return;
      best_ = live.schedule();
      found_ = fits;
      peak_ = peak;
      ticks_ = ticks;
    }

    void report(double share) const {
      if (request_.progress)
        request_.progress(
            {"anneal", share, {peak_}, {static_cast<double>(ticks_) / facts_.ticks_per_us()}});
    }

    const StepGraph& graph_;
    const PlanRequest& request_;
    const Options& options_;
    ScheduleFacts facts_;
    StopSignal stop_;
    SearchRules rules_;
    std::uint64_t work_ = 0;
    Schedule best_;
    bool found_ = false;
    std::int64_t peak_ = 0, ticks_ = 0;
  };

  Options options_{};
};

static_assert(Strategy<Anneal>);

}  // namespace reprise::planning

namespace reprise {
using planning::Anneal;
}  // namespace reprise
