#pragma once
// Portfolio runs all strategies that fit the limits, in parallel, and takes the best schedule.
//
// ```cpp
// Portfolio portfolio;
// auto report = portfolio.report(graph, {.budget = 2_GiB, .threads = 4});
// for (const auto& entry : report.entries) std::cout << entry.strategy << ' ' << entry.peak.count;
// ```
//
// The same seed gives the same plan whatever the number of threads: each strategy is deterministic,
// and ties go to the first.

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <reprise/graph/simulate.hpp>
#include <reprise/plan/concepts.hpp>
#include <reprise/plan/strategies/anneal.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>

namespace reprise::planning {

struct PortfolioReport {
  struct Entry {
    std::string strategy{};
    bool valid = false;
    Bytes peak{};
    Microseconds time{};
    double seconds = 0;
    Schedule schedule{};
  };
  std::vector<Entry> entries{};
  std::size_t best = 0;
};

class Portfolio {
 public:
  [[nodiscard]] std::string_view name() const { return "portfolio"; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    PortfolioReport found = report(graph, request);
    return std::move(found.entries[found.best].schedule);
  }

  [[nodiscard]] PortfolioReport report(const StepGraph& graph, const PlanRequest& request) const {
    std::vector<std::function<PortfolioReport::Entry(const PlanRequest&)>> tasks;
    const auto add = [&](const auto& strategy, std::uint64_t seed) {
      tasks.push_back([&graph, strategy, seed](const PlanRequest& timed) {
        return run(strategy, graph, timed, seed);
      });
    };
    add(Anneal{}, request.seed);
    add(MuTwoExact{}, request.seed);
    add(ChainDp{}, request.seed);
    add(MinCut{}, request.seed);
    add(MuTwo{}, request.seed);
    if (graph.node_count() <= 20) add(Exhaustive{}, request.seed);
    for (unsigned k = 1; k < request.threads && k < 8; ++k)
      add(Anneal{}, request.seed + std::uint64_t{1000} * k);
    PortfolioReport result;
    result.entries.resize(tasks.size());
    run_all(tasks, result.entries, started(request));
    for (std::size_t i = 1; i < result.entries.size(); ++i)
      if (better(result.entries[i], result.entries[result.best], request)) result.best = i;
    return result;
  }

 private:
  template <class S>
  static PortfolioReport::Entry run(const S& strategy, const StepGraph& graph, PlanRequest request,
                                    std::uint64_t seed) {
    request.seed = seed;
    request.progress = {};  // strategies on several threads would report mixed progress
    const auto begin = std::chrono::steady_clock::now();
    PortfolioReport::Entry e;
    e.strategy = strategy.name();
    e.schedule = strategy.schedule(graph, request);
    const Simulation s = simulate(graph, e.schedule);
    e.valid = s.valid && (!request.keep_order || keeps_order(graph, e.schedule));
    e.peak = s.peak;
    e.time = s.time;
    e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return e;
  }

  // Late strategies get the rest of their thread's time; the first ones leave some of it.
  template <class Tasks>
  static void run_all(const Tasks& tasks, std::vector<PortfolioReport::Entry>& entries,
                      const PlanRequest& request) {
    std::atomic<std::size_t> next{0};
    const std::size_t threads = std::clamp<std::size_t>(request.threads, 1, tasks.size());
    const auto work = [&](const PlanRequest& mine) {
      for (std::size_t i = next++; i < tasks.size(); i = next++) {
        const std::size_t rounds = (tasks.size() - i + threads - 1) / threads;
        entries[i] = tasks[i](rounds > 1 ? with_share(mine, 0.5) : mine);
      }
    };
    std::vector<std::jthread> pool;
    for (std::size_t t = 1; t < threads; ++t)
      pool.emplace_back([&] { work(started_anew(request)); });
    work(request);
  }

  static bool better(const PortfolioReport::Entry& a, const PortfolioReport::Entry& b,
                     const PlanRequest& request) {
    if (a.valid != b.valid) return a.valid;
    const bool a_fits = a.peak <= request.budget, b_fits = b.peak <= request.budget;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.time < b.time : a.peak < b.peak;
  }
};

static_assert(Strategy<Portfolio>);

}  // namespace reprise::planning

namespace reprise {
using planning::Portfolio;
}  // namespace reprise
