#pragma once
// The default strategy: from several starts to a schedule that fits, then annealing over whole schedules. See recompute_search.hpp
// for the moves. Small graphs are solved exactly (exhaustive.hpp) where that takes little.
//
// It falls short where the least feasible peak needs an order that no sequence of single drops leads to; graphs of that kind
// are small in practice, and then the exact search finds them.
//
// The work is bounded by the number of nodes, not by the clock: about a second for a thousand nodes, five for ten thousand.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <reprise/concepts.hpp>
#include <reprise/plan/penalised_search.hpp>
#include <reprise/plan/recompute_search.hpp>
#include <reprise/plan/simulate.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>

namespace reprise {

class Anneal {
 public:
  struct Options {
    std::size_t exact_states = 60'000;  ///< what the exact search may look at; 0 to go without it
    double heat = 0.002;                ///< first temperature, as a share of the schedule's time
    bool other_strategies = true;       ///< start from what mu-two, min-cut and chain-dp find as well
  };

  Anneal() = default;
  explicit Anneal(Options options) : options_(std::move(options)) {}

  [[nodiscard]] std::string_view name() const { return "anneal"; }

  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    if (graph.node_count() <= 20 && options_.exact_states > 0) {
      const auto exact = Exhaustive{options_.exact_states}.search(graph, request);
      if (exact.verdict == Exhaustive::Verdict::optimal) return exact.schedule;
    }
    return Run{graph, request, options_}.best();
  }

 private:
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
      work_ = static_cast<std::uint64_t>(static_cast<double>(default_search_work(graph.node_count())) * request.effort);
    }

    // A few starts that fit, the best of them annealed through what does not fit, and a last search inside the budget.
    Schedule best() {
      const bool large = graph_.node_count() > 5000;
      const std::uint64_t starts = large ? 1 : 4, rounds = large ? 1 : 4;
      for (std::uint64_t k = 0; k < starts && spent_ <= work_ / 2 && !stop_(); ++k)
        from(own_order(graph_), k, work_ / (large ? 4 : 8));
      if (options_.other_strategies && !large) from_others();
      report(0.3);
      for (std::uint64_t k = 0; k < rounds && !stop_(); ++k) {
        cross(k, work_ / (large ? 12 : 7));
        report(0.3 + 0.5 * static_cast<double>(k + 1) / static_cast<double>(rounds));
      }
      if (found_ && !stop_()) {
        RecomputeSearch search{facts_, best_, rules_, request_.seed * 977 + 5};
        search.improve(search.work() + work_ / 4, options_.heat / 2);
        take(search);
      }
      report(1);
      return best_;
    }

   private:
    void from(const Schedule& start, std::uint64_t k, std::uint64_t work) {
      SearchRules rules = rules_;
      rules.keep_order = rules.keep_order || k % 2 == 1;  // reordering early can lead astray: every other start keeps the order
      RecomputeSearch search{facts_, start, rules, request_.seed * 1000 + k};
      search.set_noise(k < 2 ? 0 : 0.25 * static_cast<double>(k));
      const bool fits = search.reach_budget(work_);
      search.set_noise(0);
      if (fits) search.improve(search.work() + work, options_.heat);
      spent_ += search.work();
      take(search);
    }

    // Every other round starts afresh and hot, the others cooler from the best so far.
    void cross(std::uint64_t round, std::uint64_t work) {
      const Schedule own = own_order(graph_);
      PenalisedSearch search{facts_, round % 2 == 0 || best_.empty() ? own : best_, rules_, request_.seed * 7919 + round};
      search.run(work, round % 2 == 0 ? 3 : 0.5, PenalisedSearch::first_price(facts_, rules_.budget));
      spent_ += search.work();
      if (search.found()) take(search.best());
    }

    void take(const Schedule& schedule) {
      const LiveSchedule live{facts_, schedule};
      if (!live.valid() || live.peak().count > rules_.budget || (found_ && live.ticks() >= ticks_)) return;
      best_ = schedule;
      found_ = true;
      peak_ = live.peak().count;
      ticks_ = live.ticks();
    }

    void from_others() {
      const auto start = [&](const auto& strategy) {
        if (stop_()) return;
        const Schedule found = strategy.schedule(graph_, request_);
        const bool useful = found.size() > graph_.node_count() && simulate(graph_, found).valid;
        if (useful && (!request_.keep_order || keeps_order(graph_, found))) from(found, 1, work_ / 64);
      };
      start(MuTwo{});
      start(MinCut{});
      start(ChainDp{});
    }

    void take(const RecomputeSearch& search) {
      if (!search.live().valid()) return;
      const bool fits = search.fits();
      const std::int64_t peak = search.live().peak().count, ticks = search.live().ticks();
      const bool better = best_.empty() || (fits != found_ ? fits : fits ? ticks < ticks_ : peak < peak_);
      if (!better) return;
      best_ = search.live().schedule();
      found_ = fits;
      peak_ = peak;
      ticks_ = ticks;
    }

    void report(double share) const {
      if (request_.progress) request_.progress({"anneal", share, {peak_}, {static_cast<double>(ticks_) / facts_.ticks_per_us()}});
    }

    const StepGraph& graph_;
    const PlanRequest& request_;
    const Options& options_;
    ScheduleFacts facts_;
    StopSignal stop_;
    SearchRules rules_;
    std::uint64_t work_ = 0, spent_ = 0;
    Schedule best_;
    bool found_ = false;
    std::int64_t peak_ = 0, ticks_ = 0;
  };

  Options options_{};
};

static_assert(Strategy<Anneal>);

}  // namespace reprise
