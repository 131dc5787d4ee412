// Training inside a budget: the same bits as eager, at the predicted peak, which is inside the
// budget.

#include "models/task.hpp"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <reprise/plan/plan_file.hpp>
#include <reprise_test/eager.hpp>
#include <reprise_test/temp_dir.hpp>

using namespace reprise;
using namespace reprise::options;
using namespace reprise::planning;
using namespace reprise::profiling;
using namespace reprise::training;
using namespace reprise::testing;
using reprise_test::TempDir;
using namespace reprise::literals;
using torch::Tensor;

namespace {

/// Any valid plan will do here: how good plans are is measured elsewhere.
const PlanRequest quick{.effort = 0.05};

struct Outcome {
  TrainStepCounters counters{};
  TrainStepReport last{};
  std::vector<TrainStepReport> steps{};
  Bytes baseline_above{};  ///< what the graph's own order takes above the base
  /// the plan runs first occurrences in another order, which may be enough
  bool reordered = false;
};

/// Five steps of a tiny model eagerly and inside the budget, everything compared.
Outcome train_inside(std::string_view name, const Budget& budget,
                     OptimizerKind optimizer = OptimizerKind::sgd, int steps = 5,
                     models::Config config = models::Config::tiny, std::int64_t samples = 0) {
  models::Task eager = models::make(name, config, samples),
               ours = models::make(name, config, samples);
  auto eager_optimizer = make_optimizer(optimizer, eager.module->parameters()),
       our_optimizer = make_optimizer(optimizer, ours.module->parameters());
  Replaying step{ours.module, ours.loss,
                 TrainStepOptions{.budget = budget,
                                  .run = {.planning = quick, .refine = false},
                                  .on_fallback = OnFallback::error}};
  Outcome outcome;
  for (int i = 0; i < steps; ++i) {
    INFO("step " << i);
    const auto batch = eager.make_batch(i);
    torch::manual_seed(static_cast<std::uint64_t>(50 + i));
    eager_optimizer->zero_grad();
    Tensor expected = eager.loss(batch);
    expected.backward();
    expected = expected.detach();
    const Tensor generator = generator_state();
    torch::manual_seed(static_cast<std::uint64_t>(50 + i));
    our_optimizer->zero_grad();
    const Tensor loss = step(batch);
    outcome.steps.push_back(step.last());
    CHECK(same_bits(loss, expected));
    CHECK(same_bits(generator, generator_state()));
    eager_optimizer->step();
    our_optimizer->step();
    const Subject a{eager.module->parameters(), {}, eager.module->buffers(), {}},
        b{ours.module->parameters(), {}, ours.module->buffers(), {}};
    if (!same_state(a, b)) break;
    if (step.last().replayed) CHECK(step.last().peak == step.last().predicted_peak);
    // a share is known once the first step has run
    if (i > 0) CHECK(step.last().peak <= step.last().budget);
  }
  outcome.counters = step.counters();
  outcome.last = step.last();
  outcome.baseline_above = step.plan().baseline_peak - step.graph().persistent_bytes();
  outcome.reordered = !keeps_order(step.graph(), step.plan().schedule);
  return outcome;
}

}  // namespace

/// The smallest share of what can be saved for which a plan is found, a little above what the
/// planner reaches.
double smallest_share(std::string_view name) {
  models::Task task = models::make(name, models::Config::tiny);
  Replaying probe{task.module, task.loss};
  probe(task.make_batch(0));
  const StepGraph& graph = probe.graph();
  const Bytes floor = floor_bytes(graph);
  PlanRequest request = quick;
  request.budget = floor;
  const Plan plan = Planner{}.plan(graph, request);
  return 5 + 100 * static_cast<double>((plan.peak - floor).count) /
                 static_cast<double>((plan.baseline_peak - floor).count);
}

TEST_CASE(
    "every model trains inside 90, 70, 50, 30 % of what can be saved and the smallest share, bit "
    "for bit") {
  for (const std::string_view name : models::names()) {
    const double smallest = smallest_share(name);
    std::vector<double> shares;
    for (const double share : {90.0, 70.0, 50.0, 30.0})
      if (share > smallest) shares.push_back(share);
    if (smallest < 100) shares.push_back(smallest);
    std::printf("%s: %zu budgets, down to %.0f %% of what can be saved\n",
                std::string(name).c_str(), shares.size(), shares.empty() ? 100 : smallest);
    for (const double share : shares) {
      INFO(name << " at " << share << " % of what can be saved");
      const Outcome outcome = train_inside(name, Budget::savable(share));
      CHECK(outcome.counters.replays == 4);
      CHECK(outcome.counters.fallbacks == 0);
      CHECK(outcome.counters.eager_runs == 0);
      for (std::size_t i = 1; i < outcome.steps.size(); ++i) {
        const TrainStepReport& step = outcome.steps[i];
        // Below what the graph's own order takes, which frees earlier than eager does, something
        // has to be computed again.
        if (step.budget < step.base + outcome.baseline_above)
          CHECK((step.recomputed > 0 || outcome.reordered));
        CHECK(step.moved == 0_B);
        CHECK(step.reserved_peak <= step.budget);
        CHECK(step.arena_misses == 0);
      }
      CHECK(outcome.last.budget < outcome.last.eager_peak);
    }
  }
}

TEST_CASE("ResNet-50 and BERT-base as published, inside half of what can be saved", "[.full]") {
  for (const auto* name : {"resnet50", "bert"}) {
    INFO(name);
    const Outcome outcome =
        train_inside(name, Budget::savable(50), OptimizerKind::sgd, 2, models::Config::full, 2);
    CHECK(outcome.counters.replays == 1);
    CHECK(outcome.counters.fallbacks == 0);
    CHECK(outcome.last.recomputed > 0);
    CHECK(outcome.last.moved == 0_B);
    CHECK(outcome.last.reserved_peak <= outcome.last.budget);
  }
}

TEST_CASE("a plan is made again with the times of warm ops") {
  models::Task task = models::make("vit", models::Config::tiny);
  Replaying step{task.module, task.loss,
                 TrainStepOptions{.budget = Budget::savable(50), .run = {.planning = quick}}};
  const auto batch = task.make_batch(0);
  for (int i = 0; i < 5; ++i) {
    task.module->zero_grad();
    step(batch);
    if (step.last().replayed) CHECK(step.last().peak == step.last().predicted_peak);
  }
  // The first run of a process sets kernels up; where it did not take longer here, nothing was to
  // be refined.
  CHECK(step.counters().refinements <= 2);
  CHECK(step.counters().plans >= 1 + step.counters().refinements);
}

TEST_CASE(
    "a plan that is made again is never slower, by the times of now, than the one that there was") {
  for (const auto* name : {"vit", "gpt2", "bert", "resnet50"}) {
    for (const double share : {70.0, 50.0}) {
      INFO(name << " at " << share << " %");
      models::Task task = models::make(name, models::Config::tiny);
      Replaying step{
          task.module, task.loss,
          TrainStepOptions{.budget = Budget::savable(share), .run = {.planning = quick}}};
      const auto batch = task.make_batch(0);
      step(batch);
      const Schedule first = step.plan().schedule;
      bool in_arena = false;
      for (int i = 0; i < 4; ++i) {
        task.module->zero_grad();
        step(batch);
        if (i == 0) in_arena = step.last().arena > 0_B;
      }
      if (!in_arena) continue;  // what an arena is worth, a plan may pay
      const Simulation now = simulate(step.graph(), step.plan().schedule);
      CHECK(step.plan().time == now.time);
      CHECK(now.time <= simulate(step.graph(), first).time);
    }
  }
}

TEST_CASE(
    "where nothing fits in the time that planning has, it goes on for longer, but not for ever") {
  models::Task task = models::make("vit", models::Config::tiny);
  std::vector<double> seconds;
  const auto slow = [&](const StepGraph& graph, const PlanRequest& request) {
    seconds.push_back(request.seconds);
    Plan plan = request.seconds < 4 ? plan_own_order(graph) : Planner{}.plan(graph, request);
    plan.budget = request.budget;
    plan.seconds = 100;  // so it says
    return plan;
  };
  Replaying step{task.module, task.loss,
                 TrainStepOptions{.budget = Budget::savable(60),
                                  .run = {.planner = slow, .refine = false},
                                  .on_fallback = OnFallback::error}};
  step(task.make_batch(0));
  REQUIRE(seconds.size() >= 2);
  CHECK(seconds[0] > 0);
  CHECK(seconds[0] < 4);
  CHECK(seconds[1] > 4);
  CHECK(seconds[1] <= seconds_to_wait);
  CHECK(step.plan().within_budget());
}

TEST_CASE("the plan follows the base: Adam's state appears after the first step") {
  models::Task task = models::make("resnet18", models::Config::tiny);
  const auto batch = task.make_batch(0);
  Bytes parameters{};
  for (const Tensor& p : task.module->parameters())
    parameters += Bytes{static_cast<std::int64_t>(p.nbytes())};
  Bytes eager{}, savable{};
  {
    Replaying probe{task.module, task.loss};
    probe(batch);
    eager = probe.last().peak;
    savable = probe.last().eager_peak - probe.last().floor;
    task.module->zero_grad();
  }
  const Bytes budget = eager + parameters + parameters - Bytes{savable.count / 2};
  REQUIRE(budget > eager);
  torch::optim::Adam adam(task.module->parameters());
  Replaying step{task.module, task.loss,
                 TrainStepOptions{.budget = budget, .on_fallback = OnFallback::error}};
  step(batch);
  CHECK(step.last().moved == 0_B);
  CHECK(step.plan().schedule.size() == step.graph().node_count());  // it fits as it is
  adam.step();
  adam.zero_grad();
  step(batch);
  CHECK(step.counters().plans == 2);  // made again for what is left
  CHECK(step.last().replayed);
  CHECK(step.last().recomputed > 0);
  // the arena of the first plan is gone before the second step begins
  CHECK(step.last().reserved_peak <= budget);
  CHECK(step.last().peak == step.last().predicted_peak);
}

TEST_CASE("a share of one shape's peak is not the limit of another") {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(64, 64), torch::nn::Tanh(), torch::nn::Linear(64, 64),
                            torch::nn::Tanh());
  torch::optim::Adam adam(net->parameters());
  Replaying step{net, [&](const Tensor& x) { return net->forward(x).pow(2).sum(); },
                 TrainStepOptions{.budget = Budget::savable(100),
                                  .run = {.planning = quick},
                                  .on_fallback = OnFallback::error}};
  for (int i = 0; i < 6; ++i) {
    INFO("step " << i);
    adam.zero_grad();
    const Tensor x = torch::randn({i % 2 == 0 ? 20 : 256, 64});
    REQUIRE_NOTHROW(step(x));
    CHECK(step.last().moved == 0_B);
    if (step.last().replayed) CHECK(step.last().reserved_peak <= step.last().budget);
    adam.step();
  }
  CHECK(step.counters().captures == 2);
  CHECK(step.counters().replays == 4);
}

TEST_CASE("a budget that no schedule meets: moved out with a notice, or an error with the bounds") {
  models::Task task = models::make("mlp", models::Config::tiny);
  const auto batch = task.make_batch(0);
  Replaying probe{task.module, task.loss};
  torch::manual_seed(8);
  const Tensor expected = probe(batch);
  task.module->zero_grad();
  const StepGraph& graph = probe.graph();
  const Bytes floor = device_memory().live() + (floor_bytes(graph) - graph.persistent_bytes());

  std::string notices;
  Replaying step{
      task.module, task.loss,
      TrainStepOptions{.budget = floor + 200_B,
                       .run = {.on_notice = [&](const std::string& text) { notices += text; }}}};
  for (int i = 0; i < 3; ++i) {
    task.module->zero_grad();
    torch::manual_seed(8);
    CHECK(same_bits(step(batch), expected));
    CHECK(step.last().peak <= floor + 200_B);
    CHECK(step.last().moved > 0_B);
  }
  CHECK(step.counters().fallbacks == 2);
  CHECK(notices.find("smallest peak found") != std::string::npos);

  task.module->zero_grad();
  Replaying strict{task.module, task.loss,
                   TrainStepOptions{.budget = floor + 200_B, .on_fallback = OnFallback::error}};
  try {
    strict(batch);
    FAIL("the budget should have been unreachable");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::budget_unreachable);
    CHECK(std::string(e.what()).find(std::to_string(floor.count)) != std::string::npos);
    CHECK(std::string(e.what()).find("The step itself was carried out") != std::string::npos);
  }
}

TEST_CASE("a budget below what a step begins and ends with is an error that says what would do") {
  models::Task task = models::make("mlp", models::Config::tiny);
  const auto batch = task.make_batch(0);
  std::string notices;
  Replaying step{
      task.module, task.loss,
      TrainStepOptions{.budget = Budget::share(1),
                       .run = {.on_notice = [&](const std::string& text) { notices += text; }}}};
  CHECK_NOTHROW(step(batch));  // the share is not known yet
  const Bytes floor = step.last().floor, eager = step.last().eager_peak;
  const std::string share = std::to_string((100 * floor.count + eager.count - 1) / eager.count) +
                            " % of what it takes without a budget";
  const auto with_unit = [](Bytes bytes) {
    return format_bytes(bytes) + " (" + std::to_string(bytes.count) + " bytes)";
  };
  CHECK_THAT(notices, contains("no schedule is below " + with_unit(floor)) && contains(share) &&
                          contains(with_unit(step.last().base) + " are live when the step begins"));
  task.module->zero_grad();  // as it was when the share was found out
  CHECK_THROWS_WITH(step(batch), contains(" % of what it takes without a budget") &&
                                     contains("needs") && contains("at once"));

  Replaying other{task.module, task.loss};  // without a budget: its arena stays where it is
  for (int i = 0; i < 3; ++i) {
    task.module->zero_grad();
    other(batch);
  }
  REQUIRE(other.last().arena > 0_B);
  task.module->zero_grad();  // nothing is alive in it any more
  const Bytes arena = device_memory().reserved() - device_memory().live();
  Replaying strict{task.module, task.loss,
                   TrainStepOptions{.budget = Budget::share(1), .on_fallback = OnFallback::error}};
  CHECK_THROWS_WITH(strict(batch), contains("arenas of other steps hold " + with_unit(arena) +
                                            " beyond what is alive in them"));
}

TEST_CASE(
    "until a share is known, the first step is held to 80 % of free memory, or to what the user "
    "says") {
  CHECK(limit_until_known(0_B, 100_B, 1000_B) == 900_B);
  CHECK(limit_until_known(300_B, 100_B, 1000_B) == 300_B);
  CHECK(limit_until_known(0_B, 100_B, 0_B) == 0_B);  // what is free is not known: no limit
  models::Task task = models::make("vit", models::Config::tiny);
  const auto batch = task.make_batch(0);
  torch::manual_seed(8);
  const Tensor expected = task.loss(batch).detach();
  Bytes above{};
  {
    Replaying step{task.module, task.loss,
                   TrainStepOptions{.budget = Budget::share(90), .run = {.planning = quick}}};
    torch::manual_seed(8);
    CHECK(same_bits(step(batch), expected));
    const Bytes free = free_memory();
    // others on the machine take and give back meanwhile
    CHECK(step.last().limit > step.last().base + Bytes{free.count / 2});
    CHECK(step.last().limit < step.last().base + free);
    CHECK(step.last().moved == 0_B);
    above = step.last().eager_peak - step.last().base;
    task.module->zero_grad();
  }
  const Bytes limit = device_memory().live() + Bytes{above.count * 3 / 4};
  Replaying step{task.module, task.loss,
                 TrainStepOptions{.budget = Budget::share(90),
                                  .run = {.planning = quick, .limit_until_known = limit}}};
  torch::manual_seed(8);
  CHECK(same_bits(step(batch), expected));
  CHECK(step.last().limit == limit);
  CHECK(step.last().moved > 0_B);
  CHECK(step.last().reserved_peak <= limit);
}

TEST_CASE("budgets as bytes, shares and extra time") {
  CHECK(Budget{4_GiB}.resolve(10_GiB, 1_GiB) == 4_GiB);
  CHECK(Budget::share(50).resolve(1001_B, 1_B) == 501_B);
  CHECK(Budget::savable(25).resolve(1000_B, 200_B) == 400_B);
  CHECK(Budget::parse("50%").kind == Budget::Kind::share);
  CHECK(Budget::parse("2GiB").bytes == 2_GiB);
  // as much as there is, not what is left of an overflow
  CHECK(Budget::share(1e30).resolve(10_GiB, 1_GiB) >= 10_GiB);
  CHECK(Budget::savable(1e30).resolve(10_GiB, 1_GiB) >= 10_GiB);
  CHECK_THROWS_AS(Budget{0_B}, Error);
  CHECK_THROWS_AS(Budget::share(0), Error);
  const Outcome outcome = train_inside("vit", Budget::extra_time(5));
  CHECK(outcome.last.predicted_overhead() <= 0.05);
  CHECK(outcome.last.peak < outcome.last.eager_peak);
}

TEST_CASE("a plan can be saved, loaded, and is refused for another model") {
  const TempDir dir;
  const auto file = dir / "vit.plan.json";
  const auto options = [] {
    return TrainStepOptions{.budget = Budget::savable(60), .on_fallback = OnFallback::error};
  };
  {
    models::Task task = models::make("vit", models::Config::tiny);
    Replaying step{task.module, task.loss, options()};
    step(task.make_batch(0));
    step.save_plan(file);
  }
  models::Task task = models::make("vit", models::Config::tiny),
               eager = models::make("vit", models::Config::tiny);
  Replaying step{task.module, task.loss, options()};
  step.load_plan(file);
  for (int i = 0; i < 2; ++i) {
    for (const auto& t : {task, eager}) t.module->zero_grad();
    torch::manual_seed(3);
    const Tensor loss = step(task.make_batch(i));
    torch::manual_seed(3);
    CHECK(same_bits(loss, eager.loss(eager.make_batch(i)).detach()));
  }
  CHECK(step.counters().plans == 0);
  CHECK(step.last().recomputed > 0);
  auto smaller = task.make_batch(0);  // the plan was for the first capture alone
  for (Tensor& t : smaller) t = t.narrow(0, 0, 1);
  CHECK_NOTHROW(step(smaller));
  CHECK(step.counters().plans == 1);
  CHECK_THROWS_WITH(step.load_plan(dir / "no.plan.json"), contains("no.plan.json"));

  models::Task other = models::make("gpt2", models::Config::tiny);
  Replaying wrong{other.module, other.loss, options()};
  wrong.load_plan(file);
  CHECK_THROWS_WITH(wrong(other.make_batch(0)),
                    contains("made for another model") && contains("was carried out"));
  CHECK_NOTHROW(wrong(other.make_batch(0)));
  CHECK_THROWS_WITH(
      (Replaying{other.module, other.loss, TrainStepOptions{.run = {.strategy = "simplex"}}}),
      contains("simplex") && contains("chain-dp"));
}

namespace {

std::size_t address_space_now() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// In a process of its own, whose address space leaves half of what eager takes: 0 where eager
/// fails and the budget does not.
int train_in_little_memory(torch::nn::Sequential net, const Tensor& x, Bytes above,
                           const std::vector<float>& expected) {
  ::malloc_trim(0);
  const rlim_t room = address_space_now() + static_cast<std::size_t>(above.count) * 6 / 10;
  const rlimit limit{room, room};
  ::setrlimit(RLIMIT_AS, &limit);
  const auto loss = [&](const Tensor& in) { return net->forward(in).pow(2).mean(); };
  try {
    loss(x).backward();
    return 1;  // eager fitted: the limit proves nothing
  } catch (const std::exception&) {
  }
  net->zero_grad();
  try {
    TrainStep step{
        net, loss,
        TrainStepOptions{.budget = device_memory().live() + Bytes{above.count * 45 / 100},
                         .run = {.planning = quick}}};
    for (const float value : expected) {
      if (step(x).item<float>() != value) return 2;
      net->zero_grad();
      if (step.last().peak > step.last().budget && step.last().budget > 0_B) return 3;
    }
    return step.counters().fallbacks == 0 ? 0 : 4;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 5;
  }
}

}  // namespace

TEST_CASE(
    "where the address space is too small for eager, a TrainStep trains from its first step") {
  torch::manual_seed(3);
  torch::nn::Sequential net;
  for (int i = 0; i < 10; ++i) {
    net->push_back(torch::nn::Linear(32, 32));
    net->push_back(torch::nn::Tanh());
  }
  const auto x = torch::randn({1 << 18, 32});  // 32 MiB an activation
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);        // so that what is freed is given back
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // the child has none of our worker threads
  const Bytes base = device_memory().live();
  device_memory().reset_peak();
  Tensor loss = net->forward(x).pow(2).mean();
  loss.backward();
  const Bytes above = device_memory().peak() - base;
  const float expected = loss.item<float>();
  loss.reset();
  net->zero_grad();
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(train_in_little_memory(net, x, above,
                                   {expected, expected, expected, expected, expected, expected}));
  int status = 0;
  ::waitpid(child, &status, 0);
  at::set_num_threads(threads);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
