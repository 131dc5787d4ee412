#pragma once
// A Trainer is one copy of a model in training: its weights, its optimizer, its own random stream,
// its own bytes.
//
//   Trainer eager({"resnet18", models::Config::tiny}, Mode::eager);
//   Trainer replay({"resnet18", models::Config::tiny}, Mode::compiled);     // the same weights, drawn from the same seed
//   auto batch = eager.make_batch(0);
//   StepRecord a = eager.step(batch, replay.held());                         // forward, backward, optimizer
//   StepRecord b = replay.step(batch, eager.held());
//   first_difference(eager, replay);                                         // nothing: every bit is the same
//
// Two copies in one process, and each is measured as if it were alone. Copies never run at the same
// time, so everything that LibTorch's allocator holds at any moment belongs to one copy, to the
// other, or to both (the batch). A Trainer counts what its own calls leave behind (`held`:
// parameters, buffers, gradients, optimizer state, what a captured step keeps); what the other copy
// holds is passed to step() and taken off base, peak and prediction:
//
//   live bytes during b's step  =  a.held()  +  batch + b's own       and only the right-hand part is what b's process would hold
//
// A budget bounds that part too: the step is told what to leave out (TrainStep::exclude,
// MemoryBudget::exclude). So 50 % is half of what eager alone takes, and 2 GiB are 2 GiB for this
// copy, whether or not there is another.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "step_engine.hpp"

#include "models/task.hpp"

namespace examples {

using CompiledStep =
    reprise::TrainStep<std::function<torch::Tensor(const std::vector<torch::Tensor>&)>>;

/// The user's loop as it is; the step as a function, run from its graph; the loop as it is inside a
/// MemoryBudget.
enum class Mode { eager, compiled, guided, replay = compiled };

struct TrainerOptions {
  std::string model{};
  models::Config config = models::Config::tiny;
  std::int64_t batch = 0;  ///< 0: the configuration's own
  std::int64_t size = 0;   ///< sequence length or image side; 0: the configuration's own
  std::uint64_t seed = 1;
  std::string optimizer = "sgd";  ///< or "adam"
  // Of compiled and guided only:
  reprise::Budget budget{};
  std::string strategy = "anneal";  ///< one of reprise::strategy_names
  double effort = 1;                ///< of the planner's usual amount of work
  bool online = false;              ///< of guided: nothing is planned
  // Of compiled only:
  bool fallback = false;  ///< where no plan fits: move storages out, instead of throwing
  std::string plan_in{};  ///< a plan to run instead of making one
  bool verify = false;    ///< compare every replay with eager inside the step itself
};

/// What one step was like. Bytes are those of all tensors that a process with this copy alone would
/// hold.
struct StepRecord {
  double loss = 0;
  reprise::Bytes base{};            ///< when the step started, after zero_grad()
  reprise::Bytes peak{};            ///< at most during forward and backward
  reprise::Bytes predicted_peak{};  ///< what the graph's analysis says; not of eager
  reprise::Bytes optimizer_peak{};  ///< at most during the optimizer's step
  double seconds = 0;               ///< forward and backward, without planning
  // Of compiled and guided only:
  bool replayed = false;            ///< run from the graph, or as planned: its peak was predicted
  reprise::Bytes reserved_peak{};   ///< at most held: the arena as a whole, and all outside of it
  reprise::Bytes arena{};           ///< 0 where it ran without one
  std::int64_t arena_misses = 0;    ///< allocations that did not match the arena's plan
  reprise::Bytes budget{};          ///< 0 for none
  reprise::Bytes floor{};           ///< what no schedule can go below
  reprise::Bytes unlimited_peak{};  ///< what the step would have taken without a budget
  reprise::Bytes moved{};           ///< out, to stay inside the budget
  std::size_t recomputed = 0;       ///< ops that ran again
  double extra_time_predicted = 0;  ///< as a share of the step's own time
  double plan_seconds = 0;
  /// of guided: what was dropped or moved out online, and came back
  std::int64_t brought_back = 0;
};

class Trainer {
 public:
  Trainer(const TrainerOptions& options, Mode mode);
  /// Of a task of the caller's own.
  Trainer(const std::function<models::Task()>& make, const TrainerOptions& options, Mode mode);

  [[nodiscard]] std::vector<torch::Tensor> make_batch(std::int64_t step) const {
    return task_.make_batch(step);
  }

  /// One training step. `others` is what the other copies in the process hold.
  StepRecord step(const std::vector<torch::Tensor>& batch, reprise::Bytes others = {});

  [[nodiscard]] const models::Task& task() const { return task_; }
  [[nodiscard]] reprise::Bytes held() const { return held_; }
  /// Where this copy's random stream stands.
  [[nodiscard]] const at::Generator& stream() const { return stream_; }
  /// The compiled step; nullptr for other copies.
  [[nodiscard]] const CompiledStep* compiled() const { return compiled_.get(); }
  /// The budget around the loop; nullptr for other copies.
  [[nodiscard]] const reprise::MemoryBudget* guided() const { return guided_.get(); }

 private:
  torch::Tensor forward_backward(const std::vector<torch::Tensor>& batch);

  reprise::Bytes held_{};
  models::Task task_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<CompiledStep> compiled_;
  std::unique_ptr<reprise::MemoryBudget> guided_;
  at::Generator stream_;
};

/// Where two tensors differ in shape, type or any bit, as "element 17: 0.25 and 0.5"; nothing where
/// they do not.
[[nodiscard]] std::optional<std::string> first_difference(const torch::Tensor& a,
                                                          const torch::Tensor& b);

/// Compares parameters, gradients, buffers and random streams, bit for bit, and names the first
/// that differs.
[[nodiscard]] std::optional<std::string> first_difference(const Trainer& a, const Trainer& b);

}  // namespace examples
