// What the library says of itself is true: the reports and counters of both fronts.

#include <reprise_test/eager.hpp>
#include <reprise_test/guided.hpp>
#include <reprise_test/watched.hpp>

#include <string>
#include <vector>

using namespace reprise;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

std::int64_t all_ways(const TrainStepCounters& c) {
  return c.captures + c.replays + c.rechecks + c.failed_rechecks + c.verified + c.eager_runs +
         c.fallbacks;
}
std::int64_t all_ways(const MemoryBudgetCounters& c) {
  return c.planned_steps + c.fitting_steps + c.online_steps + c.block_steps;
}

const MemoryBudgetOptions at_once{.run = {.planning = {.effort = 0.1}},
                                  .plan_in_background = false};

}  // namespace

TEST_CASE("every step of a TrainStep is counted once: spilled ones, and those after a failed one") {
  models::Task task = models::make("mlp", models::Config::tiny);
  const auto batch = task.make_batch(0);
  Replaying probe{task.module, task.loss};
  probe(batch);
  task.module->zero_grad();
  const Bytes floor =
      device_memory().live() + (floor_bytes(probe.graph()) - probe.graph().persistent_bytes());
  Replaying spilled{task.module, task.loss, TrainStepOptions{.budget = floor + 200_B}};
  for (int i = 0; i < 3; ++i) {
    task.module->zero_grad();
    spilled(batch);
  }
  CHECK(spilled.counters().fallbacks == 2);
  CHECK(spilled.counters().eager_runs == 0);
  CHECK(spilled.counters().steps == 3);
  CHECK(all_ways(spilled.counters()) == 3);
  CHECK(spilled.summary().find("3 steps: 1 captured, 2 by spilling; ") != std::string::npos);

  Tensor p = torch::ones({3}).requires_grad_();
  double factor = 1;
  TrainStep host{std::vector<Tensor>{p}, [&](const Tensor& x) { return (p * x * factor).sum(); }};
  for (int i = 0; i < 8; ++i) {
    if (i == 3) factor = 2;
    p.mutable_grad() = Tensor();
    host(torch::ones({3}));
  }
  CHECK(host.counters().failed_rechecks == 1);
  CHECK(host.counters().eager_runs == 4);
  CHECK(host.counters().steps == 8);
  CHECK(all_ways(host.counters()) == 8);
}

TEST_CASE("after a new capture the early rechecks come again, and its own call was found equal") {
  Tensor p = torch::ones({3}).requires_grad_();
  double factor = 1;
  std::vector<bool> replayed;
  TrainStep step{std::vector<Tensor>{p},
                 [&](const Tensor& x) {
                   const bool large = x.sum().item<double>() > 10;  // data decides
                   return large ? (p * x * factor).sum() : (p.exp() * x * factor).sum();
                 },
                 TrainStepOptions{.on_fallback = OnFallback::error}};
  const auto call = [&](double value) {
    p.mutable_grad() = Tensor();
    step(torch::full({3}, value));
    replayed.push_back(step.last().replayed);
  };
  for (int i = 0; i < 6; ++i) call(1);  // 1 captured; 2, 3, 4 rechecked; 5, 6 replayed
  CHECK(replayed == std::vector<bool>{false, false, false, false, true, true});
  CHECK(step.counters().rechecks == 3);
  call(7);  // 7: another number: captured anew
  CHECK(step.counters().captures == 2);
  for (int i = 0; i < 3; ++i) call(7);  // 8, 9, 10
  CHECK(step.counters().rechecks == 6);
  call(7);  // 11
  CHECK(replayed.back());
  call(1);  // 12: captured anew
  factor = 2;
  try {
    call(1);  // 13
    FAIL("the host's number is another one");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("call 13 is not the step that was captured (last found equal: call 12)") == 0);
  }
}

TEST_CASE("a step that goes on after all that its plan recomputes was planned") {
  StackLoop loop;
  MemoryBudget budget{Budget::savable(50), at_once};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  REQUIRE(budget.last().planned);
  REQUIRE(budget.last().recomputed > 0);
  REQUIRE(budget.counters().planned_steps == 2);
  {
    auto step = budget.step();
    loop();
    static_cast<void>(torch::ones({3}) + 1);  // in no plan
  }
  CHECK(budget.last().divergence == "another op came");
  CHECK(budget.last().planned);
  CHECK(budget.last().predicted_peak == 0_B);  // the prediction is for the planned ops alone
  CHECK(budget.counters().planned_steps == 3);
}

TEST_CASE("both reports have the same fields with the same meaning") {
  models::Task task = models::make("vit", models::Config::tiny);
  const auto batch = task.make_batch(0);
  Replaying step{task.module, task.loss,
                 TrainStepOptions{.budget = Budget::savable(50),
                                  .run = {.planning = {.effort = 0.1}, .refine = false}}};
  for (int i = 0; i < 3; ++i) {
    task.module->zero_grad();
    step(batch);
  }
  StackLoop loop;
  MemoryBudget budget{Budget::savable(50), at_once};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  for (const StepReport* last : {static_cast<const StepReport*>(&step.last()),
                                 static_cast<const StepReport*>(&budget.last())}) {
    CHECK(last->planned);
    CHECK_FALSE(last->fits);
    CHECK(last->base > 0_B);
    CHECK(last->floor > last->base);
    CHECK(last->floor < last->budget);
    CHECK(last->budget < last->eager_peak);
    CHECK(last->peak == last->predicted_peak);
    CHECK(last->peak <= last->budget);
    CHECK(last->probed_peak >= last->peak);
    CHECK(last->recomputed > 0);
    CHECK(last->own_time.count > 0);
    CHECK(last->predicted_extra_time.count > 0);
    CHECK(last->predicted_overhead() ==
          Approx(last->predicted_extra_time.count / last->own_time.count));
    CHECK(last->time.count > 0);
    CHECK(last->planning_time.count == 0);  // the plan was there
  }
  for (const StepCounters* counters : {static_cast<const StepCounters*>(&step.counters()),
                                       static_cast<const StepCounters*>(&budget.counters())}) {
    CHECK(counters->steps == 3);
    CHECK(counters->planned_steps == 2);
    CHECK(counters->plans >= 1);
    CHECK(counters->planning_time.count > 0);
  }
}

TEST_CASE("a step that fits without a plan is not told as planned", "[guided]") {
  StackLoop loop;
  MemoryBudget budget{1024_GiB, at_once};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  CHECK(budget.last().fits);
  CHECK_FALSE(budget.last().planned);
  CHECK(budget.last().peak == budget.last().predicted_peak);
  CHECK(budget.counters().planned_steps == 0);
  CHECK(budget.counters().fitting_steps == 2);
  CHECK(budget.counters().online_steps == 1);
  CHECK(all_ways(budget.counters()) == 3);
  CHECK(budget.summary().find("3 steps: 1 online, 2 that fit without a plan; 0 plans made") !=
        std::string::npos);

  models::Task task = models::make("mlp", models::Config::tiny);
  Replaying step{task.module, task.loss, TrainStepOptions{.budget = 1024_GiB}};
  const auto batch = task.make_batch(0);
  for (int i = 0; i < 3; ++i) {
    task.module->zero_grad();
    step(batch);
  }
  CHECK(step.last().fits);
  CHECK_FALSE(step.last().planned);
  CHECK(step.counters().fitting_steps == 2);
}

TEST_CASE("a step that went from one plan to another has no predicted peak, and none is told",
          "[guided]") {
  StackLoop loop;
  MemoryBudget budget{Budget::savable(50), at_once};
  const auto other = [&](bool sine) {
    auto step = budget.step();
    loop.optimizer.zero_grad();
    Tensor h = loop.stack.forward(loop.x, gelu);
    if (sine) h = h.sin();
    h.pow(2).mean().backward();
    loop.optimizer.step();
  };
  for (int i = 0; i < 2; ++i) other(false);
  for (int i = 0; i < 2; ++i) other(true);
  other(true);
  other(false);  // begins like both; the last one seen is tried first
  CHECK(budget.summary().find("(predicted 0") == std::string::npos);
  if (budget.last().predicted_peak == 0_B)
    CHECK(budget.summary().find("(predicted") == std::string::npos);
  else CHECK(budget.last().peak == budget.last().predicted_peak);
}

TEST_CASE("on_step is an option of both, and is told of every step", "[guided]") {
  std::vector<std::int64_t> compiled, guided;
  models::Task task = models::make("mlp", models::Config::tiny);
  Replaying step{task.module, task.loss, TrainStepOptions{.on_step = [&](const auto& report) {
                   compiled.push_back(report.peak.count);
                 }}};
  const auto batch = task.make_batch(0);
  for (int i = 0; i < 3; ++i) step(batch);
  StackLoop loop;
  MemoryBudgetOptions options = at_once;
  options.on_step = [&](const auto& report) { guided.push_back(report.peak.count); };
  MemoryBudget budget{1024_GiB, options};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  CHECK(compiled.size() == 3);
  CHECK(compiled.back() == step.last().peak.count);
  CHECK(guided.size() == 3);
  CHECK(guided.back() == budget.last().peak.count);
}

TEST_CASE("verify_every compares every n-th guided step, and no other", "[guided]") {
  const AsOlderLibTorch older;  // which does not tell of a pointer: verify alone finds the write
  const Tensor x = torch::randn({8, 8});
  MemoryBudget budget{1_GiB, {.run = {.verify_every = 3}}};
  for (int i = 1; i <= 6; ++i) {
    INFO("step " << i);
    auto step = budget.step();
    Tensor h = torch::tanh(x);
    static_cast<void>(h.sum());
    h.data_ptr<float>()[3] = 7;
    if (i % 3 == 0) CHECK_THROWS_WITH(h.sum(), contains("what node 0 (tanh) made"));
    else CHECK_NOTHROW(h.sum());
  }
}
