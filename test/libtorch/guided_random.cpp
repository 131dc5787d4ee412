// Random eager programs inside random budgets, under every eviction policy, with drops at random,
// and with everything dropped after every op: bit for bit what they are without.

#include <reprise_test/any_policy.hpp>
#include <reprise_test/guided.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/random_program.hpp>

#include <cstdio>
#include <cstdlib>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

struct Coverage {
  std::size_t programs = 0, planned = 0, online = 0, recomputed = 0, moved = 0, threw = 0,
              entered = 0;
  std::vector<std::size_t> kind = std::vector<std::size_t>(all_kinds, 0);
};

/// Which of everything() differ, for whoever has to find out why.
std::string differing(const Contents& a, const Contents& b) {
  std::string places;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] != b[i]) places += " " + std::to_string(i);
  return places + " of " + std::to_string(a.size()) + " and " + std::to_string(b.size());
}

std::string describe(const std::vector<Script>& scripts) {
  std::string text;
  for (const Script& script : scripts) {
    for (const Action& action : script.actions)
      text += kind_names[action.kind] + std::string("(") + std::to_string(action.a) + "," +
              std::to_string(action.b) + ") ";
    text += std::string(script.twice ? "twice " : "") + (script.penalty ? "penalty " : "") +
            (script.update_between ? "update_between " : "") +
            (script.accumulate ? "accumulate" : "") + " | ";
  }
  return text;
}

/// One step. What autograd says where it refuses an in-place write: it must then say the same
/// inside a budget.
std::string run_step(World& world, const Script& script) {
  const ResetSwitches as_before;
  try {
    world.step(script);
    return "";
  } catch (const c10::Error& error) {
    return std::string(error.what_without_backtrace()).substr(0, 60);
  }
}

void try_program(Rng& rng, Coverage& coverage, Draw draw = Draw::tame) {
  const std::uint64_t seed = rng.below(1u << 30);
  const int steps = 4;
  const bool large = draw == Draw::wild ? rng.chance(0.3) : seed % 20 == 0;
  const std::int64_t rows = large ? 2048 : 4;  // 64 KiB each: whole pages, which can be spilled
  std::vector<Script> scripts(1 + rng.below(2), random_script(rng, draw));
  if (scripts.size() > 1) scripts[1] = random_script(rng, draw);
  if (scripts.size() > 1 && rng.chance(0.5)) {  // a stream that begins the same
    scripts[1] = scripts[0];
    scripts[1].actions.push_back({random_kind(rng, draw), scripts[0].actions.size(), 0});
  }
  for (const Script& script : scripts)
    for (const Action& action : script.actions) ++coverage.kind[action.kind];

  INFO(describe(scripts));
  World eager(seed, rows);
  std::vector<Contents> expected;
  std::vector<std::string> throws;
  device_memory().reset_peak();
  const Bytes start = device_memory().live();
  for (int i = 0; i < steps; ++i) {
    torch::manual_seed(seed + static_cast<std::uint64_t>(i));
    throws.push_back(run_step(eager, scripts[static_cast<std::size_t>(i) % scripts.size()]));
    expected.push_back(contents(eager.everything()));
  }
  const Bytes took = device_memory().peak() - start;

  World ours(seed, rows);
  std::size_t mode = rng.below(8);
  if (const char* forced = std::getenv("REPRISE_RANDOM_MODE"))
    mode = static_cast<std::size_t>(forced[0] - '0');
  AnyPolicy::Policies policy;
  MemoryBudgetOptions options{.run = {.planning = {.effort = 0.02}, .verify_every = 1},
                              .plan_in_background = false,
                              .over_budget = OverBudget::go_on};
  if (mode == 1) policy = LargestFirst{};
  if (mode == 2) policy = LeastRecentlyUsed{};
  if (mode == 3) policy = NullEviction{};
  if (mode == 4) policy = EvictAtRandom{{}, 0.3, Rng{seed}};
  if (mode == 5) policy = EvictAtRandom{{}, 1, Rng{seed}};
  if (mode >= 4 && mode <= 6) options.run.max_plans = 0;
  const double share = 20 + static_cast<double>(rng.below(80));
  BasicMemoryBudget<AnyPolicy> budget{Budget(device_memory().live() + share_of(share, took)),
                                      options, AnyPolicy(policy)};
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i << ", mode " << mode << ", " << share << " %");
    torch::manual_seed(seed + static_cast<std::uint64_t>(i));
    std::string threw;
    {
      auto step = budget.step();
      threw = run_step(ours, scripts[static_cast<std::size_t>(i) % scripts.size()]);
    }
    REQUIRE(threw == throws[static_cast<std::size_t>(i)]);
    const Contents now = contents(ours.everything());
    INFO("differs: " << differing(now, expected[static_cast<std::size_t>(i)]) << "; "
                     << budget.summary() << budget.last().divergence);
    REQUIRE((now == expected[static_cast<std::size_t>(i)]));
    const GuidedStepReport& last = budget.last();
    if (last.planned && last.divergence.empty() && last.predicted_peak > Bytes{0})
      CHECK(last.peak == last.predicted_peak);
    if (!last.over_budget) REQUIRE(last.peak <= last.budget);
    coverage.threw += !threw.empty();
    coverage.recomputed += last.recomputed > 0;
    coverage.moved += last.moved > Bytes{0};
  }
  ++coverage.programs;
  coverage.planned += budget.counters().planned_steps > 0;
  coverage.online += budget.counters().online_steps > 1;
}

void try_programs(std::uint64_t seed, std::size_t count, Draw draw = Draw::tame) {
  std::printf("random %s programs: seed %llu\n", draw == Draw::wild ? "wild" : "guided",
              static_cast<unsigned long long>(seed));
  Coverage coverage;
  const char* only = std::getenv("REPRISE_RANDOM_PROGRAM");  // to look at one alone
  for (std::size_t i = 0; i < count; ++i) {
    if (only != nullptr && std::to_string(i) != only) continue;
    INFO("seed " << seed << ", program " << i);
    Rng rng{seed * 1'000'003 + i};
    try_program(rng, coverage, draw);
  }
  std::printf(
      "  %zu programs: %zu followed a plan, %zu ran online, %zu steps recomputed, %zu moved out, "
      "%zu threw\n",
      coverage.programs, coverage.planned, coverage.online, coverage.recomputed, coverage.moved,
      coverage.threw);
  if (only != nullptr) return;
  CHECK(coverage.programs == count);
  CHECK(coverage.planned > count / 10);
  CHECK(coverage.online > count / 10);
  CHECK(coverage.recomputed > count / 2);
  CHECK(coverage.moved > 0);
  for (std::size_t k = 0; k < (draw == Draw::wild ? all_kinds : tame_kinds); ++k)
    CHECK((coverage.kind[k] > 0) == is_drawn(static_cast<Kind>(k)));
}

}  // namespace

TEST_CASE("a thousand random programs are the same inside any budget, whatever is dropped",
          "[guided]") {
  try_programs(1, 1000);
}

TEST_CASE("two hundred wild programs are the same inside any budget", "[guided][wild]") {
  try_programs(7, 200, Draw::wild);
}

TEST_CASE("numbers that autograd keeps are part of the peak", "[guided]") {
  Coverage coverage;
  Rng rng{11 * 1'000'003 + 169};  // a gradient penalty whose peak has three of them
  try_program(rng, coverage);
  CHECK(coverage.planned == 1);
}

TEST_CASE("ten thousand more", "[.full][guided]") {
  const char* seed = std::getenv("REPRISE_RANDOM_SEED");
  try_programs(seed != nullptr ? std::strtoull(seed, nullptr, 10) : std::random_device{}(), 10'000);
}

TEST_CASE("twenty thousand wild ones", "[.full][guided][wild]") {
  const char* seed = std::getenv("REPRISE_RANDOM_SEED");
  const char* count = std::getenv("REPRISE_RANDOM_COUNT");
  try_programs(seed != nullptr ? std::strtoull(seed, nullptr, 10) : std::random_device{}(),
               count != nullptr ? std::strtoull(count, nullptr, 10) : 20'000, Draw::wild);
}
