// TrainStep in loops as people write them, and with policies of their own.

#include "models/task.hpp"

#include <cmath>
#include <sstream>

#include <reprise_test/eager.hpp>
#include <reprise_test/guided.hpp>

#include <reprise/plan/cost_models/byte_cost.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::replaying;
using namespace reprise::tensors;
using namespace reprise::training;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

/// Sequential with everything that a step changes: statistics, dropout, parameters.
torch::nn::Sequential small_net() {
  torch::manual_seed(2);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::BatchNorm1d(32),
                               torch::nn::Tanh(), torch::nn::Dropout(0.2),
                               torch::nn::Linear(32, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 4));
}

Tensor batch_of(int i) { return torch::arange(128.0f).view({16, 8}).mul(0.01 * (i + 1)).sin(); }

/// Two optimizers with a scheduler each, clipping, and gradients of two micro-batches added up;
/// `forward_backward` does one of these.
struct Loop {
  torch::nn::Sequential net = small_net();
  std::vector<Tensor> first = net[0]->parameters(), rest{};
  std::unique_ptr<torch::optim::SGD> sgd{};
  std::unique_ptr<torch::optim::Adam> adam{};
  std::unique_ptr<torch::optim::StepLR> sgd_rate{}, adam_rate{};

  Loop() {
    net[4]->parameters()[1].requires_grad_(false);  // frozen
    for (const std::size_t i : {1u, 4u, 6u})
      for (const Tensor& p : net[i]->parameters())
        if (p.requires_grad()) rest.push_back(p);
    make_optimizers();
  }
  void make_optimizers() {
    sgd = std::make_unique<torch::optim::SGD>(first, torch::optim::SGDOptions(0.1).momentum(0.9));
    adam = std::make_unique<torch::optim::Adam>(rest);
    sgd_rate = std::make_unique<torch::optim::StepLR>(*sgd, 2, 0.5);
    adam_rate = std::make_unique<torch::optim::StepLR>(*adam, 3, 0.1);
  }
  Tensor loss(const Tensor& x) { return net->forward(x).pow(2).mean(); }

  template <class Step>
  std::vector<float> train(Step&& forward_backward, int from, int steps) {
    std::vector<float> losses;
    for (int i = from; i < from + steps; ++i) {
      torch::manual_seed(static_cast<std::uint64_t>(i));
      sgd->zero_grad();
      adam->zero_grad();
      for (int micro = 0; micro < 2; ++micro)
        losses.push_back(forward_backward(batch_of(2 * i + micro)).template item<float>());
      torch::nn::utils::clip_grad_norm_(net->parameters(), 0.05);
      sgd->step();
      adam->step();
      sgd_rate->step();
      adam_rate->step();
      net->eval();
      losses.push_back(forward_backward(batch_of(i)).template item<float>());
      net->train();
    }
    return losses;
  }
};

void check_equal(Loop& ours, Loop& eager) {
  for (std::size_t i = 0; i < ours.net->parameters().size(); ++i)
    CHECK(same_bits(ours.net->parameters()[i], eager.net->parameters()[i]));
  for (std::size_t i = 0; i < ours.net->buffers().size(); ++i)
    CHECK(same_bits(ours.net->buffers()[i], eager.net->buffers()[i]));
}

}  // namespace

TEST_CASE(
    "two optimizers, schedulers, clipping, accumulation, a frozen parameter, evaluation in "
    "between, saving and loading") {
  Loop eager, ours;
  const auto eagerly = [&](const Tensor& x) {
    Tensor loss = eager.loss(x);
    loss.backward();
    return loss;
  };
  Replaying step{ours.net, [&](const Tensor& x) { return ours.loss(x); },
                 TrainStepOptions{.budget = Budget::savable(70), .on_fallback = OnFallback::error}};
  CHECK(ours.train(step, 0, 4) == eager.train(eagerly, 0, 4));
  check_equal(ours, eager);
  CHECK(step.counters().replays >= 8);
  CHECK(step.counters().eager_runs == 0);

  std::stringstream saved;
  torch::save(ours.net, saved);
  ours.train(step, 4, 1);  // away from what was saved
  torch::load(ours.net, saved);
  ours.make_optimizers();
  eager.make_optimizers();
  CHECK(ours.train(step, 4, 3) == eager.train(eagerly, 4, 3));
  check_equal(ours, eager);
}

TEST_CASE("rechecks run inside the budget, and the replays between them too") {
  models::Task task = models::make("resnet18", models::Config::tiny),
               eager = models::make("resnet18", models::Config::tiny);
  TrainStep step{task.module, task.loss,
                 TrainStepOptions{.budget = Budget::savable(60),
                                  .run = {.planning = {.effort = 0.1}},
                                  .on_fallback = OnFallback::error}};
  for (int i = 1; i <= 9; ++i) {
    INFO("call " << i);
    for (const auto& t : {task, eager}) t.module->zero_grad();
    const auto batch = task.make_batch(i);
    torch::manual_seed(4);
    const Tensor loss = step(batch);
    torch::manual_seed(4);
    CHECK(same_bits(loss, eager.loss(batch).detach()));
    CHECK(step.last().replayed == (i > 4 && i != 8));
    if (i == 1) continue;
    CHECK(step.last().budget > 0_B);
    CHECK(step.last().reserved_peak <= step.last().budget);
  }
  CHECK(step.counters().rechecks == 4);
  CHECK(step.counters().replays == 4);
}

TEST_CASE("host state is an error where fallbacks are") {
  auto p = torch::ones({3}).requires_grad_();
  double factor = 1;
  TrainStep step{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x * factor).sum(); },
                 TrainStepOptions{.on_fallback = OnFallback::error}};
  step(torch::ones({3}));
  p.mutable_grad() = Tensor();
  factor = 2;
  try {
    step(torch::ones({3}));
    FAIL("call 2 is not the step that was captured");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::capture_failed);
    CHECK(std::string(e.what()).find("last found equal: call 1") != std::string::npos);
    CHECK(std::string(e.what()).find("mul") != std::string::npos);
  }
}

TEST_CASE("any planner: another cost model and strategy by option") {
  models::Task task = models::make("vit", models::Config::tiny);
  int asked = 0;
  Replaying step{
      task.module, task.loss,
      TrainStepOptions{.budget = Budget::savable(60),
                       .run = {.planner =
                                   [&](const StepGraph& graph, const PlanRequest& request) {
                                     ++asked;
                                     return Planner<ByteCost, Anneal>{}.plan(graph, request);
                                   },
                               .planning = {.effort = 0.1},
                               .refine = false},
                       .on_fallback = OnFallback::error}};
  for (int i = 0; i < 2; ++i) {
    task.module->zero_grad();
    step(task.make_batch(i));
  }
  CHECK(asked >= 1);  // more where packing asked for less
  CHECK(step.counters().plans == 1);
  CHECK(step.last().recomputed > 0);
  Microseconds bytes{};
  for (std::size_t i = 0; i < step.graph().node_count(); ++i)
    bytes += ByteCost{}.time(step.graph(), NodeId{i});
  // summed up in another order
  CHECK(std::abs(step.plan().baseline_time.count - bytes.count) < 1e-9 * bytes.count);
}

namespace {

/// Every op takes as many microseconds as it has occurred.
struct CountingTimer {
  std::shared_ptr<int> runs = std::make_shared<int>(0);
  std::vector<Microseconds> times{};
  void begin_run(std::size_t occurrences) {
    ++*runs;
    times.assign(occurrences, Microseconds{});
  }
  void start(std::size_t) {}
  void stop(std::size_t i) { times[i] = {1}; }
  std::vector<Microseconds> end_run() { return std::exchange(times, {}); }
};

struct CountingProbe {
  std::shared_ptr<int> ops = std::make_shared<int>(0);
  void begin_run() { *ops = 0; }
  void begin_op() {}
  MemorySample end_op() { return ++*ops, MemorySample{}; }
  Bytes end_run() { return {*ops}; }
};

}  // namespace

TEST_CASE(
    "a timer and a probe of the user's own: a TrainStep asks them around each op of captures and "
    "replays") {
  models::Task task = models::make("vit", models::Config::tiny);
  const CountingTimer timer;
  TrainStep step{task.module, task.loss,
                 TrainStepOptions{.budget = Budget::savable(60),
                                  .run = {.planning = {.effort = 0.1}},
                                  .on_fallback = OnFallback::error,
                                  .recheck = false},
                 DefaultPipeline{}.with(Profiler<CountingTimer, CountingProbe>{timer})};
  std::int64_t captured = 0;
  for (int i = 0; i < 5; ++i) {
    task.module->zero_grad();
    step(task.make_batch(i));
    const std::int64_t probed = step.last().probed_peak.count;
    if (i == 0) {
      captured = probed;
      CHECK(captured == static_cast<std::int64_t>(step.graph().node_count()));
      CHECK(*timer.runs == captured);  // each op is a run of one occurrence
    } else {
      CHECK(probed == static_cast<std::int64_t>(step.plan().schedule.size()));
    }
  }
  CHECK(*timer.runs == captured + 1);  // the second replay, as one run
  for (std::size_t i = 0; i < step.graph().node_count(); ++i)
    CHECK(step.graph().node(NodeId{i}).time.count == 1);
}

TEST_CASE(
    "a timer and a probe of the user's own: a MemoryBudget asks them around each op of a step") {
  StackLoop loop;
  const CountingTimer timer;
  BasicMemoryBudget budget{Budget::savable(50),
                           DefaultPipeline{}.with(Profiler<CountingTimer, CountingProbe>{timer}),
                           CostSizeStaleness{},
                           {.run = {.planning = {.effort = 0.1}}, .plan_in_background = false}};
  for (int i = 0; i < 4; ++i) {
    const int before = *timer.runs;
    loop.inside(budget);
    CHECK(budget.last().planned == (i > 0));
    CHECK(budget.last().probed_peak.count > 0);
    CHECK(budget.last().probed_peak.count == *timer.runs - before);
  }
  double ops = 0;
  for (std::size_t i = 0; i < budget.graph().node_count(); ++i) {
    const double time = budget.graph().node(NodeId{i}).time.count;
    CHECK((time == 1 || time == 0));  // 0: a release, which is no op
    ops += time;
  }
  CHECK(ops == static_cast<double>(budget.last().probed_peak.count));
}

TEST_CASE("workspaces of one op that are never alive at once have one address") {
  torch::nn::Linear net(8, 8);
  const auto x = torch::ones({4, 8});
  TraceHooks hooks;
  CaptureOptions options{.hooks = &hooks};
  auto captured = capture(
      net, [&](const Tensor& in) { return net->forward(in).sum(); }, options, x);
  const Rewriting rewriting = rewrite(captured.graph(), own_order(captured.graph()));
  const auto height = [&](std::vector<TracedAllocation> workspaces) {
    AllocationTrace trace = hooks.trace;
    for (auto& op : trace.ops) {
      if (op.allocations.empty()) continue;
      op.allocations.insert(op.allocations.begin(), workspaces.begin(), workspaces.end());
      break;
    }
    return layout_arena(captured.recording(), rewriting, trace, captured.result_count()).height;
  };
  constexpr std::size_t mib = 1 << 20;
  const Bytes one = height({{.bytes = mib}});
  CHECK(height({{.bytes = mib, .dead_at = 1}, {.bytes = mib}}) == one);
  CHECK(height({{.bytes = mib}, {.bytes = mib}}) == one + 1_MiB + 64_B);

  AllocationNotes notes;  // and that is what the notes of an op say
  AllocationTrace noted;
  notes.begin();
  { const c10::DataPtr first = cpu::counting_allocator().allocate(64); }
  const c10::DataPtr second = cpu::counting_allocator().allocate(64);
  notes.end({}, noted, NodeId{0});
  REQUIRE(noted.ops[0].allocations.size() == 2);
  CHECK(noted.ops[0].allocations[0].dead_at == 1);
  CHECK(noted.ops[0].allocations[1].dead_at == TracedAllocation::at_the_end);
}

TEST_CASE(
    "an arena is as large as what is alive in it, and a little more where packing wastes "
    "something") {
  for (const auto* name : {"resnet18", "unet", "gpt2"}) {
    INFO(name);
    models::Task task = models::make(name, models::Config::tiny);
    const auto batch = task.make_batch(0);
    TraceHooks hooks;
    CapturedStep captured =
        capture_step(tensors_of(task.module), arguments_of(batch),
                     [&] { return results_of(task.loss(batch)); }, {.hooks = &hooks});
    const Rewriting rewriting = rewrite(captured.graph(), own_order(captured.graph()));
    const ArenaLayout layout =
        layout_arena(captured.recording(), rewriting, hooks.trace, captured.result_count());
    const Bytes alive = LibTorchProgram(captured, rewriting).peak_above_base();
    CHECK(layout.reserved() >= alive);
    CHECK(layout.reserved() <= alive + Bytes{alive.count / 10});
    CHECK(layout.outside == 4_B);  // the loss
  }
}
