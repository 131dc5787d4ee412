// When plans are made in the background: which sequence, how hard, from what.

#include <reprise_test/guided.hpp>

#include <mutex>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::testing;
using torch::Tensor;

namespace {

/// What the planner was asked, by two threads.
struct Asked {
  std::mutex guard{};
  std::vector<PlanRequest> requests{};

  [[nodiscard]] std::vector<double> efforts() {
    const std::lock_guard lock(guard);
    std::vector<double> all;
    for (const PlanRequest& request : requests) all.push_back(request.effort);
    return all;
  }
};

struct Spy {
  std::shared_ptr<Asked> asked = std::make_shared<Asked>();

  [[nodiscard]] static std::string_view name() { return "spy"; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    {
      const std::lock_guard lock(asked->guard);
      asked->requests.push_back(request);
    }
    return Anneal{}.schedule(graph, request);
  }
};

constexpr double effort = 0.5;

/// A loop of a user's, with a batch of its own in each step; Adam has no state before its first.
struct AdamLoop {
  torch::nn::Sequential layers{};
  std::shared_ptr<torch::optim::Adam> optimizer{};

  AdamLoop() {
    torch::manual_seed(1);
    for (int i = 0; i < 8; ++i) {
      layers->push_back(torch::nn::Linear(64, 64));
      layers->push_back(torch::nn::GELU());
    }
    optimizer = std::make_shared<torch::optim::Adam>(layers->parameters(), 1e-3);
  }
  void operator()(int rows) {
    torch::manual_seed(3);
    const Tensor x = torch::randn({rows, 64});
    layers->zero_grad();
    layers->forward(x).pow(2).mean().backward();
    optimizer->step();
  }
};

/// A loop over these numbers of rows inside F + 50 % of (E - F) of the largest, in the background;
/// after each step its plans are waited for.
struct Watched {
  Spy spy{};
  AdamLoop loop{};
  std::unique_ptr<MemoryBudget> budget{};
  std::vector<GuidedStepReport> steps{};
  std::vector<std::string> log{};

  explicit Watched(int rows) {
    Bytes eager{}, floor{};
    {
      AdamLoop probe;
      MemoryBudget unlimited{1024_GiB, {.run = {.max_plans = 0}}};
      const Bytes before = cpu_memory().live();
      for (int i = 0; i < 3; ++i) {
        auto step = unlimited.step();
        probe(rows);
      }
      static_cast<void>(before);
      eager = unlimited.last().eager_peak - unlimited.last().base;
      floor = unlimited.last().floor - unlimited.last().base;
      base = unlimited.last().base - before;
    }
    MemoryBudgetOptions options{.run = {.planning = {.effort = effort}},
                                .over_budget = OverBudget::go_on};
    options.run.log_level = LogLevel::info;
    options.run.on_log = [this](LogLevel, std::string_view text) { log.emplace_back(text); };
    const Bytes bytes = cpu_memory().live() + base + floor + share_of(50, eager - floor);
    auto pipeline = DefaultPipeline{}.with(Planner<MeasuredCost, AnyStrategy>{AnyStrategy{spy}});
    budget = std::make_unique<MemoryBudget>(Budget(bytes), std::move(pipeline), CostSizeStaleness{},
                                            options);
  }
  void run(int rows, bool waits = true) {
    {
      auto step = budget->step();
      loop(rows);
    }
    steps.push_back(budget->last());
    if (waits) budget->wait();
  }
  [[nodiscard]] bool said(std::string_view text) const {
    return std::ranges::any_of(
        log, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  Bytes base{};
};

Contents eager(const std::vector<int>& rows) {
  AdamLoop loop;
  for (const int n : rows) loop(n);
  return contents(all_of(*loop.layers));
}

}  // namespace

TEST_CASE("the loop's first sequence is not planned, the second in haste, then thoroughly",
          "[guided]") {
  Watched watched(256);
  watched.run(256, false);
  CHECK(watched.budget->counters().plans == 0);
  CHECK(watched.spy.asked->efforts().empty());
  watched.run(256);
  CHECK(watched.budget->counters().plans == 1);
  CHECK_FALSE(watched.steps[1].planned);
  const std::vector<double> quick = watched.spy.asked->efforts();
  REQUIRE(quick.size() == 1);
  CHECK(quick[0] < effort);
  for (int i = 2; i < 5; ++i) {
    watched.run(256);
    INFO(watched.steps.back().left_because);
    CHECK(watched.steps.back().planned);
    CHECK(watched.steps.back().recomputed > 0);
    CHECK(watched.steps.back().peak == watched.steps.back().predicted_peak);
  }
  CHECK(watched.spy.asked->efforts() == std::vector{quick[0], effort});
  CHECK((contents(all_of(*watched.loop.layers)) == eager(std::vector(5, 256))));
}

TEST_CASE("the first sequence is planned where it comes again, or where that is waited for",
          "[guided]") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    Watched watched(256);
    // no state is made
    watched.loop.optimizer =
        std::make_shared<torch::optim::Adam>(std::vector<Tensor>{torch::zeros({})});
    watched.run(256, waits);
    CHECK(watched.spy.asked->efforts().size() == (waits ? 1 : 0));
    watched.run(256);
    if (!waits) CHECK_FALSE(watched.steps.back().planned);
    watched.run(256);
    CHECK(watched.steps.back().planned);
  }
}

TEST_CASE("sequences that take turns are planned for each, and guessed from their turns",
          "[guided]") {
  Watched watched(256);
  std::vector<int> rows;
  for (int i = 0; i < 10; ++i) rows.push_back(i % 2 == 0 ? 256 : 224);
  for (const int n : rows) watched.run(n);
  for (std::size_t i = 6; i < rows.size(); ++i) {
    INFO(i << " " << watched.steps[i].left_because);
    CHECK(watched.steps[i].planned);
    CHECK(watched.steps[i].left_because.empty());
    CHECK(watched.steps[i].peak == watched.steps[i].predicted_peak);
  }
  CHECK((contents(all_of(*watched.loop.layers)) == eager(rows)));
}

TEST_CASE("a plan serves the same ops of other sizes at once, until there is one of their own",
          "[guided]") {
  Watched watched(256);
  for (int i = 0; i < 4; ++i) watched.run(256);
  CHECK(watched.steps.back().planned);
  const std::size_t before = watched.spy.asked->efforts().size();
  watched.run(240, false);
  CHECK_FALSE(watched.steps.back().planned);
  CHECK(watched.said("the plan of a step with the same ops serves this one"));
  CHECK(watched.spy.asked->efforts().size() == before);
  watched.run(240);
  CHECK(watched.steps.back().planned);
  CHECK(watched.steps.back().recomputed > 0);
  REQUIRE(watched.spy.asked->efforts().size() == before + 1);
  CHECK(watched.spy.asked->efforts().back() == effort);
  CHECK_FALSE(watched.spy.asked->requests.back().starts.empty());
  CHECK((contents(all_of(*watched.loop.layers)) == eager({256, 256, 256, 256, 240, 240})));
}
