// Every stage of the pipeline replaced at once: a TrainStep and a MemoryBudget that are made of
// stages of one's own. docs/policies/pipeline.md shows it.

#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>
#include <reprise/libtorch.hpp>

namespace mine {

using namespace reprise;

// How often each stage was asked.
std::map<std::string, std::int64_t>& calls() {
  static std::map<std::string, std::int64_t> counts;
  return counts;
}

// 1. The adapter: Boost.Graph sees the step through GraphAdapter, and this analysis looks for
// whatever it wants in it before anything is planned.
struct Analysis {
  StepAnalysis analyse(const StepGraph& graph) const {
    ++calls()["analysis"];
    const GraphAdapter adapter{graph};
    if (num_vertices(adapter) != graph.node_count()) std::abort();
    return reprise::analyse(graph);
  }
};

// 2. The profiler's policies: how long an op takes, and what it holds.
struct Clock : SteadyTimer {
  void begin_run(std::size_t n) {
    ++calls()["timer"];
    SteadyTimer::begin_run(n);
  }
};
struct Probe : AllocatorProbe {
  Bytes end_run() {
    ++calls()["memory probe"];
    return AllocatorProbe::end_run();
  }
};

// 3. The planner's policies: what a node costs, and which nodes run again.
struct Cost {
  Microseconds time(const StepGraph& graph, NodeId n) const {
    ++calls()["cost model"];
    return graph.node(n).time + Microseconds{1};  // and a microsecond for the launch
  }
};
struct Search {
  static std::string_view name() { return "mine"; }
  Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    ++calls()["strategy"];
    return Anneal{}.schedule(graph, request);
  }
};

// 4. The rewriter's policies: who compiles the program, and where its blocks lie.
struct Memory : ArenaMemory {
  void start(const ArenaLayout& layout) {
    ++calls()["step memory"];
    ArenaMemory::start(layout);
  }
};
struct Backend : LibTorchBackend<Memory> {
  using LibTorchBackend<Memory>::LibTorchBackend;
  Program compile(CapturedStep& step, const Rewriting& rewriting) const {
    ++calls()["backend"];
    return LibTorchBackend<Memory>::compile(step, rewriting);
  }
  Program compile(const StepGraph& graph, const Rewriting& rewriting) const {
    return LibTorchBackend<Memory>::compile(graph, rewriting);
  }
};

using Pipeline =
    reprise::Pipeline<Profiler<Clock, Probe>, Planner<Cost, Search>, Rewriter<Backend>, Analysis>;

}  // namespace mine

namespace {

struct Net : torch::nn::Module {
  torch::nn::ModuleList layers;
  Net() {
    register_module("layers", layers);
    for (int i = 0; i < 8; ++i) layers->push_back(torch::nn::Linear(64, 64));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& layer : *layers) x = torch::gelu(layer->as<torch::nn::Linear>()->forward(x));
    return x.pow(2).mean();
  }
};

// Four steps of `run`, and what the parameters are then.
template <class Run>
std::vector<torch::Tensor> train(const std::shared_ptr<Net>& net, const Run& run) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int i = 0; i < 4; ++i) {
    optimizer.zero_grad();
    run(torch::ones({256, 64}));
    optimizer.step();
  }
  std::vector<torch::Tensor> weights;
  for (const torch::Tensor& p : net->parameters()) weights.push_back(p.detach().clone());
  return weights;
}

std::shared_ptr<Net> net() {
  torch::manual_seed(1);
  return std::make_shared<Net>();
}

bool same_bits(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!torch::equal(a[i], b[i])) return false;
  return true;
}

// What each stage was asked, and whether all of them were.
bool were_called(const std::vector<std::string>& stages) {
  bool all = true;
  for (const std::string& stage : stages) {
    const std::int64_t count = mine::calls()[stage];
    std::cout << "  " << stage << ": " << (count > 0 ? "called" : "NEVER CALLED") << '\n';
    all = all && count > 0;
  }
  mine::calls().clear();
  return all;
}

}  // namespace

int main() {
  bool fine = true;
  const reprise::RunOptions little_effort{.planning = {.effort = 0.02}};
  const auto eager_net = net();
  const auto eager =
      train(eager_net, [&](const torch::Tensor& x) { eager_net->forward(x).backward(); });

  const auto compiled_net = net();
  reprise::TrainStep step{
      compiled_net,
      [&](const torch::Tensor& x) { return compiled_net->forward(x); },
      {.budget = reprise::Budget::savable(50), .run = little_effort, .recheck = false},
      mine::Pipeline{}};
  const auto compiled = train(compiled_net, [&](const torch::Tensor& x) { step(x); });
  std::cout << "TrainStep: " << step.counters().replays << " replays, " << step.last().recomputed
            << " ops recomputed\n";
  fine = were_called({"analysis", "timer", "memory probe", "cost model", "strategy", "backend",
                      "step memory"}) &&
         fine;

  const auto guided_net = net();
  reprise::BasicMemoryBudget budget{
      reprise::Budget::savable(50), mine::Pipeline{}, reprise::LargestFirst{},
      reprise::MemoryBudgetOptions{.run = little_effort, .plan_in_background = false}};
  const auto guided = train(guided_net, [&](const torch::Tensor& x) {
    auto inside = budget.step();
    guided_net->forward(x).backward();
  });
  std::cout << "MemoryBudget: " << budget.counters().planned_steps << " planned steps, "
            << budget.last().recomputed << " ops recomputed\n";
  // the user's own code runs, in its own memory: nothing is compiled
  fine = were_called({"analysis", "timer", "memory probe", "cost model", "strategy"}) && fine;

  const bool same = same_bits(eager, compiled) && same_bits(eager, guided);
  std::cout << "weights equal eager's, bit for bit: " << (same ? "yes" : "no") << '\n';
  return fine && same && step.last().recomputed > 0 && budget.last().recomputed > 0 ? 0 : 1;
}
