// More than one thread or process around a step: what joins it, what does not, and work that goes
// on behind it.

#include <reprise_test/guided.hpp>
#include <reprise_test/temp_dir.hpp>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <thread>

#include <unistd.h>

#include <torch/script.h>
#ifdef USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

using namespace reprise;
using namespace reprise::replaying;
using namespace reprise::tensors;
using namespace reprise::testing;
using namespace reprise::literals;
using reprise_test::TempDir;
using torch::Tensor;

namespace {

constexpr std::int64_t activation = 256 * 64 * 4;

}  // namespace

TEST_CASE("backward on a thread of its own that has joined the step", "[guided]") {
  Stack plain, ours;
  const Tensor x = torch::randn({256, 64});
  plain.forward(x, gelu).pow(2).mean().backward();
  const Contents expected = contents(all_of(*plain.layers));
  plain.layers->zero_grad();
  MemoryBudget budget{device_memory().live() + Bytes{11 * activation},
                      {.run = {.planning = {.effort = 0.1}},
                       .plan_in_background = false,
                       .over_budget = OverBudget::go_on}};
  for (int i = 0; i < 5; ++i) {
    ours.layers->zero_grad();
    {
      auto step = budget.step();
      Tensor loss = ours.forward(x, gelu).pow(2).mean();
      std::thread([&] {
        auto joined = step.join_thread();
        loss.backward();
      }).join();
    }
    CHECK((contents(all_of(*ours.layers)) == expected));
    CHECK(budget.last().recomputed > 0);
  }
  CHECK(budget.counters().planned_steps >= 4);
}

TEST_CASE("backward on a thread that has joined, at every budget", "[guided]") {
  check_planned(
      [] {
        return stack_program({}, [](Stack& stack, const Tensor& x, int) {
          stack.layers->zero_grad(true);
          Tensor loss = stack.forward(x, gelu).pow(2).mean();
          // as step.join_thread() does; none where the program runs by itself
          const DispatchHook* hook = DispatchHook::current();
          std::thread([&] {
            std::optional<DispatchHook::Joined> here;
            if (hook != nullptr) here.emplace(*hook);
            loss.backward();
          }).join();
        });
      },
      {70, 50, 35, least}, 6, 2);  // from the second step on there are gradients to be zeroed
}

TEST_CASE(
    "a thread that has not joined the step gets an error that says how to, and never reads what is "
    "not there",
    "[guided]") {
  Stack stack;
  const Tensor x = torch::randn({256, 64});
  MemoryBudget budget{device_memory().live() + Bytes{6 * activation},
                      {.run = {.max_plans = 0}, .over_budget = OverBudget::go_on}};
  std::string text;
  {
    auto step = budget.step();
    Tensor loss = stack.forward(x, gelu).pow(2).mean();
    std::thread([&] {
      try {
        loss.backward();
      } catch (const std::exception& error) {
        text = error.what();
      }
    }).join();
  }
  CHECK(text.find(storages_can_be_guarded ? "auto joined = step.join_thread();"
                                          : "not allocated") != std::string::npos);
  stack.layers->zero_grad();
  {
    auto step = budget.step();
    stack.forward(x, gelu).pow(2).mean().backward();
  }
  Stack plain;
  plain.forward(x, gelu).pow(2).mean().backward();
  CHECK((contents(all_of(*stack.layers)) == contents(all_of(*plain.layers))));
}

TEST_CASE(
    "a thread outside of the step takes pointers all the while, and neither waits for the other "
    "for ever",
    "[guided]") {
  Tensor w = torch::ones({64, 64});
  MemoryBudget budget{1_GiB, {.run = {.max_plans = 0}}};
  std::atomic<bool> over = false;
  std::thread other([&] {
    while (!over) static_cast<void>(w.data_ptr());
  });
  for (int i = 0; i < 2000; ++i) {
    auto step = budget.step();
    static_cast<void>((w * 2).sum());
  }
  over = true;
  other.join();
  CHECK(budget.counters().steps == 2000);
}

TEST_CASE("tensors whose last holder is another thread die while the step gives others up",
          "[guided]") {
  constexpr int count = 12;
  Tensor expected = torch::zeros({256, 64});
  for (int k = 0; k < count; ++k) expected = torch::tanh(expected + k);
  std::mutex guard;
  std::vector<Tensor> to_drop;
  std::atomic<bool> over = false;
  std::jthread other([&] {
    while (!over) {
      std::vector<Tensor> mine;  // dies after the lock
      const std::lock_guard lock(guard);
      std::swap(mine, to_drop);
    }
  });
  const struct End {
    std::atomic<bool>& over;
    ~End() { over = true; }
  } end{over};
  std::string notices;
  MemoryBudget budget{
      device_memory().live() + Bytes{(count + 4) * activation},
      {.run = {.max_plans = 0,
               .on_notice = [&](const std::string& text) { notices += text + "\n"; }},
       .over_budget = OverBudget::go_on}};
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 300; ++i) {
    std::vector<Tensor> inputs;
    for (int k = 0; k < count; ++k) inputs.push_back(torch::full({256, 64}, static_cast<float>(k)));
    std::vector<Tensor> kept;
    Tensor h = torch::zeros({256, 64});
    {
      auto step = budget.step();
      for (Tensor& input : inputs) {
        kept.push_back(h = torch::tanh(h + input));
        const std::lock_guard lock(guard);
        to_drop.push_back(std::move(input));
      }
    }
    INFO("step " << i << ": " << notices);
    REQUIRE(torch::equal(h, expected));
  }
  CHECK(budget.counters().steps == 300);
}

TEST_CASE("what another thread writes behind the step's back counts as written by the host",
          "[guided]") {
  if constexpr (!can_watch_host<>) return;  // nobody tells
  const Tensor x = torch::randn({256, 64});
  Tensor scale = torch::ones({256, 64});
  const auto run = [&](const std::function<void()>& meanwhile) {
    const torch::NoGradGuard no_grad;
    scale.fill_(1.5);
    Tensor h = x;
    std::vector<Tensor> all;
    for (int i = 0; i < 6; ++i) all.push_back(h = torch::tanh(h * scale));
    meanwhile();
    Tensor sum = torch::zeros_like(x);
    for (const Tensor& t : all) sum = sum + t * scale;
    return sum;
  };
  const auto write = [&] { std::thread([&] { scale.mul_(0.25); }).join(); };
  const Contents expected = contents({run(write)});
  MemoryBudget budget{device_memory().live() + Bytes{5 * activation},
                      {.run = {.max_plans = 0}, .over_budget = OverBudget::go_on}};
  Tensor result;
  {
    auto step = budget.step();
    result = run(write);
  }
  CHECK(budget.last().evicted > 0);
  CHECK((contents({result}) == expected));
}

namespace {
struct Numbers : torch::data::datasets::Dataset<Numbers> {
  Tensor all;
  explicit Numbers(Tensor numbers) : all(std::move(numbers)) {}
  torch::data::Example<> get(std::size_t i) override {
    return {all[static_cast<std::int64_t>(i)].clone() * 2, torch::tensor(static_cast<float>(i))};
  }
  [[nodiscard]] std::optional<std::size_t> size() const override { return 20; }
};
}  // namespace

TEST_CASE("a data loader with two workers inside of the step", "[guided]") {
  const auto make = [] {
    auto stack = std::make_shared<Stack>();
    auto optimizer = std::make_shared<torch::optim::SGD>(stack->layers->parameters(),
                                                         torch::optim::SGDOptions(0.01));
    const Tensor numbers =
        torch::arange(20 * 64 * 64, torch::kFloat).view({20, 64, 64}) / (20 * 64 * 64);
    return Program{
        .step =
            [=](int) {
              auto loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
                  Numbers{numbers}.map(torch::data::transforms::Stack<>()),
                  torch::data::DataLoaderOptions().batch_size(10).workers(2).enforce_ordering(
                      true));
              for (auto& batch : *loader) {
                optimizer->zero_grad();
                (stack->forward(batch.data, gelu).mean({1, 2}) - batch.target)
                    .pow(2)
                    .mean()
                    .backward();
                optimizer->step();
              }
            },
        .state = [=] { return all_of(*stack->layers); },
        .alone = false};
  };
  const Reference expected = reference(make, 5, true);
  // what the workers hold, and when, is another thing in every step: planned or not
  for (double share : {70., 50., 35., least}) {
    INFO(share << " %");
    CHECK(run_inside(make, expected, share).counters.recomputed > 0);
  }
}

TEST_CASE("a module that torch::jit::load gave is fine-tuned", "[guided]") {
  std::stringstream file;
  {
    torch::manual_seed(4);
    torch::jit::Module module("net");
    for (int i = 0; i < 6; ++i)
      module.register_parameter("w" + std::to_string(i), torch::randn({64, 64}) * 0.1, false);
    module.define(R"(
def forward(self, x):
    h = x
    for i in range(2):
        h = torch.gelu(torch.mm(h, self.w0))
        h = torch.tanh(torch.mm(h, self.w1))
        h = torch.gelu(torch.mm(h, self.w2))
    h = torch.sigmoid(torch.mm(h, self.w3))
    return torch.mm(torch.gelu(torch.mm(h, self.w4)), self.w5)
)");
    module.save(file);
  }
  const std::string bytes = file.str();
  check_planned(
      [bytes] {
        std::stringstream in(bytes);
        auto module = std::make_shared<torch::jit::Module>(torch::jit::load(in));
        std::vector<Tensor> parameters;
        for (const Tensor& p : module->parameters()) parameters.push_back(p.requires_grad_());
        auto optimizer =
            std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(0.1));
        torch::manual_seed(5);
        const Tensor x = torch::randn({256, 64}) * 0.5;
        return Program{[=](int) {
                         optimizer->zero_grad();
                         module->forward({x}).toTensor().pow(2).mean().backward();
                         optimizer->step();
                       },
                       [=] {
                         auto tensors = parameters;
                         for (const Tensor& p : parameters) tensors.push_back(p.grad());
                         return tensors;
                       }};
      },
      // the interpreter profiles its first runs and rewrites the code after them
      {70, 50, 35, least}, 8, 4);
}

#ifdef USE_C10D_GLOO
namespace {

/// A loop whose gradients are added up over two processes while it goes on. `share`: of what can be
/// saved; `least`: the smallest budget that a plan is found for; 0: without a budget.
Contents all_reduced(int rank, const std::string& file, double share) {
  auto store = c10::make_intrusive<c10d::FileStore>(file, 2);
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, 2);
  auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, 2, options);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  Stack stack;
  torch::optim::SGD optimizer(stack.layers->parameters(), torch::optim::SGDOptions(0.1));
  const Tensor x = torch::full({256, 64}, 0.1 + rank);
  const auto body = [&] {
    optimizer.zero_grad();
    Tensor loss = stack.forward(x, gelu).pow(2).mean();
    loss.backward();
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<std::vector<Tensor>> lists;
    for (const Tensor& p : stack.layers->parameters()) lists.push_back({p.grad()});
    for (auto& list : lists) works.push_back(group->allreduce(list));
    Tensor more = stack.forward(x, gelu).sum();  // meanwhile
    for (auto& work : works) work->wait();
    optimizer.step();
  };
  MemoryBudget budget{Budget::savable(share > 0 ? share : 50),
                      {.run = {.planner = plan_by_bytes, .planning = {.effort = 0.1}},
                       .plan_in_background = false}};
  for (int i = 0; i < 6; ++i) {
    if (share == 0) {
      body();
      continue;
    }
    {
      auto step = budget.step();
      body();
    }
    const GuidedStepReport& last = budget.last();
    // what Gloo's thread holds a little longer
    if (share == least && i == 1) budget.set(budget.advise().smallest + 256_KiB);
    if (i < 2) continue;  // from the second step on there are gradients to be zeroed
    CHECK(last.planned);
    CHECK(last.recomputed > 0);
    CHECK(last.moved == 0_B);
    CHECK(last.peak <= last.budget);
  }
  return contents(all_of(*stack.layers));
}

constexpr double shares[] = {0, 70, 50, 35, least};

}  // namespace

TEST_CASE("the other process of the all-reduce", "[.gloo_peer]") {
  const char* file = std::getenv("REPRISE_TEST_STORE");
  if (file == nullptr) return;
  for (double share : shares)
    static_cast<void>(all_reduced(1, file + std::to_string(share), share));
}

TEST_CASE("an asynchronous all-reduce of two processes inside of the step", "[guided]") {
  const TempDir dir;
  const std::string file = dir / "store";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command =
      "REPRISE_TEST_STORE='" + file + "' '" + self + "' '[.gloo_peer]' > /dev/null 2>&1";
  int peer = -1;
  std::thread other([&] { peer = std::system(command.c_str()); });
  const Contents plain = all_reduced(0, file + std::to_string(shares[0]), shares[0]);
  for (double share : {70., 50., 35., least}) {
    INFO(share << " %");
    CHECK((all_reduced(0, file + std::to_string(share), share) == plain));
  }
  other.join();
  CHECK(peer == 0);
}
#endif
