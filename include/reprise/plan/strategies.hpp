#pragma once
// Chooses strategies by name: the same names in flags, plan files and tables.
//
//   Plan plan = plan_with("min-cut", graph, {.budget = 2_GiB});
//   Planner<ByteCost, AnyStrategy> planner{AnyStrategy{name}};        the same choice as a model of Strategy

#include <algorithm>
#include <array>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <reprise/plan/planner.hpp>
#include <reprise/plan/strategies/anneal.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>
#include <reprise/plan/strategies/portfolio.hpp>

namespace reprise::planning {

inline constexpr std::array<std::string_view, 7> strategy_names{
    "mu-two", "mu-two-exact", "min-cut", "chain-dp", "anneal", "exhaustive", "portfolio"};

/// Throws Errc::bad_argument for a name that is not in strategy_names.
inline void check_strategy(std::string_view name) {
  if (std::find(strategy_names.begin(), strategy_names.end(), name) != strategy_names.end()) return;
  std::string known;
  for (const std::string_view other : strategy_names)
    known += (known.empty() ? "" : ", ") + std::string(other);
  throw Error(Errc::bad_argument,
              "strategy '" + std::string(name) + "': unknown; there are " + known);
}

/// A Strategy that is chosen at run time: one of strategy_names, or any other model of the concept.
/// "anneal" by default.
class AnyStrategy {
 public:
  AnyStrategy() : AnyStrategy(Anneal{}) {}
  template <Strategy S>
  requires(!std::same_as<S, AnyStrategy>) explicit AnyStrategy(S strategy)
      : name_(strategy.name()),
        schedule_([strategy = std::move(strategy)](const StepGraph& graph,
                                                   const PlanRequest& request) -> Schedule {
          return strategy.schedule(graph, request);
        }) {}
  /// Throws Errc::bad_argument for a name that is not in strategy_names.
  explicit AnyStrategy(std::string_view name) : AnyStrategy(by_name(name)) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    return schedule_(graph, request);
  }

 private:
  static AnyStrategy by_name(std::string_view name) {
    check_strategy(name);
    if (name == "mu-two") return AnyStrategy(MuTwo{});
    if (name == "mu-two-exact") return AnyStrategy(MuTwoExact{});
    if (name == "min-cut") return AnyStrategy(MinCut{});
    if (name == "chain-dp") return AnyStrategy(ChainDp{});
    if (name == "anneal") return AnyStrategy(Anneal{});
    if (name == "exhaustive") return AnyStrategy(Exhaustive{});
    return AnyStrategy(Portfolio{});
  }

  std::string name_;
  std::function<Schedule(const StepGraph&, const PlanRequest&)> schedule_;
};
static_assert(Strategy<AnyStrategy>);

/// Throws Errc::bad_argument for a name that is not in strategy_names.
[[nodiscard]] inline Plan plan_with(std::string_view name, const StepGraph& graph,
                                    const PlanRequest& request) {
  return Planner<MeasuredCost, AnyStrategy>{AnyStrategy(name)}.plan(graph, request);
}

}  // namespace reprise::planning

namespace reprise {
using planning::AnyStrategy;
using planning::plan_with;
using planning::strategy_names;
}  // namespace reprise
