// Random eager programs inside random budgets, under every eviction policy, with drops at random, and with everything dropped after every
// op: bit for bit what they are without.

#include <reprise_test/any_policy.hpp>
#include <reprise_test/guided.hpp>
#include <reprise_test/random_graphs.hpp>

#include <cstdio>
#include <cstdlib>

using namespace reprise;
using namespace reprise::testing;
using torch::Tensor;

namespace {

enum Kind : std::size_t {
  add, mul, mm, tanh_op, relu_in_place, exp_in_place, view_write, transposed, strided, dropout, noise, norm, split, layer_norm, cat, softmax,
  branch, host_fill, detached, forget, keep, reread, cumulative, shared_write, kinds
};

const char* const kind_names[] = {"add", "mul", "mm", "tanh", "relu_", "exp_", "view_write", "transposed", "strided", "dropout", "noise", "norm",
                                  "split", "layer_norm", "cat", "softmax", "branch", "host_fill", "detached", "forget", "keep", "reread",
                                  "cumulative", "shared_write"};

struct Action {
  Kind kind{};
  std::size_t a = 0, b = 0;
};

/// What a program is made of; whether it is the same in every step is a matter of luck.
struct Script {
  std::vector<Action> actions{};
  bool twice = false, penalty = false, update_between = false, accumulate = false;
};

Script random_script(Rng& rng) {
  Script script;
  script.actions.resize(4 + rng.below(12));
  for (std::size_t i = 0; i < script.actions.size(); ++i) {
    script.actions[i] = {static_cast<Kind>(rng.below(kinds)), rng.below(i + 1), rng.below(i + 1)};
    if (rng.chance(0.7)) script.actions[i].a = i;
  }
  script.twice = rng.chance(0.2);
  script.penalty = rng.chance(0.15);
  script.update_between = rng.chance(0.3);
  script.accumulate = rng.chance(0.2);
  return script;
}

/// What lives from step to step.
struct World {
  std::vector<Tensor> parameters{}, buffers{}, kept{};
  Tensor input{}, state{};
  std::vector<double> host{};

  explicit World(std::uint64_t seed) {
    torch::manual_seed(seed);
    parameters = {(torch::randn({8, 8}) * 0.3).requires_grad_(), torch::randn({8}).requires_grad_(), torch::randn({8}).requires_grad_()};
    buffers = {torch::zeros({8}), torch::ones({8})};
    input = torch::randn({4, 8});
    state = torch::randn({4, 8});
  }

  Tensor act(const Action& action, std::vector<Tensor>& pool) {
    const Tensor a = pool[action.a], b = pool[action.b];
    const auto& p = parameters;
    switch (action.kind) {
      case add: return a + b;
      case mul: return a * b * 0.5;
      case mm: return torch::mm(a, p[0]);
      case tanh_op: return torch::tanh(a);
      case relu_in_place: return (a + b).relu_();
      case exp_in_place: return (a * 0.1).exp_();
      case view_write: {
        Tensor h = (a + b).contiguous();
        h.narrow(0, 1, 2).mul_(0.25);
        h.view({-1}).narrow(0, 3, 5).add_(1);
        return h;
      }
      case transposed: return a.t().contiguous().t() + b.reshape({8, 4}).t().reshape({4, 8});
      case strided: {
        const Tensor h = (a * 2).contiguous();
        return h.as_strided({4, 8}, {8, 1}) + h.as_strided({4, 8}, {1, 4}) * 0.5;
      }
      case dropout: return torch::dropout(a, 0.4, true);
      case noise: return a * torch::rand_like(b);
      case norm: return torch::batch_norm(a, p[1], p[2], buffers[0], buffers[1], true, 0.1, 1e-5, false);
      case split: {
        const auto parts = torch::unsafe_split(a * 1.5, 4, 1);
        return torch::cat({parts[1], parts[0] * 2}, 1);
      }
      case layer_norm: return torch::layer_norm(a, {8}, p[1], p[2]);
      case cat: return torch::cat({a.narrow(1, 0, 4), b.narrow(1, 2, 4)}, 1);
      case softmax: return torch::softmax(a, 1) + b;
      case branch: {
        host.push_back(a.sum().item<double>());
        return host.back() > 0 ? torch::sigmoid(a) : a * a.mean();
      }
      case host_fill: {
        Tensor filled = torch::empty({4, 8});
        float* to = filled.data_ptr<float>();
        for (int i = 0; i < 32; ++i) to[i] = static_cast<float>(i % 5) * 0.3f;
        Tensor h = a * filled;
        for (int i = 0; i < 32; ++i) to[i] = 0.7f;  // through the pointer that was kept
        return h + filled;
      }
      case detached: return a.detach() * 0.5 + b;
      case forget: pool[action.b] = a; return a + 0;
      case keep: kept.push_back(a.detach()); return a * 1.25;
      case reread: return kept.empty() ? a.clone() : a + kept[action.b % kept.size()] * 0.1;
      case cumulative: return torch::cumsum(a, 1) * 0.2;
      case shared_write: {
        const Tensor whole = torch::cat({a, b}, 0);
        Tensor top = whole.narrow(0, 0, 4), bottom = whole.narrow(0, 4, 4);
        top.mul_(bottom.detach());
        return top + bottom;
      }
      case kinds: break;
    }
    return a;
  }

  void update() {
    const torch::NoGradGuard no_grad;
    for (Tensor& p : parameters)
      if (p.grad().defined()) p.sub_(p.grad().clamp(-1, 1) * 0.05);
  }

  void step(const Script& script) {
    kept.clear();
    if (!script.accumulate)
      for (Tensor& p : parameters) p.mutable_grad() = Tensor();
    std::vector<Tensor> pool{(input + state) * parameters[1]};
    for (const Action& action : script.actions) pool.push_back(act(action, pool));
    Tensor loss = torch::tanh(pool.back()).pow(2).mean() + torch::tanh(pool[pool.size() / 2]).sum() * 0.01;
    if (script.penalty) {
      const auto grads = torch::autograd::grad({loss}, {parameters[1]}, {}, true, true, true);
      if (grads[0].defined()) loss = loss + grads[0].pow(2).sum();
    }
    loss.backward({}, script.twice);
    Tensor out = pool.back().detach();
    if (script.twice) loss.backward();
    if (script.update_between) update();
    state = torch::tanh(out);  // read after the update
    update();
    host.push_back(loss.item<double>());
  }

  [[nodiscard]] std::vector<Tensor> everything() const {
    std::vector<Tensor> all = parameters;
    for (const Tensor& p : parameters) all.push_back(p.grad());
    all.insert(all.end(), buffers.begin(), buffers.end());
    all.insert(all.end(), kept.begin(), kept.end());
    all.push_back(state);
    all.push_back(torch::tensor(host, torch::kDouble));
    all.push_back(generator_state());
    return all;
  }
};

struct Coverage {
  std::size_t programs = 0, planned = 0, online = 0, recomputed = 0, moved = 0, threw = 0, entered = 0;
  std::vector<std::size_t> kind = std::vector<std::size_t>(kinds, 0);
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
      text += kind_names[action.kind] + std::string("(") + std::to_string(action.a) + "," + std::to_string(action.b) + ") ";
    text += std::string(script.twice ? "twice " : "") + (script.penalty ? "penalty " : "") + (script.update_between ? "update_between " : "") +
            (script.accumulate ? "accumulate" : "") + " | ";
  }
  return text;
}

/// One step. What autograd says where it refuses an in-place write: it must then say the same inside a budget.
std::string run_step(World& world, const Script& script) {
  try {
    world.step(script);
    return "";
  } catch (const c10::Error& error) {
    return std::string(error.what_without_backtrace()).substr(0, 60);
  }
}

void try_program(Rng& rng, Coverage& coverage) {
  const std::uint64_t seed = rng.below(1u << 30);
  const int steps = 4;
  std::vector<Script> scripts(1 + rng.below(2), random_script(rng));
  if (scripts.size() > 1) scripts[1] = random_script(rng);
  if (scripts.size() > 1 && rng.chance(0.5)) {  // a stream that begins the same
    scripts[1] = scripts[0];
    scripts[1].actions.push_back({static_cast<Kind>(rng.below(kinds)), scripts[0].actions.size(), 0});
  }
  for (const Script& script : scripts)
    for (const Action& action : script.actions) ++coverage.kind[action.kind];

  INFO(describe(scripts));
  World eager(seed);
  std::vector<Contents> expected;
  std::vector<std::string> throws;
  cpu_memory().reset_peak();
  const Bytes start = cpu_memory().live();
  for (int i = 0; i < steps; ++i) {
    torch::manual_seed(seed + static_cast<std::uint64_t>(i));
    throws.push_back(run_step(eager, scripts[static_cast<std::size_t>(i) % scripts.size()]));
    expected.push_back(contents(eager.everything()));
  }
  const Bytes took = cpu_memory().peak() - start;

  World ours(seed);
  std::size_t mode = rng.below(8);
  if (const char* forced = std::getenv("REPRISE_RANDOM_MODE")) mode = static_cast<std::size_t>(forced[0] - '0');
  AnyPolicy::Policies policy;
  MemoryBudgetOptions options{.planning = {.effort = 0.02}, .plan_in_background = false, .over_budget = OverBudget::go_on, .verify = true};
  if (mode == 1) policy = LargestFirst{};
  if (mode == 2) policy = LeastRecentlyUsed{};
  if (mode == 3) policy = NullEviction{};
  if (mode == 4) policy = EvictAtRandom{{}, 0.3, Rng{seed}};
  if (mode == 5) policy = EvictAtRandom{{}, 1, Rng{seed}};
  if (mode >= 4 && mode <= 6) options.max_plans = 0;
  const double share = 20 + static_cast<double>(rng.below(80));
  BasicMemoryBudget<AnyPolicy> budget{Budget(cpu_memory().live() + share_of(share, took)), options, AnyPolicy(policy)};
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
    INFO("differs: " << differing(now, expected[static_cast<std::size_t>(i)]) << "; " << budget.summary() << budget.last().left_because);
    REQUIRE((now == expected[static_cast<std::size_t>(i)]));
    const GuidedStepReport& last = budget.last();
    if (last.planned && last.left_because.empty() && last.predicted_peak > Bytes{0}) CHECK(last.peak == last.predicted_peak);
    if (!last.over_budget) REQUIRE(last.peak <= last.budget);
    coverage.threw += !threw.empty();
    coverage.recomputed += last.recomputed > 0;
    coverage.moved += last.moved > Bytes{0};
  }
  ++coverage.programs;
  coverage.planned += budget.counters().planned_steps > 0;
  coverage.online += budget.counters().online_steps > 1;
}

void try_programs(std::uint64_t seed, std::size_t count) {
  std::printf("random guided programs: seed %llu\n", static_cast<unsigned long long>(seed));
  Coverage coverage;
  const char* only = std::getenv("REPRISE_RANDOM_PROGRAM");  // to look at one alone
  for (std::size_t i = 0; i < count; ++i) {
    if (only != nullptr && std::to_string(i) != only) continue;
    INFO("seed " << seed << ", program " << i);
    Rng rng{seed * 1'000'003 + i};
    try_program(rng, coverage);
  }
  std::printf("  %zu programs: %zu followed a plan, %zu ran online, %zu steps recomputed, %zu moved out, %zu threw\n", coverage.programs,
              coverage.planned, coverage.online, coverage.recomputed, coverage.moved, coverage.threw);
  if (only != nullptr) return;
  CHECK(coverage.programs == count);
  CHECK(coverage.planned > count / 10);
  CHECK(coverage.online > count / 10);
  CHECK(coverage.recomputed > count / 2);
  CHECK(coverage.moved > 0);
  for (std::size_t k = 0; k < kinds; ++k) CHECK(coverage.kind[k] > 0);
}

}  // namespace

TEST_CASE("a thousand random programs are the same inside any budget, whatever is dropped", "[guided]") { try_programs(1, 1000); }

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
