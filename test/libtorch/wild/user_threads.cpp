// Other threads take and free memory while a step runs: what belongs to the step is told apart, and
// a budget is never passed in silence.

#include <reprise_test/wild.hpp>

#include <atomic>
#include <thread>

using namespace reprise;
using namespace reprise::replaying;
using namespace reprise::training;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

constexpr std::int64_t activation = 256 * 64 * 4;

/// What another thread does at a moment that the test chooses: in the middle of a step, between two
/// ops or inside of one.
std::function<void()> meanwhile;

void elsewhere(const std::function<void()>& work) { std::thread(work).join(); }

Tensor take(Bytes bytes) { return torch::zeros({bytes.count / 4}); }

Tensor while_others_work(const Tensor& x) {
  if (meanwhile) elsewhere(meanwhile);
  return x.clone();
}
TORCH_LIBRARY(other_threads_test, library) { library.def("while_others_work(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(other_threads_test, CPU, library) {
  library.impl("while_others_work", &while_others_work);
}
Tensor call_while_others_work(const Tensor& x) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("other_threads_test::while_others_work", "")
      .typed<Tensor(const Tensor&)>()
      .call(x);
}

/// A stack whose loss lets other threads work in the middle of an op.
struct Watched {
  Stack stack{};
  Tensor x = torch::ones({256, 64});
  std::string notices{};

  auto step(Budget budget, OnFallback on_fallback = OnFallback::error) {
    const auto loss = [this](const Tensor& in) {
      const Tensor h = stack.forward(in, gelu);
      return h.pow(2).mean() + call_while_others_work(h.detach()).mean();
    };
    return Replaying{
        stack.layers, loss,
        TrainStepOptions{
            .budget = budget,
            .run = {.planner = plan_by_bytes,
                    .planning = {.effort = 0.1},
                    .refine = false,
                    .on_notice = [this](const std::string& text) { notices += text + "\n"; }},
            .on_fallback = on_fallback}};
  }
  template <class Step>
  Tensor run(Step& step) {
    stack.layers->zero_grad();
    return step(x);
  }
};

}  // namespace

TEST_CASE("a share of what a step takes does not know what other threads take and free meanwhile",
          "[wild]") {
  struct Numbers {
    Bytes budget{}, eager{}, floor{};
    std::vector<Bytes> workspace{};
    Contents loss{};
    bool operator==(const Numbers&) const = default;
  };
  const auto measure = [](const std::function<void()>& others) {
    Watched watched;
    auto step = watched.step(Budget::savable(60));
    meanwhile = others;
    Numbers numbers;
    numbers.loss = contents({watched.run(step)});
    const TrainStepReport& last = step.last();
    numbers.budget = last.budget - last.base;
    numbers.eager = last.eager_peak - last.base;
    numbers.floor = last.floor - last.base;
    CHECK(watched.run(step).defined());
    CHECK(step.last().replayed);
    CHECK(step.counters().workspace_changes == 0);
    CHECK_FALSE(step.last().over_budget);
    meanwhile = {};
    for (std::size_t i = 0; i < step.graph().node_count(); ++i)
      numbers.workspace.push_back(step.graph().node(NodeId{i}).workspace);
    return numbers;
  };
  const Numbers alone = measure({});
  CHECK(alone.eager > alone.budget);
  CHECK(alone.budget > alone.floor);

  Tensor theirs;
  CHECK(measure([&] { theirs = take(8_MiB); }) == alone);  // takes, and keeps
  // frees what is older than the step
  CHECK(measure([&] { theirs.reset(); }) == alone);
  // takes and frees within one op
  CHECK(measure([&] { static_cast<void>(take(8_MiB)); }) == alone);
  std::vector<Tensor> many;
  CHECK(measure([&] { many.push_back(take(1_MiB)); }) == alone);
}

TEST_CASE(
    "a recheck inside a share is not short of memory because another thread holds more than before",
    "[wild]") {
  Watched watched;
  Tensor theirs;
  const auto loss = [&](const Tensor& in) {
    if (meanwhile) elsewhere(meanwhile);
    return watched.stack.forward(in, gelu).pow(2).mean();
  };
  TrainStep step{watched.stack.layers, loss,
                 TrainStepOptions{.budget = Budget::savable(90),
                                  .run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}},
                                  .on_fallback = OnFallback::error}};
  Tensor first = watched.run(step);
  meanwhile = [&] { theirs = take(8_MiB); };
  CHECK(same_bits(watched.run(step), first));
  CHECK(step.counters().rechecks == 1);
  CHECK_FALSE(step.last().over_budget);
  meanwhile = {};
}

TEST_CASE("a TrainStep whose budget is passed by another thread says so", "[wild]") {
  Watched watched;
  Bytes own{};
  {
    auto probe = watched.step(Budget::savable(80));
    static_cast<void>(watched.run(probe));
    static_cast<void>(watched.run(probe));
    own = probe.last().reserved_peak - probe.last().base;
  }
  watched.stack.layers->zero_grad();
  auto step = watched.step(device_memory().live() + own + Bytes{activation}, OnFallback::notice);
  static_cast<void>(watched.run(step));
  static_cast<void>(watched.run(step));
  REQUIRE(step.last().replayed);
  CHECK_FALSE(step.last().over_budget);
  CHECK(step.last().elsewhere == 0_B);
  CHECK(watched.notices.empty());
  meanwhile = [] { static_cast<void>(take(8_MiB)); };
  static_cast<void>(watched.run(step));
  meanwhile = {};
  CHECK(step.last().over_budget);
  CHECK(step.last().reserved_peak > step.last().budget);
  CHECK(step.last().elsewhere > 6_MiB);
  CHECK_THAT(watched.notices, contains("this step went above its budget") &&
                                  contains("Threads that are not part of the step took"));
}

TEST_CASE(
    "a guided step makes room at its next op for what another thread has taken, and reports the "
    "peak",
    "[wild]") {
  const auto run = [](Stack& stack, const Tensor& x, const std::function<void()>& middle) {
    stack.layers->zero_grad();
    Tensor h = stack.forward(x, gelu);
    middle();
    Tensor loss = torch::tanh(h).pow(2).mean();
    loss.backward();
  };
  const Tensor x = torch::ones({256, 64});
  Stack plain, ours;
  run(plain, x, [] {});
  Bytes above{};
  std::string notices;
  {
    MemoryBudget probe{1024_GiB, {.run = {.max_plans = 0}}};
    {
      auto step = probe.step();
      run(ours, x, [] {});
    }
    above = probe.last().peak - probe.last().base;
  }
  ours.layers->zero_grad();
  const Bytes limit = device_memory().live() + above + Bytes{activation};
  MemoryBudget budget{
      limit,
      {.run = {.max_plans = 0,
               .on_notice = [&](const std::string& text) { notices += text + "\n"; }},
       .over_budget = OverBudget::go_on}};
  Tensor theirs;
  Bytes after_next_op{};
  {
    auto step = budget.step();
    run(ours, x, [&] {
      elsewhere([&] { theirs = take(Bytes{8 * activation}); });
      CHECK(device_memory().live() > limit);
      static_cast<void>(torch::ones({1}));
      after_next_op = device_memory().live();
    });
  }
  CHECK(after_next_op <= limit);
  CHECK(budget.last().evicted > 0);
  CHECK(budget.last().over_budget);  // for as long as it took until the next op
  CHECK(budget.last().peak > budget.last().budget);
  CHECK(budget.last().elsewhere > 0_B);
  CHECK(budget.last().elsewhere <= Bytes{8 * activation});
  CHECK_THAT(notices, contains("threads that are not part of the step"));
  CHECK((contents(all_of(*ours.layers)) == contents(all_of(*plain.layers))));

  theirs.reset();
  ours.layers->zero_grad();
  notices.clear();
  {
    auto step = budget.step();
    run(ours, x, [] {});
  }
  CHECK_FALSE(budget.last().over_budget);
  CHECK(budget.last().elsewhere == 0_B);
  CHECK(notices.empty());
}

TEST_CASE("what a guided step would take without a budget does not know of other threads",
          "[wild]") {
  const auto eager_above = [](const std::function<void()>& others) {
    Stack stack;
    const Tensor x = torch::ones({256, 64});
    MemoryBudget budget{1024_GiB, {.run = {.max_plans = 0}}};
    {
      auto step = budget.step();
      Tensor h = stack.forward(x, gelu);
      if (others) elsewhere(others);
      h.pow(2).mean().backward();
    }
    return budget.last().eager_peak - budget.last().base;
  };
  const Bytes alone = eager_above({});
  Tensor theirs;
  CHECK(eager_above([&] { theirs = take(8_MiB); }) == alone);
  CHECK(eager_above([&] { theirs.reset(); }) == alone);
}

TEST_CASE("a model trains in a budget while another thread trains a second one, without a budget",
          "[wild]") {
  std::atomic<bool> over = false;
  std::jthread other([&] {
    torch::nn::Sequential second(torch::nn::Linear(64, 64), torch::nn::GELU(),
                                 torch::nn::Linear(64, 64));
    while (!over) {
      second->zero_grad();
      second->forward(torch::ones({512, 64})).pow(2).mean().backward();
    }
  });
  const struct End {
    std::atomic<bool>& over;
    ~End() { over = true; }
  } end{over};
  const auto make = [] {
    Program program = stack_program(gelu);
    program.alone = false;
    return program;
  };
  const Reference expected = reference(make, 4);
  for (const double share : {70., 30.}) {
    for (const bool plans : {true, false}) {
      INFO(share << " %");
      for (const GuidedStepReport& step : run_inside(make, expected, share, plans).steps)
        CHECK(step.over_budget == (step.peak > step.budget));
    }
  }
}

TEST_CASE("a thread that has not joined works on tensors of its own inside the step", "[wild]") {
  const auto make = [] {
    auto stack = std::make_shared<Stack>();
    auto optimizer = std::make_shared<torch::optim::SGD>(stack->layers->parameters(),
                                                         torch::optim::SGDOptions(0.01));
    const Tensor x = torch::full({256, 64}, 0.5);
    auto seen = std::make_shared<float>();
    return Program{
        .step =
            [=](int) {
              optimizer->zero_grad();
              Tensor h = stack->forward(x, gelu);
              elsewhere([&] { *seen += torch::ones({256, 64}).mul(2).exp().sum().item<float>(); });
              h.pow(2).mean().backward();
              optimizer->step();
            },
        .state =
            [=] {
              std::vector<Tensor> all = all_of(*stack->layers);
              all.push_back(torch::full({1}, *seen));
              return all;
            },
        .alone = false};
  };
  for (const WildOutcome& outcome : check_wild(make))
    for (const GuidedStepReport& step : outcome.steps)
      CHECK((step.over_budget || step.peak <= step.budget));
}
