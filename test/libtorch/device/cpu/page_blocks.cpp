// Large blocks as pages of their own: what the process holds follows what its tensors hold.

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>
#include <reprise/libtorch.hpp>

#include <reprise_test/guided.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::replaying;
using namespace reprise::residency;
using namespace reprise::literals;
using reprise::testing::plan_by_bytes;
using torch::Tensor;

namespace {

Tensor block(Bytes bytes) { return torch::ones({bytes.count / 4}); }

/// How many of its elements have this value; takes no memory.
std::int64_t count(const Tensor& tensor, float value) {
  const auto* begin = tensor.const_data_ptr<float>();
  return std::count(begin, begin + tensor.numel(), value);
}

/// What waits for the next block of its size.
Bytes waiting() { return cpu_memory().reserved() - cpu_memory().live(); }

[[maybe_unused]] Bytes resident() {
  std::int64_t pages = 0;
  std::ifstream in("/proc/self/statm");
  in >> pages >> pages;
  return {pages * ::sysconf(_SC_PAGESIZE)};
}

}  // namespace

#ifdef __linux__
TEST_CASE("a freed block waits for the next of its size, and what waits counts as held") {
  const Bytes others = waiting();
  {
    MemoryLimit limit{cpu_memory().live() + 64_MiB};
    Tensor a = block(8_MiB);
    const void* address = a.data_ptr();
    a.reset();
    CHECK(waiting() - others >= 8_MiB);
    const Tensor b = block(8_MiB);
    CHECK(b.data_ptr() == address);
    CHECK(waiting() == others);
    const Tensor small = block(64_KiB);  // from the heap
    CHECK(waiting() == others);
  }
  CHECK(waiting() == others);  // nothing waits beyond the limit's scope
}

TEST_CASE("what waits never passes the limit, nor makes the process larger than its tensors were") {
  const Bytes before = cpu_memory().live(), others = waiting();
  MemoryLimit limit{before + 24_MiB};
  Tensor a = block(12_MiB), b = block(7_MiB);
  a.reset();
  CHECK(waiting() - others >= 12_MiB);
  cpu_memory().reset_peak();
  const Tensor c = block(14_MiB);  // 12 are too few: they are moved under it, and 2 are fresh
  CHECK(waiting() == others);
  CHECK(cpu_memory().reserved_peak() - others <= before + 22_MiB);
  b.reset();
  CHECK(waiting() - others >= 7_MiB);
  CHECK(cpu_memory().reserved_peak() - others <= before + 24_MiB);
  std::vector<Tensor> small;  // from the heap, but they count too
  while (cpu_memory().live() < before + 23_MiB) small.push_back(block(128_KiB));
  CHECK(cpu_memory().reserved_peak() - others <= before + 24_MiB);
  CHECK(waiting() - others <= 1_MiB);
}

TEST_CASE(
    "smaller blocks are taken from a larger one that waits, and are one run again when they have "
    "died") {
  const Bytes others = waiting();
  MemoryLimit limit{cpu_memory().live() + 64_MiB};
  Tensor a = block(24_MiB);
  const auto* begin = static_cast<const std::byte*>(a.data_ptr());
  a.reset();
  const Bytes all = waiting() - others;
  std::vector<Tensor> parts;
  for (int i = 0; i < 3; ++i) {
    parts.push_back(block(7_MiB));
    const auto* at = static_cast<const std::byte*>(parts.back().data_ptr());
    CHECK((at >= begin && at < begin + (24 << 20)));
    CHECK(parts.back().sum().item<float>() == 7 * 262144.0f);
  }
  // and none over another
  for (const Tensor& part : parts) CHECK(part.sum().item<float>() == 7 * 262144.0f);
  for (int i : {0, 2, 1}) parts[static_cast<std::size_t>(i)].reset();
  CHECK(waiting() - others == all);
  const Tensor b = block(24_MiB);
  CHECK(static_cast<const std::byte*>(b.data_ptr()) == begin);
  CHECK(waiting() == others);
}

TEST_CASE("pages that wait in several places are moved under one block, as they are") {
  const Bytes others = waiting();
  MemoryLimit limit{cpu_memory().live() + 32_MiB};
  Tensor a = torch::full({6 << 18}, 1.0f), kept = block(1_MiB), b = torch::full({5 << 18}, 2.0f),
         also_kept = block(1_MiB);
  a.reset();
  b.reset();
  // of nobody's contents: what fresh pages would have is 0
  const Tensor c = torch::empty({12 << 18});
  CHECK(count(c, 1) > (6 << 18) - 2048);  // but for headers, and what is more than whole pages
  CHECK(count(c, 2) > (5 << 18) - 2048);
  CHECK(count(c, 0) > (1 << 18) - 4096);
  CHECK(waiting() == others);
  CHECK(kept.sum().item<float>() == 262144.0f);
  CHECK(also_kept.sum().item<float>() == 262144.0f);
}

TEST_CASE("pages that the system will not move are given up, and the block comes all the same") {
  const Bytes before = cpu_memory().live(), others = waiting();
  MemoryLimit limit{before + 32_MiB};
  Tensor a = block(6_MiB), kept = block(1_MiB), b = block(5_MiB), also_kept = block(1_MiB);
  auto* middle = static_cast<std::byte*>(a.data_ptr()) + (3 << 20);
  middle -= reinterpret_cast<std::uintptr_t>(middle) % 4096;
  if (::mlock(middle, 4096) != 0) return;  // not allowed to: nothing to be seen
  // two areas for the system from here on, though nobody has told
  a.reset();
  b.reset();
  const Tensor c = block(12_MiB);
  CHECK(count(c, 1) == 12 << 18);
  CHECK(kept.sum().item<float>() == 262144.0f);
  CHECK(also_kept.sum().item<float>() == 262144.0f);
  CHECK(cpu_memory().reserved() - others <= before + 32_MiB);
  const Tensor d = block(8_MiB);  // and everything goes on
  CHECK(count(d, 1) == 8 << 18);
  CHECK(cpu_memory().reserved() - others <= before + 32_MiB);
}

TEST_CASE("blocks of all sizes come and go inside the limit, and keep what is in them") {
  const Bytes before = cpu_memory().live(), others = waiting();
  MemoryLimit limit{before + 64_MiB};
  std::mt19937 random(7);
  std::vector<Tensor> kept;
  const auto intact = [](const Tensor& t) {
    return count(t, *t.const_data_ptr<float>()) == t.numel();
  };
  for (int i = 0; i < 2000; ++i) {
    const Bytes bytes{(1 << 18) + static_cast<std::int64_t>(random() % (8u << 20))};
    while (cpu_memory().live() + bytes + 1_MiB > before + 64_MiB) {
      std::swap(kept[random() % kept.size()], kept.back());
      if (i % 4 == 0) REQUIRE(intact(kept.back()));
      kept.pop_back();
    }
    kept.push_back(torch::full({bytes.count / 4}, static_cast<float>(i)));
    REQUIRE(cpu_memory().reserved() - others <= before + 64_MiB);
  }
  for (const Tensor& t : kept) CHECK(intact(t));
}

TEST_CASE("blocks that die go back to the system, whatever lies between them") {
  std::vector<Tensor> small;
  const auto fill = [&] {
    std::vector<Tensor> large;
    for (int i = 0; i < 128; ++i) {
      large.push_back(block(1_MiB));
      small.push_back(block(64_B));
    }
    return large;
  };
  // glibc learns that blocks of this size come and go, and puts them into its heap from then on
  fill();
  MemoryLimit limit{cpu_memory().live() + 256_MiB};
  std::vector<Tensor> large = fill();
  const Bytes full = resident();
  large.clear();
  page_blocks().stop();
  CHECK(full - resident() > 100_MiB);
}

TEST_CASE(
    "outside of a step blocks come from what waits, then from the heap; nothing waits when the "
    "budget is gone") {
  const Bytes others = waiting();
  torch::nn::Linear net(512, 512);
  {
    MemoryBudget budget{cpu_memory().live() + 64_MiB};
    for (int i = 0; i < 3; ++i) {
      auto step = budget.step();
      net->zero_grad();
      net->forward(torch::ones({512, 512})).pow(2).sum().backward();
    }
    CHECK(PageBlocks::limit_here() == 0_B);
    const Bytes between = waiting();
    REQUIRE(between - others >= 1_MiB);
    Tensor validation = block(512_KiB);
    CHECK(between - waiting() >= 512_KiB);
    validation.reset();
    CHECK(waiting() == between);
    validation = block(64_MiB);  // more than waits
    CHECK(waiting() == between);
    validation.reset();
    CHECK(waiting() == between);
    TrainStep compiled{net, [&](const Tensor& x) { return net->forward(x).sum(); },
                       TrainStepOptions{.budget = cpu_memory().live() + 64_MiB,
                                        .on_fallback = OnFallback::error,
                                        .recheck = false}};
    compiled(torch::ones({512, 512}));
    compiled(torch::ones({512, 512}));
    CHECK(compiled.counters().replays == 1);
    // what waited for the guided steps has made room
    CHECK(waiting() - compiled.last().arena <= others);
  }
  CHECK(waiting() == others);
}

TEST_CASE("a block may outlive the limit, and be freed by another thread") {
  Tensor kept;
  const Bytes others = waiting();
  {
    MemoryLimit limit{cpu_memory().live() + 64_MiB};
    kept = block(4_MiB);
  }
  CHECK(kept.sum().item<float>() == 1048576.0f);
  const Bytes live = cpu_memory().live();
  std::thread([&] { kept.reset(); }).join();
  CHECK(live - cpu_memory().live() == 4_MiB);
  CHECK(waiting() == others);
}

// ── steps that ask for the same blocks ───────────────────────────────────────────────────────────

namespace {

/// A step by hand: 8 MiB, 5 MiB, then 6 MiB over the place of the first, and one of 4 MiB that
/// outlives it.
struct StepByHand {
  std::vector<const void*> addresses{};
  Tensor outlives{};

  void run() {
    addresses.clear();
    page_blocks().begin_step();
    Tensor a = note(block(8_MiB)), b = note(block(5_MiB));
    a.reset();
    const Tensor c = note(block(6_MiB));
    b.reset();
    outlives = note(block(4_MiB));
    page_blocks().end_step();
  }
  Tensor note(Tensor tensor) {
    addresses.push_back(tensor.data_ptr());
    return tensor;
  }
};

}  // namespace

TEST_CASE(
    "steps that ask for the same blocks have each at the same address, in as much memory as is "
    "alive at most") {
  const Bytes before = cpu_memory().live(), others = waiting();
  MemoryLimit limit{before + 64_MiB};
  StepByHand step;
  for (int i = 0; i < 2; ++i) {
    CHECK_FALSE(page_blocks().has_region());
    step.outlives.reset();
    step.run();
  }
  step.outlives.reset();
  step.run();
  CHECK(page_blocks().has_region());
  const std::vector<const void*> places = step.addresses;
  const auto [low, high] = std::ranges::minmax(places);
  CHECK(static_cast<const std::byte*>(high) - static_cast<const std::byte*>(low) < 13 << 20);
  cpu_memory().reset_peak();
  for (int i = 0; i < 3; ++i) {
    step.outlives.reset();
    step.run();
    CHECK(step.addresses == places);
  }
  CHECK(cpu_memory().reserved_peak() - others <= before + 13_MiB + 64_KiB);
}

TEST_CASE("what a dead block's pages are more than was asked for does not pass the limit either") {
  const Bytes before = cpu_memory().live(), others = waiting();
  MemoryLimit limit{before + 13_MiB};  // just what is alive at most
  StepByHand step;
  for (int i = 0; i < 6; ++i) {
    step.outlives.reset();
    step.run();
    if (i == 3) cpu_memory().reset_peak();
  }
  CHECK(page_blocks().has_region());
  CHECK(cpu_memory().peak() == before + 13_MiB);
  CHECK(cpu_memory().reserved_peak() - others <= before + 13_MiB);
}

TEST_CASE(
    "a block that is alive in another's place is left alone, and so is one whose region is gone") {
  const Bytes others = waiting();
  Tensor kept, also_kept;
  {
    MemoryLimit limit{cpu_memory().live() + 64_MiB};
    StepByHand step;
    for (int i = 0; i < 4; ++i) {
      step.outlives.reset();
      step.run();
    }
    kept = step.outlives.fill_(3);
    const void* const place = step.addresses.back();
    step.run();
    CHECK(step.addresses.back() != place);
    also_kept = step.outlives.fill_(4);
    CHECK(count(kept, 3) == 1 << 20);
    for (int i = 0; i < 4; ++i) {
      step.outlives.reset();
      step.run();
    }
    CHECK(count(kept, 3) == 1 << 20);
  }
  CHECK_FALSE(page_blocks().has_region());
  CHECK(waiting() == others);
  CHECK(count(kept, 3) == 1 << 20);
  CHECK(count(also_kept, 4) == 1 << 20);
  const Bytes live = cpu_memory().live();
  kept.reset();
  also_kept.reset();
  CHECK(live - cpu_memory().live() == 8_MiB);
  CHECK(waiting() == others);
}

TEST_CASE("what waits in a region makes room for blocks beside it, and inside the limit") {
  const Bytes before = cpu_memory().live(), others = waiting();
  const Bytes most = before + 16_MiB;
  MemoryLimit limit{most};
  StepByHand step;
  for (int i = 0; i < 4; ++i) {
    step.outlives.reset();
    step.run();
  }
  REQUIRE(page_blocks().has_region());
  step.outlives.reset();
  REQUIRE(waiting() - others >= 12_MiB);
  cpu_memory().reset_peak();
  page_blocks().begin_step();
  const Tensor other = block(11_MiB);  // unknown
  CHECK(cpu_memory().reserved() - others <= most);
  const Tensor five = block(5_MiB - 64_KiB);
  CHECK(cpu_memory().reserved_peak() - others <= most);
  page_blocks().end_step();
  CHECK(page_blocks().has_region());  // one such step is let pass
  CHECK(count(other, 1) == 11 << 18);
}

TEST_CASE(
    "blocks in their places are inside a limit that has come down, and what is beside them is "
    "inside of what was alive at most") {
  const Bytes before = cpu_memory().live(), others = waiting();
  std::optional<MemoryLimit> limit(std::in_place, before + 1024_MiB);
  StepByHand step;
  for (int i = 0; i < 4; ++i) {
    step.outlives.reset();
    step.run();
  }
  step.outlives.reset();
  page_blocks().begin_step();
  Tensor unknown = block(7_MiB);  // beside 13 that wait, where no more than 13 were ever alive
  CHECK(cpu_memory().reserved() - others <= before + 13_MiB + 512_KiB);
  unknown.reset();
  page_blocks().end_step();
  PageBlocks::limit_here() = before + 10_MiB;
  page_blocks().begin_step();
  const Tensor a = block(8_MiB);
  CHECK(cpu_memory().reserved() - others <= before + 10_MiB);
  page_blocks().end_step();
}

TEST_CASE(
    "a training loop in a region: the same numbers, the same addresses, the same peak, and room "
    "for validation between steps") {
  const auto loss_of = [](torch::nn::Sequential& net, const Tensor& x) {
    return net->forward(x).pow(2).mean();
  };
  const auto make = [] {
    torch::manual_seed(3);
    torch::nn::Sequential net;
    for (int i = 0; i < 6; ++i) {
      net->push_back(torch::nn::Linear(256, 256));
      net->push_back(torch::nn::Tanh());
    }
    return net;
  };
  torch::nn::Sequential eager = make(), guided = make();
  const Tensor x = torch::randn({2048, 256});
  torch::optim::SGD eager_sgd(eager->parameters(), 0.1), guided_sgd(guided->parameters(), 0.1);
  MemoryBudget budget{Budget::savable(50),
                      {.run = {.planner = plan_by_bytes}, .plan_in_background = false}};
  bool placed = false;
  Tensor expected;
  // What eager has taken between the steps may lie in the region and be in the way: then it is
  // given up, and laid out anew.
  for (int i = 0; i < 8 || ((!placed || waiting() < 8_MiB) && i < 16); ++i) {
    eager_sgd.zero_grad();
    loss_of(eager, x).backward();
    eager_sgd.step();
    {
      const torch::NoGradGuard no_grad;
      expected = loss_of(eager, x);  // before the step: what waits after it is the step's alone
    }
    guided_sgd.zero_grad();
    {
      auto step = budget.step();
      placed = page_blocks().has_region();
      loss_of(guided, x).backward();
    }
    if (i >= 2) {
      CHECK(budget.last().planned);
      CHECK(budget.last().peak == budget.last().predicted_peak);
      CHECK(budget.last().recomputed > 0);
    }
    guided_sgd.step();
    const auto a = eager->parameters(), b = guided->parameters();
    for (std::size_t k = 0; k < a.size(); ++k) CHECK(torch::equal(a[k], b[k]));
  }
  CHECK(placed);
  const torch::NoGradGuard no_grad;
  const Bytes between = waiting();
  REQUIRE(between >= 8_MiB);
  Tensor validation = loss_of(guided, x);
  CHECK(torch::equal(validation, expected));
  CHECK(waiting() == between);
  validation = block(4_MiB);
  CHECK(between - waiting() >= 4_MiB);
  validation.reset();
  CHECK(waiting() == between);
}

TEST_CASE("a step that throws teaches nothing, and the next ones go on") {
  torch::nn::Linear net(512, 512);
  const Tensor x = torch::ones({1024, 512});
  MemoryBudget budget{cpu_memory().live() + 64_MiB};
  for (int i = 0; i < 12; ++i) {
    net->zero_grad();
    try {
      auto step = budget.step();
      const Tensor loss = net->forward(x).pow(2).sum();
      if (i % 4 == 3) throw std::runtime_error("a bad batch");
      loss.backward();
    } catch (const std::runtime_error&) {
    }
    CHECK(PageBlocks::limit_here() == 0_B);
  }
  CHECK(net->weight.grad().defined() == false);  // of the last one, which threw
  auto step = budget.step();
  net->forward(x).pow(2).sum().backward();
  CHECK(net->weight.grad().defined());
}
#endif
