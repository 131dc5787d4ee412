#pragma once
// Loops as people write them, and as nobody should, under every way in which a budget can be
// carried out:
//
//   check_wild([] { return Program{.step = …, .state = …}; });
//
// runs the program eagerly, then without limit, planned at F + 70, 50, 30 and 10 % of (E - F),
// online at 50 and 25 %, with everything evicted after every op, and with evictions at random; the
// last three also with `verify`. After every step, everything that `state` returns must be equal to
// eager's, bit for bit, and the peak within the budget unless the report says otherwise.
//
//   REPRISE_WILD_MODE=online   runs only the modes whose name contains this

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include <reprise_test/any_policy.hpp>
#include <reprise_test/guided.hpp>

namespace reprise::testing {

/// One way of carrying a budget out.
struct WildMode {
  std::string name{};
  double share = 0;  ///< the budget is F + share % of (E - F); 0: no limit
  bool plans = false;
  bool verify = false;
  AnyPolicy::Policies policy{};
};

[[nodiscard]] inline std::vector<WildMode> wild_modes() {
  std::vector<WildMode> modes{{.name = "no limit", .plans = true}};
  for (const double share : {70., 50., 30., 10.})
    modes.push_back({.name = "planned " + std::to_string(static_cast<int>(share)) + " %",
                     .share = share,
                     .plans = true});
  for (const double share : {50., 25.})
    modes.push_back(
        {.name = "online " + std::to_string(static_cast<int>(share)) + " %", .share = share});
  const AnyPolicy::Policies everything = EvictAtRandom{{}, 1, Rng{1}};
  modes.push_back({.name = "everything evicted", .policy = everything});
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    modes.push_back({.name = "random evictions, seed " + std::to_string(seed),
                     .policy = EvictAtRandom{{}, 0.3, Rng{seed}}});
  modes.push_back({.name = "verify, planned 50 %", .share = 50, .plans = true, .verify = true});
  modes.push_back({.name = "verify, online 50 %", .share = 50, .verify = true});
  modes.push_back({.name = "verify, everything evicted", .verify = true, .policy = everything});
  modes.push_back({.name = "verify, random evictions",
                   .verify = true,
                   .policy = EvictAtRandom{{}, 0.3, Rng{5}}});
  return modes;
}

struct WildOptions {
  int steps = 4;
  /// a Reprise error that says this ends the mode, and is no failure
  std::optional<std::string> error{};
  MemoryBudgetOptions options{};  ///< what the modes do not set
  /// the peak is compared with the budget and the prediction
  bool within_budget = true;
};

/// What one mode did; empty steps where it was not run.
struct WildOutcome {
  WildMode mode{};
  std::vector<GuidedStepReport> steps{};
  MemoryBudgetCounters counters{};
  std::string error{};  ///< what a step threw
};

inline WildOutcome run_wild(const std::function<Program()>& make, const Reference& expected,
                            const WildMode& mode, const WildOptions& wild) {
  WildOutcome outcome{.mode = mode};
  Program program = make();
  const Bytes start = device_memory().live();
  Bytes bytes = 1024_GiB;
  if (mode.share > 0)
    bytes = start - expected.start + expected.floor +
            share_of(mode.share, expected.eager - expected.floor);
  MemoryBudgetOptions options = wild.options;
  options.run.planner = plan_once;
  options.plan_in_background = false;
  options.over_budget = OverBudget::go_on;
  options.run.verify_every = mode.verify ? 1 : 0;
  if (!mode.plans) options.run.max_plans = 0;
  BasicMemoryBudget<AnyPolicy> budget{Budget(bytes), options, AnyPolicy(mode.policy)};
  for (std::size_t i = 0; i < expected.states.size(); ++i) {
    INFO("mode '" << mode.name << "', step " << i);
    torch::manual_seed(50 + i);
    try {
      auto step = budget.step();
      program.step(static_cast<int>(i));
      step.finish();
    } catch (const Error& error) {
      outcome.error = error.what();
      INFO(outcome.error);
      CHECK((wild.error && outcome.error.find(*wild.error) != std::string::npos));
      return outcome;
    }
    if (program.after) program.after(static_cast<int>(i));
    const GuidedStepReport& last = budget.last();
    outcome.steps.push_back(last);
    INFO("peak " << last.peak.count << ", predicted " << last.predicted_peak.count << ", budget "
                 << last.budget.count << ", floor " << last.floor.count << "; " << last.divergence);
    const bool equal = contents(program.state()) == expected.states[i];
    CHECK(equal);
    if (!equal) return outcome;
    if (!program.alone || !wild.within_budget) continue;
    if (!last.over_budget) CHECK(last.peak <= last.budget);
    if (last.planned && last.divergence.empty() && last.predicted_peak > 0_B)
      CHECK(last.peak == last.predicted_peak);
  }
  outcome.counters = budget.counters();
  return outcome;
}

/// Under every mode; what each did, for assertions of the test's own.
inline std::vector<WildOutcome> check_wild(const std::function<Program()>& make,
                                           const WildOptions& wild = {}) {
  const auto seeded = [&] {
    torch::manual_seed(7);
    return make();
  };
  const Reference expected = reference(seeded, wild.steps);
  const char* only = std::getenv("REPRISE_WILD_MODE");
  std::vector<WildOutcome> outcomes;
  for (const WildMode& mode : wild_modes())
    if (only == nullptr || mode.name.find(only) != std::string::npos)
      outcomes.push_back(run_wild(seeded, expected, mode, wild));
  return outcomes;
}

/// A stack whose loss also depends on what `extra` makes of the last hidden state in a step; `kept`
/// is compared too.
inline Program stack_with(const std::function<Tensor(const Tensor& h, int step)>& extra,
                          std::vector<Tensor> kept = {}) {
  auto stack = std::make_shared<Stack>(4);
  auto optimizer = std::make_shared<torch::optim::SGD>(stack->layers->parameters(),
                                                       torch::optim::SGDOptions(0.01));
  auto loss = std::make_shared<Tensor>();
  const Tensor x = torch::randn({128, 64});
  return {[=](int i) {
            optimizer->zero_grad();
            const Tensor h = stack->forward(x, gelu);
            Tensor now = h.pow(2).mean() + extra(h, i).mean() * h.mean();
            now.backward();
            optimizer->step();
            *loss = now.detach();
          },
          [=] {
            std::vector<Tensor> all = all_of(*stack->layers);
            all.insert(all.end(), kept.begin(), kept.end());
            all.push_back(*loss);
            return all;
          }};
}

}  // namespace reprise::testing
