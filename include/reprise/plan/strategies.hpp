#pragma once
// Strategies by name: the same names in flags, plan files and tables.
//
// ```cpp
// Plan plan = plan_with("min-cut", graph, {.budget = 2_GiB});
// ```

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <reprise/plan/planner.hpp>
#include <reprise/plan/strategies/anneal.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>
#include <reprise/plan/strategies/portfolio.hpp>

namespace reprise {

inline constexpr std::array<std::string_view, 7> strategy_names{
    "mu-two", "mu-two-exact", "min-cut", "chain-dp", "anneal", "exhaustive", "portfolio"};

/// Throws Errc::bad_argument for a name that is none of strategy_names.
inline void check_strategy(std::string_view name) {
  if (std::find(strategy_names.begin(), strategy_names.end(), name) != strategy_names.end()) return;
  std::string known;
  for (const std::string_view other : strategy_names)
    known += (known.empty() ? "" : ", ") + std::string(other);
  throw Error(Errc::bad_argument,
              "strategy '" + std::string(name) + "': unknown; there are " + known);
}

/// Throws Errc::bad_argument for a name that is none of strategy_names.
[[nodiscard]] inline Plan plan_with(std::string_view name, const StepGraph& graph,
                                    const PlanRequest& request) {
  check_strategy(name);
  const auto run = [&](auto strategy) {
    return Planner<MeasuredCost, decltype(strategy)>{strategy}.plan(graph, request);
  };
  if (name == "mu-two") return run(MuTwo{});
  if (name == "mu-two-exact") return run(MuTwoExact{});
  if (name == "min-cut") return run(MinCut{});
  if (name == "chain-dp") return run(ChainDp{});
  if (name == "anneal") return run(Anneal{});
  if (name == "exhaustive") return run(Exhaustive{});
  return run(Portfolio{});
}

}  // namespace reprise
