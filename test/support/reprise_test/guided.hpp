#pragma once
// Training programs inside a budget, compared with what they do without one: bit for bit, at the
// predicted peak.
//
//   check_planned([] { return stack_program([](Tensor h, int) { return torch::gelu(h); }); });
//
// runs the program eagerly, then inside F + q (E - F) for several q and at the least budget that a
// plan is found for (E: what it takes without a budget, F: the floor), five steps each; compares
// everything that it leaves after each step; and checks how: planned from the second step on, with
// ops that run again, nothing moved out.

#include "models/task.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/libtorch/memory_budget.hpp>
#include <reprise/plan/cost_models/byte_cost.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise_test/eager.hpp>

namespace reprise::testing {

using namespace planning;

using namespace reprise::literals;
using torch::Tensor;

/// A training program: `step` is what a user's loop body would be, `state` all that must come out
/// the same.
struct Program {
  std::function<void(int)> step{};
  std::function<std::vector<Tensor>()> state{};
  std::function<void(int)> after{};  ///< between the steps, outside of the scope
  /// false: threads that are not part of the step allocate as well, so that its peak is not known
  bool alone = true;
};

/// Contents outside LibTorch's allocator, so that remembering them changes no peak.
using Contents = std::vector<std::vector<std::byte>>;

inline Contents contents(const std::vector<Tensor>& tensors) {
  Contents all;
  for (const Tensor& t : tensors) {
    if (!t.defined()) continue;
    const Tensor plain = t.detach().contiguous();
    const auto* bytes = static_cast<const std::byte*>(plain.const_data_ptr());
    all.emplace_back(bytes, bytes + plain.nbytes());
  }
  return all;
}

struct Reference {
  std::vector<Contents> states{};
  Bytes start{}, eager{}, floor{}, smallest{};
  /// what it takes where everything goes after its last use, and nothing is computed again
  Bytes own{};
};

/// Prices that no load changes: with measured ones every run of a test would get another plan.
inline Plan plan_by_bytes(const StepGraph& graph, const PlanRequest& request) {
  return Planner<ByteCost, Anneal>{}.plan(graph, request);
}

/// What a plan by bytes depends on, besides the request.
inline std::string plan_key(const StepGraph& graph) {
  std::string key = graph_hash(graph);
  for (const NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    key += ' ' + std::to_string(node.workspace.count) + ' ' +
           std::to_string(static_cast<int>(node.phase)) +
           (node.forward.valid() ? ' ' + std::to_string(node.forward.index) : "");
  }
  for (const Value& v : graph.values()) key += ' ' + std::to_string(static_cast<int>(v.role));
  return key;
}

/// plan_by_bytes() with little work, and the same question is answered once: programs whose steps
/// are the same, all ways to carry one budget out, and a second look when times are known ask for
/// the same plans, and searching for them is what took nearly all of the time.
inline Plan plan_once(const StepGraph& graph, const PlanRequest& request) {
  struct Known {
    std::mutex guard{};
    std::map<std::string, Plan> plans{};
  };
  static auto& known = *new Known;
  PlanRequest little = request;
  little.effort = std::min(request.effort, 0.02);
  const bool plain = request.keep.empty() && request.recompute.empty();
  const std::string key = std::to_string(request.budget.count) + ' ' +
                          std::to_string(request.seed) + ' ' + std::to_string(little.effort) +
                          (request.keep_order ? " in order " : " ") + plan_key(graph);
  const std::lock_guard lock(known.guard);
  if (const auto it = known.plans.find(key); plain && it != known.plans.end()) return it->second;
  Plan plan = plan_by_bytes(graph, little);
  if (plain && !request.cancel.stop_requested()) known.plans.emplace(key, plan);
  return plan;
}

/// As a share: the least budget that a plan is found for.
inline constexpr double least = -1;

/// The program as it is, and under a budget that is never reached: what it takes, and what it
/// cannot go below.
inline Reference reference(const std::function<Program()>& make, int steps,
                           bool find_least = false) {
  Reference result;
  {
    Program program = make();
    for (int i = 0; i < steps; ++i) {
      torch::manual_seed(static_cast<std::uint64_t>(50 + i));
      program.step(i);
      if (program.after) program.after(i);
      result.states.push_back(contents(program.state()));
    }
  }
  Program program = make();
  MemoryBudget budget{1024_GiB, {.run = {.planner = plan_once}, .plan_in_background = false}};
  result.start = device_memory().live();
  for (int i = 0; i < steps; ++i) {
    torch::manual_seed(static_cast<std::uint64_t>(50 + i));
    {
      auto step = budget.step();
      program.step(i);
    }
    if (program.after) program.after(i);
    result.eager = std::max(result.eager, budget.last().eager_peak);
    result.floor = std::max(result.floor, budget.last().floor);
  }
  if (find_least) {
    const StepGraph& graph = budget.graph();
    result.own = budget.last().base + simulate(graph, own_order(graph)).peak - start_bytes(graph);
    result.smallest = budget.advise().smallest;
  }
  return result;
}

struct Outcome {
  MemoryBudgetCounters counters{};
  std::vector<GuidedStepReport> steps{};
  Bytes budget{}, start{};
};

/// The program inside F + share (E - F), compared with the reference after every step.
template <EvictionPolicy Policy = CostSizeStaleness>
Outcome run_inside(const std::function<Program()>& make, const Reference& expected, double share,
                   bool plans = true) {
  Outcome outcome;
  Program program = make();
  const Bytes start = outcome.start = device_memory().live();
  const Bytes savable = expected.eager - expected.floor;
  outcome.budget = start - expected.start +
                   (share == least ? expected.smallest + share_of(3, savable)
                                   : expected.floor + share_of(share, savable));
  BasicMemoryBudget<Policy> budget{Budget(outcome.budget),
                                   {.run = {.planner = plan_once},
                                    .plan_in_background = !plans,
                                    .over_budget = OverBudget::go_on}};
  for (std::size_t i = 0; i < expected.states.size(); ++i) {
    INFO("step " << i << " at " << share << " %");
    torch::manual_seed(50 + i);
    {
      auto step = budget.step();
      program.step(static_cast<int>(i));
    }
    if (program.after) program.after(static_cast<int>(i));
    outcome.steps.push_back(budget.last());
    const GuidedStepReport& last = budget.last();
    INFO("peak " << last.peak.count << " predicted " << last.predicted_peak.count << " budget "
                 << last.budget.count << " " << last.divergence);
    CHECK((contents(program.state()) == expected.states[i]));
    if (!program.alone) continue;
    if (!last.over_budget) CHECK(last.peak <= last.budget);
    if (last.planned && last.divergence.empty() && last.predicted_peak > 0_B)
      CHECK(last.peak == last.predicted_peak);
  }
  outcome.counters = budget.counters();
  return outcome;
}

/// At several budgets: planned from the second step on, with recomputation, nothing moved out.
/// `Policy`: of the steps before.
template <EvictionPolicy Policy = CostSizeStaleness>
void check_planned(const std::function<Program()>& make,
                   std::initializer_list<double> shares = {70, 50, 35, least}, int steps = 5,
                   int online = 1) {
  const Reference expected = reference(make, steps, true);
  for (double share : shares) {
    INFO(share << " %");
    const Outcome outcome = run_inside<Policy>(make, expected, share);
    CHECK(outcome.counters.planned_steps >= steps - online);
    std::int64_t again = 0;
    for (std::size_t i = static_cast<std::size_t>(online); i < outcome.steps.size(); ++i) {
      again += outcome.steps[i].recomputed;
      CHECK(outcome.steps[i].moved == 0_B);
      CHECK_FALSE(outcome.steps[i].over_budget);
    }
    const bool must = outcome.budget - outcome.start < expected.own - expected.start;
    if (must || share == least) CHECK(again > 0);
  }
}

/// At several budgets: the same bits, and inside the budget wherever one op's own tensors are. How
/// is left open: the stream may be new in every step.
inline void check_equal(const std::function<Program()>& make,
                        std::initializer_list<double> shares = {70, 50, 35, least}, int steps = 5) {
  const Reference expected =
      reference(make, steps, std::ranges::find(shares, least) != shares.end());
  for (double share : shares) static_cast<void>(run_inside(make, expected, share));
}

inline std::vector<Tensor> all_of(const torch::nn::Module& module) {
  std::vector<Tensor> tensors = module.parameters();
  for (const Tensor& p : module.parameters()) tensors.push_back(p.grad());
  for (const Tensor& b : module.buffers()) tensors.push_back(b);
  return tensors;
}

/// A model's loop; an optimizer without state unless one is asked for.
inline Program train(std::string_view name, std::optional<OptimizerKind> kind = std::nullopt) {
  auto task = std::make_shared<models::Task>(models::make(name, models::Config::tiny));
  std::shared_ptr<torch::optim::Optimizer> optimizer =
      kind ? std::shared_ptr<torch::optim::Optimizer>(
                 make_optimizer(*kind, task->module->parameters()))
           : std::make_shared<torch::optim::SGD>(task->module->parameters(),
                                                 torch::optim::SGDOptions(0.01));
  auto loss = std::make_shared<Tensor>();
  auto batches = std::make_shared<std::vector<std::vector<Tensor>>>();
  for (int i = 0; i < 5; ++i) batches->push_back(task->make_batch(i));
  return {[=](int i) {
            optimizer->zero_grad();
            Tensor now = task->loss(batches->at(static_cast<std::size_t>(i)));
            now.backward();
            optimizer->step();
            *loss = now.detach();
          },
          [=] {
            std::vector<Tensor> tensors = all_of(*task->module);
            tensors.push_back(*loss);
            tensors.push_back(generator_state());
            return tensors;
          }};
}

/// A stack of linear layers with what `between` does after each, trained by plain steps.
struct Stack {
  torch::nn::Sequential layers{};
  explicit Stack(int depth = 6, int width = 64) {
    torch::manual_seed(1);
    for (int i = 0; i < depth; ++i) layers->push_back(torch::nn::Linear(width, width));
  }
  Tensor forward(Tensor x, const std::function<Tensor(Tensor, int)>& between) {
    int i = 0;
    for (auto& layer : *layers) x = between(layer.forward(x), i++);
    return x;
  }
};

/// The plainest thing to do between two layers of a stack.
inline Tensor gelu(Tensor h, int /*layer*/) { return torch::gelu(h); }

/// A stack in training, one call a step.
struct StackLoop {
  Stack stack{};
  torch::optim::SGD optimizer{stack.layers->parameters(), torch::optim::SGDOptions(0.01)};
  Tensor x = torch::randn({256, 64});

  void operator()() {
    optimizer.zero_grad();
    stack.forward(x, gelu).pow(2).mean().backward();
    optimizer.step();
  }
  template <class AnyBudget>
  void inside(AnyBudget& budget) {
    auto step = budget.step();
    (*this)();
  }
};

inline Program stack_program(const std::function<Tensor(Tensor, int)>& between,
                             const std::function<void(Stack&, Tensor, int)>& loop = {}) {
  auto stack = std::make_shared<Stack>();
  auto optimizer = std::make_shared<torch::optim::SGD>(stack->layers->parameters(),
                                                       torch::optim::SGDOptions(0.01));
  const Tensor x = torch::randn({256, 64});
  return {[=](int i) {  // as long as there is no other loop: the plainest one
            if (loop) return loop(*stack, x, i);
            optimizer->zero_grad();
            stack->forward(x, between).pow(2).mean().backward();
            optimizer->step();
          },
          [=] { return all_of(*stack->layers); }};
}

}  // namespace reprise::testing
