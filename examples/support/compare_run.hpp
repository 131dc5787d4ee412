#pragma once
// One variant of a training step at one batch size, measured; and what the planner says of it
// without running it.
//
//   Measured m = run_variant("TrainStep", {.model = "bert", .batch = 8, .budget = Budget::share(50)});
//
// Weights, data and random numbers come from one seed, so that loss and gradients of two variants
// can be compared by their digests.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "step_engine.hpp"

#include "compare_report.hpp"
#include "models/block.hpp"
#include "models/task.hpp"

namespace examples {

struct RunOptions {
  std::string model = "resnet18", config = "tiny", strategy = "anneal", spill{};
  reprise::Budget budget = reprise::Budget::share(50);
  // both ways of a budget plan once more after three steps, with the times of warm ops
  std::int64_t batch = 0, size = 0, warmup = 4, runs = 5;
  std::uint64_t seed = 1;
  double effort = 1;
  /// what a variant that can may hold before its budget is known; 0 for no limit
  reprise::Bytes cap{};
  std::string decisions{};  ///< a file for what TrainStep's plan computes again
};

/// FNV-1a over the bytes of tensors.
class Digest {
 public:
  void add(const torch::Tensor& tensor) {
    const torch::Tensor plain = tensor.detach().contiguous();
    const auto* bytes = static_cast<const unsigned char*>(plain.const_data_ptr());
    for (std::size_t i = 0; i < plain.nbytes(); ++i)
      state_ = (state_ ^ bytes[i]) * 1099511628211ULL;
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << std::hex << state_;
    return out.str();
  }

 private:
  std::uint64_t state_ = 14695981039346656037ULL;
};

/// The largest that the process has been since the last reset_resident_peak(); 0 where the system
/// does not tell.
[[nodiscard]] inline reprise::Bytes resident_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return {std::stoll(line.substr(6)) * 1024};
  return {};
}
inline void reset_resident_peak() { std::ofstream("/proc/self/clear_refs") << '5'; }

/// The four ways of running a step, behind one call each.
class Variant {
 public:
  Variant(const std::string& name, const RunOptions& options, const models::Task& task)
      : name_(name), task_(task) {
    const reprise::PlanRequest planning{.effort = options.effort};
    if (name == "TrainStep")
      compiled_ = std::make_unique<Compiled>(
          task.module, task.loss,
          reprise::TrainStepOptions{.budget = options.budget,
                                    .run = {.name = options.model,
                                            .strategy = options.strategy,
                                            .planning = planning,
                                            .limit_until_known = options.cap,
                                            .spill_folder = options.spill},
                                    .on_fallback = reprise::OnFallback::error,
                                    .recheck = false});
    if (name == "MemoryBudget")
      guided_ = std::make_unique<reprise::MemoryBudget>(
          options.budget, reprise::MemoryBudgetOptions{.run = {.name = options.model,
                                                               .strategy = options.strategy,
                                                               .planning = planning,
                                                               .limit_until_known = options.cap,
                                                               .spill_folder = options.spill},
                                                       .plan_in_background = false,
                                                       .over_budget = reprise::OverBudget::error});
  }

  torch::Tensor step(const std::vector<torch::Tensor>& batch) {
    if (compiled_) return (*compiled_)(batch);
    if (guided_) {
      auto inside = guided_->step();
      return eager(batch);
    }
    return eager(batch);
  }

  void describe(Measured& m) const {
    if (compiled_) {
      m.predicted = compiled_->last().predicted_peak;
      m.budget = compiled_->last().budget;
      m.recomputed = static_cast<std::size_t>(compiled_->last().recomputed);
    } else if (guided_) {
      m.predicted = guided_->last().predicted_peak;
      m.budget = guided_->last().budget;
      m.recomputed = static_cast<std::size_t>(guided_->last().recomputed);
    }
  }

  void write_decisions(const std::filesystem::path& file) const {
    if (!compiled_) return;
    std::ofstream out(file);
    reprise::write_decisions_csv(
        out, compiled_->graph(),
        reprise::decisions(compiled_->graph(), compiled_->plan().schedule));
  }

 private:
  using Compiled =
      reprise::TrainStep<std::function<torch::Tensor(const std::vector<torch::Tensor>&)>>;

  torch::Tensor eager(const std::vector<torch::Tensor>& batch) {
    torch::Tensor loss;
    if (name_ == "checkpoint") {
      const models::CheckpointBlocks by_hand;
      loss = task_.loss(batch);
    } else {
      loss = task_.loss(batch);
    }
    loss.backward();
    return loss.detach();
  }

  std::string name_;
  const models::Task& task_;
  std::unique_ptr<Compiled> compiled_;
  std::unique_ptr<reprise::MemoryBudget> guided_;
};

[[nodiscard]] inline models::Task make_task(const RunOptions& options) {
  return models::make(options.model,
                      options.config == "tiny" ? models::Config::tiny : models::Config::full,
                      options.batch, options.seed, options.size);
}

[[nodiscard]] inline Measured run_variant(const std::string& name, const RunOptions& options) {
  const models::Task task = make_task(options);
  const auto batch = task.make_batch(0);
  Variant variant(name, options, task);
  Measured m;
  m.variant = name;
  m.batch = task.batch;
  for (std::int64_t i = 0; i < options.warmup + options.runs; ++i) {
    torch::manual_seed(options.seed + static_cast<std::uint64_t>(i));
    task.module->zero_grad();
    reprise::device_memory().reset_peak();
    reset_resident_peak();
    const auto start = std::chrono::steady_clock::now();
    const torch::Tensor loss = variant.step(batch);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const reprise::Bytes peak = reprise::device_memory().reserved_peak(),
                         live = reprise::device_memory().peak(), resident = resident_peak();
    Digest digest;
    digest.add(loss);
    for (const torch::Tensor& p : task.module->parameters())
      if (p.grad().defined()) digest.add(p.grad());
    for (const torch::Tensor& b : task.module->buffers()) digest.add(b);
    m.bits.push_back(digest.text());
    if (i < options.warmup) continue;
    m.seconds.push_back(seconds);
    m.peak = std::max(m.peak, peak);
    m.live = std::max(m.live, live);
    m.resident = std::max(m.resident, resident);
  }
  variant.describe(m);
  if (!options.decisions.empty()) variant.write_decisions(options.decisions);
  return m;
}

/// What one capture, inside the cap, says of eager, and of a plan inside the budget.
struct Forecast {
  reprise::Bytes eager{}, floor{}, planned{};
  bool fits = false;  ///< a plan was found inside the budget
};

[[nodiscard]] inline Forecast forecast(const RunOptions& options) {
  using namespace reprise;
  using namespace reprise::recording;
  const models::Task task = make_task(options);
  torch::manual_seed(options.seed);
  const auto batch = task.make_batch(0);
  const CaptureOptions how{
      .name = options.model, .memory_limit = options.cap, .spill_folder = options.spill};
  const CapturedStep step = capture(task.module, task.loss, how, batch);
  Forecast f;
  f.eager = analyse_memory(step.graph()).peak;
  f.floor = floor_bytes(step.graph());
  const Bytes budget = options.budget.resolve(f.eager, f.floor);
  if (f.eager <= budget) {
    f.planned = f.eager;
    f.fits = true;
    return f;
  }
  try {
    const Plan plan =
        plan_with(options.strategy, step.graph(), {.budget = budget, .effort = options.effort});
    f.planned = plan.peak;
    f.fits = plan.peak <= budget;
  } catch (const Error& e) {
    if (e.code() != Errc::budget_unreachable) throw;
  }
  return f;
}

}  // namespace examples
