// What the user of a MemoryBudget sees: budgets, advice, summaries, reports, logs, switches.

#include <reprise/libtorch/options/step_report.hpp>
#include <reprise_test/guided.hpp>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/watched.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::planning;
using namespace reprise::replaying;
using namespace reprise::tensors;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

const MemoryBudgetOptions at_once{.run = {.planning = {.effort = 0.1}},
                                  .plan_in_background = false};

/// For as long as it is in scope.
struct Environment {
  const char* name;
  Environment(const char* key, const char* value) : name(key) { ::setenv(key, value, 1); }
  ~Environment() { ::unsetenv(name); }
};

}  // namespace

TEST_CASE("a share of the unconstrained peak is known after the first step", "[guided]") {
  StackLoop loop;
  MemoryBudget budget{Budget::share(75), at_once};
  loop.inside(budget);
  const Bytes eager = budget.last().eager_peak;
  CHECK(budget.last().peak == eager);
  for (int i = 0; i < 3; ++i) {
    loop.inside(budget);
    CHECK(budget.last().budget == share_of(75, eager));
    CHECK(budget.last().planned);
    CHECK(budget.last().peak == budget.last().predicted_peak);
    CHECK(budget.last().peak <= share_of(75, eager));
  }
}

TEST_CASE("a budget is a share of free memory, or none at all", "[guided]") {
  const Budget free = Budget::of_free_memory(50, device_memory().live());
  CHECK(free.kind == Budget::Kind::bytes);
  CHECK(free.bytes > device_memory().live());
  CHECK_THROWS_AS(MemoryBudget{Budget{}}, Error);
  CHECK_THROWS_AS(Budget::of_free_memory(0, 0_B), Error);
  MemoryBudget budget{1_GiB};
  CHECK_THROWS_AS(budget.set(Bytes{-1}), Error);
  CHECK_THROWS_AS(budget.advise(), Error);
  CHECK_THROWS_AS(budget.report("nowhere.html"), Error);
}

TEST_CASE("another budget holds from the next step on, and is planned for", "[guided]") {
  StackLoop loop;
  MemoryBudget budget{1024_GiB, at_once};
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  CHECK(budget.last().recomputed == 0);
  const Bytes eager = budget.last().eager_peak, floor = budget.last().floor;
  budget.set(floor + share_of(50, eager - floor));
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  CHECK(budget.last().planned);
  CHECK(budget.last().peak <= floor + share_of(50, eager - floor));
  const std::int64_t tight = budget.last().recomputed;
  CHECK(tight > 0);
  budget.set(1024_GiB);
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  CHECK(budget.last().fits);
  CHECK_FALSE(budget.last().planned);
  CHECK(budget.last().recomputed == 0);
}

TEST_CASE("a planner of the user's own is asked, for plans and for advice", "[guided]") {
  StackLoop loop;
  int asked = 0;
  MemoryBudgetOptions options = at_once;
  options.run.planner = [&](const StepGraph& graph, const PlanRequest& request) {
    ++asked;
    CHECK(request.keep_order);
    return plan_by_bytes(graph, request);
  };
  MemoryBudget budget{Budget::share(75), options};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  CHECK(asked > 0);
  CHECK(budget.last().planned);
  CHECK(budget.last().recomputed > 0);
  CHECK(budget.last().peak == budget.last().predicted_peak);
  const int before = std::exchange(asked, 0);
  CHECK(before > 0);
  CHECK(budget.advise().smallest <= share_of(75, budget.last().eager_peak));
  CHECK(asked > 0);
}

TEST_CASE(
    "a plan of the user's own that cannot be followed is told of, and the steps stay inside the "
    "budget",
    "[guided]") {
  StackLoop loop;
  std::vector<std::string> notices;
  MemoryBudgetOptions options = at_once;
  options.run.on_notice = [&](const std::string& text) { notices.push_back(text); };
  const auto run = [&](PlanFunction planner) {
    notices.clear();
    options.run.planner = std::move(planner);
    MemoryBudget budget{Budget::share(75), options};
    for (int i = 0; i < 3; ++i) loop.inside(budget);
    CHECK_FALSE(budget.last().planned);
    CHECK(budget.last().peak <= budget.last().budget);
    REQUIRE_FALSE(notices.empty());
    return notices.front();
  };
  const auto turned = [](const StepGraph& graph, const PlanRequest& /*request*/) {
    Plan plan = plan_own_order(graph);
    std::ranges::reverse(plan.schedule);
    return plan;
  };
  const auto too_large = [](const StepGraph& graph, const PlanRequest& /*request*/) {
    return plan_own_order(graph);
  };
  const auto fails = [](const StepGraph& /*graph*/, const PlanRequest& /*request*/) -> Plan {
    throw std::runtime_error("no idea");
  };
  CHECK(run(turned).find("no plan for") != std::string::npos);
  CHECK(run(too_large).find("the best plan needs ") != std::string::npos);
  CHECK(run(fails).find("no idea") != std::string::npos);
}

TEST_CASE(
    "an error above the budget is told as it is, also where the user's planner fails or says "
    "untrue things",
    "[guided]") {
  StackLoop loop;
  MemoryBudgetOptions options = at_once;
  options.over_budget = OverBudget::error;
  const auto error_with = [&](PlanFunction planner) {
    options.run.planner = std::move(planner);
    MemoryBudget budget{1_GiB, options};
    loop.inside(budget);
    budget.set(budget.last().base + 1_KiB);
    try {
      loop.inside(budget);
    } catch (const Error& error) {
      CHECK(error.code() == Errc::budget_unreachable);
      return std::string(error.what());
    }
    FAIL("no error");
    return std::string{};
  };
  const std::string none =
      error_with([](const StepGraph&, const PlanRequest&) -> Plan { throw 1; });
  CHECK(none.find("smallest feasible budget") == std::string::npos);
  // All it ever gives is the graph's own order, as if that were inside every budget: what it takes
  // is found out.
  const std::string own =
      error_with([](const StepGraph& graph, const PlanRequest&) { return plan_own_order(graph); });
  CHECK(own.find("for 0.0 % extra time") != std::string::npos);
  const std::string by_bytes = error_with(plan_by_bytes);
  CHECK(by_bytes.find("smallest feasible budget") != std::string::npos);
  // times are the graph's, not those that the planner reckons with
  CHECK(by_bytes.find("for -") == std::string::npos);
}

TEST_CASE("a strategy that there is not is an error at once, and names those that there are",
          "[guided]") {
  try {
    MemoryBudget budget{1_GiB, {.run = {.strategy = "magic"}}};
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::bad_argument);
    CHECK(std::string(error.what()).find("mu-two") != std::string::npos);
  }
}

TEST_CASE("advice after one step is a budget that works", "[guided]") {
  StackLoop first;
  MemoryBudget budget{1024_GiB, at_once};
  budget.name_tensors_of(first.stack.layers);
  first.inside(budget);
  const Advice advice = budget.advise();
  CHECK(advice.unconstrained == budget.last().eager_peak);
  CHECK(advice.floor == budget.last().floor);
  CHECK(advice.shares.total() == advice.floor);
  CHECK(advice.shares.of(Role::parameter) == Bytes{6 * (64 * 64 + 64) * 4});
  CHECK(advice.smallest < advice.unconstrained);
  CHECK(advice.text().find("0.weight") != std::string::npos);
  budget.set(advice.smallest);
  for (int i = 0; i < 2; ++i) first.inside(budget);
  CHECK(budget.last().planned);
  CHECK(budget.last().peak <= advice.smallest);
}

TEST_CASE("an error above the budget says what is held and what would do", "[guided]") {
  StackLoop loop;
  MemoryBudgetOptions options = at_once;
  options.over_budget = OverBudget::error;
  MemoryBudget budget{1024_GiB, options};
  budget.name_tensors_of(loop.stack.layers);
  loop.inside(budget);
  budget.set(device_memory().live() + 10_KiB);
  std::string text;
  try {
    loop.inside(budget);
  } catch (const Error& error) {
    CHECK(error.code() == Errc::budget_unreachable);
    text = error.what();
  }
  CHECK(text.find("budget too small: aten::") == 0);
  CHECK(text.find("parameter") != std::string::npos);
  CHECK(text.find("largest: ") != std::string::npos);
  CHECK(text.find("smallest feasible budget") != std::string::npos);
  budget.set(1024_GiB);
  loop.inside(budget);
  StackLoop plain;
  plain.x = loop.x;
  plain();  // the step that threw has changed nothing: it failed in its forward pass
  plain();
  CHECK((contents(all_of(*plain.stack.layers)) == contents(all_of(*loop.stack.layers))));
}

TEST_CASE("above the budget by choice: a notice, and the step goes on", "[guided]") {
  StackLoop loop;
  std::vector<std::string> notices;
  MemoryBudgetOptions options = at_once;
  options.over_budget = OverBudget::go_on;
  options.run.on_notice = [&](const std::string& text) { notices.push_back(text); };
  MemoryBudget budget{device_memory().live() + 10_KiB, options};
  loop.inside(budget);
  CHECK(budget.last().over_budget);
  CHECK(budget.last().peak > budget.last().budget);
  REQUIRE_FALSE(notices.empty());
  CHECK(notices.front().find("is more than the budget of") != std::string::npos);
}

TEST_CASE("each step is told of, and summed up", "[guided]") {
  StackLoop loop;
  std::vector<GuidedStepReport> seen;
  MemoryBudgetOptions options = at_once;
  options.on_step = [&](const GuidedStepReport& report) { seen.push_back(report); };
  MemoryBudget budget{Budget::savable(50), options};
  for (int i = 0; i < 4; ++i) loop.inside(budget);
  REQUIRE(seen.size() == 4);
  CHECK_FALSE(seen[0].planned);
  CHECK(seen[3].planned);
  CHECK(seen[3].recomputed > 0);
  CHECK(seen[3].extra_time.count > 0);
  CHECK(seen[3].time.count > seen[3].extra_time.count);
  CHECK(budget.counters().steps == 4);
  CHECK(budget.counters().planned_steps == 3);
  const std::string summary = budget.summary();
  CHECK(summary.find("step: 4 steps: 3 planned, 1 online; ") == 0);
  CHECK(summary.find("predicted " + format_bytes(seen[3].predicted_peak)) != std::string::npos);
}

TEST_CASE("a report is a page about the step", "[guided]") {
  StackLoop loop;
  const reprise_test::TempDir folder;
  MemoryBudget budget{Budget::savable(50), at_once};
  budget.name_tensors_of(loop.stack.layers);
  for (int i = 0; i < 2; ++i) loop.inside(budget);
  const auto file = folder / "report.html";
  budget.report(file, 3);
  std::stringstream page;
  page << std::ifstream(file).rdbuf();
  CHECK(page.str().find("Memory before and after") != std::string::npos);
  CHECK(page.str().find("2 steps: 1 planned") != std::string::npos);
  CHECK_THROWS_WITH(budget.report(folder / "no/such/folder.html", 0),
                    contains("no/such/folder.html"));
}

TEST_CASE("a log line when a plan is made, used for the first time, and left", "[guided]") {
  StackLoop loop;
  std::string log;
  MemoryBudgetOptions options = at_once;
  options.run.log_level = LogLevel::info;
  options.run.on_log = [&](LogLevel, const std::string& text) { log += text + "\n"; };
  MemoryBudget budget{Budget::savable(50), options};
  for (int i = 0; i < 3; ++i) loop.inside(budget);
  CHECK(log.find("planned: ") != std::string::npos);
  CHECK(log.find("used for the first time") != std::string::npos);
  CHECK(log.find("left") == std::string::npos);
  {
    auto step = budget.step();
    static_cast<void>(torch::tanh(loop.x));
  }
  {
    auto step = budget.step();
    loop.optimizer.zero_grad();
    static_cast<void>(torch::tanh(loop.stack.forward(loop.x, gelu)));
  }
  CHECK(log.find("the plan was left at node ") != std::string::npos);
}

TEST_CASE("REPRISE=off makes a step do nothing", "[guided]") {
  const Environment off("REPRISE", "off");
  StackLoop loop;
  MemoryBudget budget{1_KiB};
  {
    auto step = budget.step();
    CHECK(DispatchHook::current() == nullptr);
    CHECK(memory_gate() == nullptr);
    auto joined = step.join_thread();
    step.pin(loop.x);
    loop();
    auto inner = budget.step();
    step.finish();
  }
  CHECK(budget.counters().steps == 0);
}

TEST_CASE(
    "plans are made in the background while steps run online, and are taken up when they are there",
    "[guided]") {
  StackLoop loop;
  MemoryBudget budget{1024_GiB,
                      {.run = {.planning = {.effort = 0.1}}, .plan_in_background = false}};
  loop.inside(budget);
  const Bytes eager = budget.last().eager_peak, floor = budget.last().floor;
  MemoryBudget background{floor + share_of(50, eager - floor),
                          {.run = {.planning = {.effort = 0.1}}}};
  loop.inside(background);
  CHECK_FALSE(background.last().planned);
  background.wait();
  loop.inside(background);
  CHECK(background.last().planned);
  CHECK(background.last().recomputed > 0);
}

TEST_CASE("a loop whose stream never comes again is not planned for ever", "[guided]") {
  StackLoop loop;
  MemoryBudget budget{
      1024_GiB,
      {.run = {.planning = {.effort = 0.1}, .max_plans = 2}, .plan_in_background = false}};
  for (int i = 0; i < 12; ++i) {
    auto step = budget.step();
    Tensor h = loop.x;
    for (int k = 0; k <= i; ++k) h = torch::tanh(h);
  }
  CHECK(budget.counters().plans <= 5);
  CHECK(budget.counters().online_steps == 12);
}

TEST_CASE("outside of a step nothing is recorded, and nothing of a step is left", "[guided]") {
  const Bytes before = device_memory().live();
  {
    StackLoop loop;
    MemoryBudget budget{Budget::savable(40), at_once};
    for (int i = 0; i < 3; ++i) {
      loop.inside(budget);
      CHECK(DispatchHook::current() == nullptr);
      CHECK(memory_gate() == nullptr);
      CHECK(device_memory().existing() == device_memory().live());
      for (const Tensor& t : all_of(*loop.stack.layers)) CHECK_FALSE(is_watched(t));
    }
  }
  CHECK(device_memory().live() == before);
}
