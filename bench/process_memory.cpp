// What a process takes: its resident memory at most, beside what its budget bounds.
//
//   process_memory                               every case in a process of its own, inside its budget
//   process_memory --only scan                   one of them
//
// Users see the process, and a budget bounds what LibTorch's allocator holds. The difference is the
// memory that the allocator's count does not see: its gaps, oneDNN's scratch memory, what Reprise
// itself records.
//
//   grown     the largest resident memory, less what the process had before the first step
//   excess    grown - (budget - live bytes at the start); allowed are 5 % of the budget and 20 MiB

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <reprise/libtorch.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>

#include "models/task.hpp"
#include "support/child_process.hpp"
#include "support/cli.hpp"

namespace {

using reprise::Bytes;
using reprise::format_bytes;
using torch::Tensor;

/// A selective state-space model: a scan over time, an op at a time, as it is written without a
/// kernel of its own. Many small tensors.
struct Scan : torch::nn::Module {
  static constexpr std::int64_t width = 64, states = 16, length = 256, layers = 3;
  Scan() {
    for (int i = 0; i < layers; ++i) {
      in.push_back(register_module("in" + std::to_string(i), torch::nn::Linear(width, width)));
      select.push_back(
          register_module("select" + std::to_string(i), torch::nn::Linear(width, 2 * states + 1)));
      decay.push_back(
          register_parameter("decay" + std::to_string(i), torch::rand({width, states}) * -1.0));
    }
  }
  Tensor forward(Tensor x) {
    for (std::size_t i = 0; i < layers; ++i) {
      const Tensor u = torch::silu(in[i](x)), selected = select[i](x);
      const Tensor dt = torch::softplus(selected.slice(2, 0, 1));
      const Tensor b = selected.slice(2, 1, 1 + states), c = selected.slice(2, 1 + states);
      Tensor h = torch::zeros({x.size(0), width, states});
      std::vector<Tensor> ys;
      for (std::int64_t t = 0; t < length; ++t) {
        const Tensor step = dt.select(1, t).unsqueeze(2);
        h = h * torch::exp(step * decay[i]) +
            step * u.select(1, t).unsqueeze(2) * b.select(1, t).unsqueeze(1);
        ys.push_back((h * c.select(1, t).unsqueeze(1)).sum(2));
      }
      x = x + torch::stack(ys, 1);
    }
    return x;
  }
  std::vector<torch::nn::Linear> in{}, select{};
  std::vector<Tensor> decay{};
};

/// A graph network: messages along random edges, summed where they arrive.
struct GraphNet : torch::nn::Module {
  static constexpr std::int64_t nodes = 20000, edges = 100000, width = 64, layers = 4;
  GraphNet() {
    for (int i = 0; i < layers; ++i) {
      message.push_back(
          register_module("message" + std::to_string(i), torch::nn::Linear(2 * width, width)));
      update.push_back(
          register_module("update" + std::to_string(i), torch::nn::Linear(2 * width, width)));
    }
  }
  Tensor forward(Tensor h, const Tensor& from, const Tensor& to) {
    for (std::size_t i = 0; i < layers; ++i) {
      const Tensor m =
          torch::relu(message[i](torch::cat({h.index_select(0, from), h.index_select(0, to)}, 1)));
      const Tensor sum = torch::zeros_like(h).index_add(0, to, m);
      h = torch::layer_norm(h + torch::relu(update[i](torch::cat({h, sum}, 1))), {width});
    }
    return h;
  }
  std::vector<torch::nn::Linear> message{}, update{};
};

models::Task scan_task() {
  auto net = std::make_shared<Scan>();
  const Tensor x = torch::randn({8, Scan::length, Scan::width});
  return {"scan", 8, net, [x](std::int64_t) { return std::vector<Tensor>{x}; },
          [net](const std::vector<Tensor>& batch) { return net->forward(batch[0]).pow(2).mean(); }};
}

models::Task gnn_task() {
  auto net = std::make_shared<GraphNet>();
  const Tensor h = torch::randn({GraphNet::nodes, GraphNet::width});
  const Tensor from = torch::randint(GraphNet::nodes, {GraphNet::edges}),
               to = torch::randint(GraphNet::nodes, {GraphNet::edges});
  return {"gnn", 1, net,
          [=](std::int64_t) {
            return std::vector<Tensor>{h, from, to};
          },
          [net](const std::vector<Tensor>& batch) {
            return net->forward(batch[0], batch[1], batch[2]).pow(2).mean();
          }};
}

struct Case {
  const char* name;
  const char* what;
  std::function<models::Task()> make;
};

const std::vector<Case>& cases() {
  using models::Config;
  static const std::vector<Case> all{
      {"mlp", "MLP", [] { return models::make("mlp", Config::full); }},
      {"resnet50", "ResNet-50, batch 8", [] { return models::make("resnet50", Config::full, 8); }},
      {"unet", "U-Net", [] { return models::make("unet", Config::full, 2); }},
      {"lstm", "LSTM", [] { return models::make("lstm", Config::full); }},
      {"bert", "BERT-base, 4 x 128", [] { return models::make("bert", Config::full, 4, 1, 128); }},
      {"gpt2", "GPT-2, 1 x 256", [] { return models::make("gpt2", Config::full, 1, 1, 256); }},
      {"vit", "ViT", [] { return models::make("vit", Config::full, 4); }},
      {"scan", "state-space scan", &scan_task},
      {"gnn", "graph network", &gnn_task},
  };
  return all;
}

// What LibTorch loads and makes once, whatever the model: not this case's.
void warm_up() {
  for (const char* name : {"mlp", "resnet18", "bert", "lstm"}) {
    const models::Task task = models::make(name, models::Config::tiny);
    torch::optim::SGD optimizer(task.module->parameters(), 0.1);
    task.loss(task.make_batch(0)).backward();
    optimizer.step();
  }
}

Bytes resident() { return examples::kib_in("/proc/self/status", "VmRSS:"); }
void forget_peak() { std::ofstream("/proc/self/clear_refs") << 5; }

const Case& case_of(const std::string& name) {
  for (const Case& c : cases())
    if (name == c.name) return c;
  throw reprise::Error(reprise::Errc::bad_argument, "there is no case '" + name + "'");
}

void train(const models::Task& task, torch::optim::Optimizer& optimizer,
           const std::vector<Tensor>& batch) {
  optimizer.zero_grad();
  task.loss(batch).backward();
  optimizer.step();
}

// Tells the parent, on stderr, what no schedule can go below, and what eager takes.
int look_at_case(const std::string& name) {
  const models::Task task = case_of(name).make();
  torch::optim::SGD optimizer(task.module->parameters(), 1e-3);
  reprise::MemoryBudget budget{reprise::Bytes{std::int64_t{1} << 50},
                               {.plan_in_background = false}};
  for (int i = 0; i < 2; ++i) {
    const auto step = budget.step();
    train(task, optimizer, task.make_batch(0));
  }
  std::cerr << budget.last().floor.count << ' ' << budget.last().eager_peak.count << '\n';
  return examples::done;
}

int run_case(const std::string& name, const std::string& label, std::int64_t bytes,
             std::int64_t steps) {
  const Case& found = case_of(name);
  warm_up();
  torch::manual_seed(1);
  const models::Task task = found.make();
  torch::optim::SGD optimizer(task.module->parameters(), 1e-3);
  const auto batch = task.make_batch(0);
  std::optional<reprise::MemoryBudget> budget;
  if (bytes > 0) budget.emplace(Bytes{bytes});
  forget_peak();
  const Bytes before = resident(), start = reprise::device_memory().live();
  Bytes peak{};
  int planned = 0;
  for (std::int64_t i = 0; i < steps; ++i) {
    reprise::device_memory().reset_peak();
    {
      std::optional<reprise::MemoryBudget::Step> step;
      if (budget) step.emplace(*budget);
      train(task, optimizer, batch);
    }
    peak = std::max(peak, reprise::device_memory().peak());
    if (budget) planned += budget->last().planned ? 1 : 0;
  }
  const Bytes bound = budget ? Bytes{bytes} : peak;
  const Bytes grown = reprise::ResidentProbe::process_peak() - before;
  const Bytes excess = grown - (bound - start);
  const Bytes allowed{bound.count / 20 + (std::int64_t{20} << 20)};
  const char* verdict = excess <= allowed ? "met" : "missed";
  std::printf("%-20s%-8s%12s%12s%12s%12s%12s%6d  %s\n", found.what, label.c_str(),
              format_bytes(bound).c_str(), format_bytes(peak).c_str(), format_bytes(grown).c_str(),
              format_bytes(excess).c_str(), format_bytes(allowed).c_str(), planned,
              budget ? verdict : "");
  return examples::done;
}

int body(int argc, char** argv) {
  std::string one, only, label = "bytes";
  std::int64_t steps = 6, bytes = 0;
  bool look = false;
  examples::Flags flags("process_memory", "Resident memory of a process beside its budget.");
  flags.add("--only", "NAME", "mlp, resnet50, unet, lstm, bert, gpt2, vit, scan or gnn", only);
  flags.add("--steps", "N", "steps of each case", steps, 3);
  flags.add("--case", "NAME", "of the program's own use: one case, in this process", one);
  flags.add("--bytes", "N", "likewise: its budget; 0 for none", bytes);
  flags.add("--label", "TEXT", "likewise: the budget's name", label);
  flags.add("--look", "likewise: tells what the case can be asked for", look);
  if (!flags.parse(argc, argv)) return examples::done;
  if (look) return look_at_case(one);
  if (!one.empty()) return run_case(one, label, bytes, steps);
  std::printf("%-20s%-8s%12s%12s%12s%12s%12s%6s\n", "", "budget", "bytes", "live peak", "grown",
              "excess", "allowed", "plans");
  int code = examples::done;
  const auto log = std::filesystem::temp_directory_path() / "process_memory.log";
  const auto child = [&](const Case& c, const std::vector<std::string>& arguments) {
    std::fflush(stdout);
    std::vector<std::string> all{"--case", c.name};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto end = examples::run_self(all, log, [] { return false; });
    if (end.code == examples::done && end.signal == 0) return true;
    std::printf("%-20s%s\n", c.what, examples::last_line(log).c_str());
    code = examples::check_failed;
    return false;
  };
  for (const Case& c : cases()) {
    if (!only.empty() && only != c.name) continue;
    if (!child(c, {"--look"})) continue;
    std::istringstream told(examples::last_line(log));
    std::int64_t least = 0, most = 0;
    told >> least >> most;
    for (const int percent : {-1, 100, 50, 25}) {
      const std::int64_t budget = percent < 0 ? 0 : least + (most - least) / 100 * percent;
      static_cast<void>(child(c, {"--bytes", std::to_string(budget), "--label",
                                  percent < 0 ? "eager" : std::to_string(percent) + " %", "--steps",
                                  std::to_string(steps)}));
    }
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("process_memory", [&] { return body(argc, argv); });
}
