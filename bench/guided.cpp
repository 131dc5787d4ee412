// A training loop inside a MemoryBudget beside the same loop without one, in one run: time, memory,
// what the recorder costs an op, and what a choice of the eviction policy costs however long the
// step is.
//
//   guided [--quick] [--only NAME] [--pairs N] [--threads N] [--json FILE]
//
// For each model and budget two copies take turns, step by step, on the same batch; the median of
// the ratios of their times is the result. The eager one has a process of its own, without
// Reprise's allocator (eager_process.hpp). Budgets are F + q (E - F): E is eager's peak, F what no
// schedule can go below; "above the peak" is a budget that is never reached. At the end both copies
// must be equal, bit for bit. The cases `depth` (a ResNet that leaves blocks out by host
// randomness) and `experts` (rows go to experts by data) run online throughout.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>

#include "cases.hpp"
#include "eager_process.hpp"
#include "side_by_side.hpp"

namespace {

using bench::BudgetRow;
using examples::Mode;
using examples::quantile;
using examples::Trainer;
using examples::TrainerOptions;
using torch::Tensor;

// ── two models that no plan can be made for ──────────────────────────────────────────────────────

struct Residual : torch::nn::Module {
  explicit Residual(int channels)
      : a(torch::nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)),
        b(torch::nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)),
        m(channels),
        n(channels) {
    register_module("a", a);
    register_module("b", b);
    register_module("m", m);
    register_module("n", n);
  }
  Tensor forward(const Tensor& x) { return torch::relu(x + n(b(torch::relu(m(a(x)))))); }
  torch::nn::Conv2d a, b;
  torch::nn::BatchNorm2d m, n;
};

/// Sixteen residual blocks; each is left out one time in five, by a coin that the host throws.
struct StochasticDepth : torch::nn::Module {
  StochasticDepth() {
    register_module("stem", stem);
    for (int i = 0; i < 16; ++i)
      blocks.push_back(
          register_module("block" + std::to_string(i), std::make_shared<Residual>(64)));
    register_module("head", head);
  }
  Tensor forward(Tensor x) {
    x = torch::relu(stem(x));
    for (auto& block : blocks)
      if (coin() % 5 != 0) x = block->forward(x);
    return head(x.mean({2, 3}));
  }
  torch::nn::Conv2d stem{torch::nn::Conv2dOptions(3, 64, 3).stride(2).padding(1)};
  std::vector<std::shared_ptr<Residual>> blocks{};
  torch::nn::Linear head{64, 10};
  std::mt19937 coin{3};
};

/// Eight layers of four experts; each row goes to the one that a router picks, so that shapes
/// depend on data.
struct Experts : torch::nn::Module {
  static constexpr int layers = 8, experts = 4, width = 512;
  Experts() {
    for (int i = 0; i < layers; ++i) {
      routers.push_back(
          register_module("router" + std::to_string(i), torch::nn::Linear(width, experts)));
      for (int e = 0; e < experts; ++e)
        inner.push_back(register_module(
            "expert" + std::to_string(i) + "_" + std::to_string(e),
            torch::nn::Sequential(torch::nn::Linear(width, 2 * width), torch::nn::GELU(),
                                  torch::nn::Linear(2 * width, width))));
    }
  }
  Tensor forward(Tensor x) {
    for (std::size_t i = 0; i < layers; ++i) {
      const Tensor gate = torch::softmax(routers[i](x), 1), chosen = gate.argmax(1);
      Tensor out = torch::zeros_like(x);
      for (std::size_t e = 0; e < experts; ++e) {
        const Tensor rows = torch::nonzero(chosen == static_cast<std::int64_t>(e)).squeeze(1);
        const Tensor weight =
            gate.select(1, static_cast<std::int64_t>(e)).index_select(0, rows).unsqueeze(1);
        out = out.index_add(0, rows,
                            weight * inner[i * experts + e]->forward(x.index_select(0, rows)));
      }
      x = torch::layer_norm(x + out, {width});
    }
    return x;
  }
  std::vector<torch::nn::Linear> routers{};
  std::vector<torch::nn::Sequential> inner{};
};

models::Task depth_task() {
  torch::manual_seed(1);
  auto net = std::make_shared<StochasticDepth>();
  return {"depth", 8, net,
          [](std::int64_t) {
            return std::vector<Tensor>{torch::full({8, 3, 64, 64}, 0.1), torch::arange(8)};
          },
          [net](const std::vector<Tensor>& batch) {
            return torch::cross_entropy_loss(net->forward(batch[0]), batch[1]);
          }};
}

models::Task experts_task() {
  torch::manual_seed(1);
  auto net = std::make_shared<Experts>();
  return {"experts", 2048, net,
          [](std::int64_t) {
            torch::manual_seed(5);
            return std::vector<Tensor>{torch::randn({2048, Experts::width})};
          },
          [net](const std::vector<Tensor>& batch) { return net->forward(batch[0]).pow(2).mean(); }};
}

// ── steps ────────────────────────────────────────────────────────────────────────────────────────

struct Case : bench::ModelCase {
  std::function<models::Task()> make{};  // where it is none of the examples' models
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {bench::resnet50},
      {bench::resnet152},
      {bench::bert},
      {bench::gpt2},
      {{"depth", "stochastic depth", {.model = "depth"}}, &depth_task},
      {{"experts", "mixture of experts", {.model = "experts"}}, &experts_task},
  };
  return all;
}

std::unique_ptr<Trainer> trainer_of(const Case& test, const TrainerOptions& options, Mode mode) {
  if (test.make) return std::make_unique<Trainer>(test.make, options, mode);
  return std::make_unique<Trainer>(options, mode);
}

BudgetRow measure(const Case& test, const reprise::Budget& budget, bool online,
                  std::int64_t pairs) {
  BudgetRow row{.name = test.name, .what = test.what};
  TrainerOptions options = test.trainer;
  options.budget = budget;
  options.online = online;
  const auto ours = trainer_of(test, options, Mode::guided);
  bench::EagerProcess eager(
      {"--eager", test.name, "--threads", std::to_string(torch::get_num_threads())});
  // recorded and planned, planned with warm times, followed twice, then every block has its place
  constexpr std::int64_t warm_up = 5;
  if (!bench::run_pairs(row, eager, *ours, pairs,
                        [](std::int64_t i, const examples::StepRecord&) { return i >= warm_up; }))
    row.problem = "not reached: " + *row.problem;
  row.eager_peak = ours->guided()->last().eager_peak;
  return row;
}

void print(const BudgetRow& row) {
  std::printf("%-20s%-18s", row.what.c_str(), row.budget.c_str());
  if (row.ratio == 0) {
    std::printf("%s\n", row.problem.value_or("").substr(0, 90).c_str());
    return;
  }
  std::printf("%12s%12s%12s%8.3f  %.3f-%.3f%8.1f s  %4zu again  %s\n",
              format_bytes(row.eager_peak).c_str(), format_bytes(row.last.floor).c_str(),
              format_bytes(row.last.peak).c_str(), row.ratio, row.low, row.high, row.plan_s,
              row.last.recomputed, bench::verdict(row).c_str());
  std::fflush(stdout);
}

// ── ops ──────────────────────────────────────────────────────────────────────────────────────────

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// What a step costs an op beyond eager, in microseconds: forward and backward of tiny ops under a
/// budget that is never reached.
double recorder_us(int rounds) {
  Tensor w = torch::ones({4}).requires_grad_();
  constexpr int depth = 500;
  const auto body = [&] {
    w.mutable_grad() = Tensor();
    Tensor h = w;
    for (int i = 0; i < depth; ++i) h = h * w + w;
    h.sum().backward();
  };
  reprise::MemoryBudget budget{reprise::Bytes{std::int64_t{1} << 50},
                               {.plan_in_background = false}};
  std::vector<double> extra;
  std::size_t ops = 0;
  for (int i = 0; i < rounds + 3; ++i) {
    const double eager = seconds_of(body);
    const double ours = seconds_of([&] {
      auto step = budget.step();
      body();
    });
    ops = budget.graph().node_count();
    if (i >= 3) extra.push_back((ours - eager) / static_cast<double>(ops) * 1e6);
  }
  return quantile(extra, 0.5);
}

/// A chain of tiny ops whose results are all kept, in a fifth of the memory that they take: each op
/// makes the policy choose.
double eviction_us(int ops) {
  const Tensor x = torch::ones({64});
  const torch::NoGradGuard no_grad;
  reprise::MemoryBudget budget{
      reprise::device_memory().live() + reprise::Bytes{std::int64_t{ops} * 256 / 5},
      {.run = {.max_plans = 0}, .over_budget = reprise::OverBudget::go_on}};
  std::vector<Tensor> kept;
  kept.reserve(static_cast<std::size_t>(ops));
  auto step = budget.step();
  const double seconds = seconds_of([&] {
    Tensor h = x;
    for (int i = 0; i < ops; ++i) kept.push_back(h = h + 1);
  });
  kept.clear();
  return seconds / ops * 1e6;
}

int run_eager(const std::string& name) {
  bench::use_stock_allocator();
  const Case& test = *std::ranges::find(cases(), name, &Case::name);
  return bench::serve_eager(*trainer_of(test, test.trainer, Mode::eager));
}

int run(int argc, char** argv) {
  bench::StepFlags options;
  std::string eager;
  examples::Flags flags("guided", "Time and memory of a loop inside a MemoryBudget, beside eager.");
  options.add_to(flags, "few steps: is it in the right place?",
                 "resnet50, resnet152, bert, gpt2, depth, experts or ops",
                 "steps of each copy; 0: 9, or 3 where quick");
  flags.add("--eager", "NAME", "of the benchmark's own use: the other copy", eager);
  if (!flags.parse(argc, argv)) return examples::done;
  if (!eager.empty()) options.only = eager;
  options.apply(cases(), "ops");
  if (!eager.empty()) return run_eager(eager);
  const std::int64_t pairs = options.pairs > 0 ? options.pairs : options.quick ? 3 : 9;

  nlohmann::ordered_json results{{"steps", nlohmann::ordered_json::array()}};
  if (options.wants("ops")) {
    const double us = recorder_us(options.quick ? 5 : 25);
    std::printf("recorder: %.2f us an op beyond eager (aim 1.5: %s)\n", us,
                us <= 1.5 ? "met" : "missed");
    results["recorder_us"] = us;
    std::printf("online eviction on every op of a chain, us an op:");
    for (const int n : {1'000, 10'000, 100'000}) {
      const double each = eviction_us(n);
      std::printf("  %d ops %.2f", n, each);
      std::fflush(stdout);
      results["eviction_us"][std::to_string(n)] = each;
    }
    std::printf("\n");
  }
  std::printf("%-20s%-18s%12s%12s%12s%8s  %-11s%10s\n", "", "budget", "E", "F", "peak", "ratio",
              "middle half", "planning");
  bool equal = true;
  const auto add = [&](const Case& test, const reprise::Budget& budget, std::string name,
                       double aim, bool online) {
    BudgetRow row = measure(test, budget, online, pairs);
    row.budget = std::move(name);
    row.aim = aim;
    print(row);
    results["steps"].push_back(bench::common_json(row));
    equal = equal && !row.failed();
  };
  for (const Case& test : cases()) {
    if (!options.wants(test.name)) continue;
    add(test, reprise::Budget(reprise::Bytes{std::int64_t{1} << 50}), "above the peak", 1.02,
        false);
    if (!test.make) {
      add(test, reprise::Budget::savable(50), "50 % planned", 1.05, false);
      add(test, reprise::Budget::savable(25), "25 % planned", 1.25, false);
    }
    add(test, reprise::Budget::savable(50), "50 % online", 1.25, true);
  }
  if (!options.json.empty()) bench::write_text(options.json, results.dump(2) + "\n");
  return equal ? examples::done : examples::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("guided", [&] { return run(argc, argv); });
}
