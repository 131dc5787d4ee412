#pragma once
// Eager beside replay: the same step run both ways from the same state, and everything that it
// leaves compared bit for bit.
//
//   compare_with_eager([] { return Subject{parameters, loss}; }, {x, y});
//
// makes two copies of the subject from one seed, trains both for five optimizer steps, and checks
// loss, gradients, parameters, buffers and the generator after each; that all steps but the first
// were replayed; that the capturing step took exactly what eager takes; and that the replayed ones
// took what the graph predicts, which is no more than eager.

#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/step_engine.hpp"

#include <reprise_test/catch.hpp>

namespace reprise::testing {

using namespace training;

/// A TrainStep that replays from the second call on, without running it under the recorder first.
template <class LossFn>
struct Replaying : TrainStep<LossFn> {
  template <class Model>
  Replaying(Model model, LossFn loss_fn, TrainStepOptions options = {})
      : TrainStep<LossFn>(model, loss_fn, without_recheck(std::move(options))) {}

  static TrainStepOptions without_recheck(TrainStepOptions options) {
    options.recheck = false;
    return options;
  }
};
template <class Model, class LossFn>
Replaying(Model, LossFn) -> Replaying<LossFn>;
template <class Model, class LossFn>
Replaying(Model, LossFn, TrainStepOptions) -> Replaying<LossFn>;

struct Subject {
  std::vector<torch::Tensor> parameters{};
  std::function<torch::Tensor(const std::vector<torch::Tensor>&)> loss{};
  std::vector<torch::Tensor> buffers{};
  /// where there is one: TrainStep is given it instead of the list of parameters
  std::shared_ptr<torch::nn::Module> module{};
};

inline bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type() || a.strides() != b.strides())
    return false;
  const torch::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

inline torch::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }
inline void set_generator_state(const torch::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

enum class OptimizerKind { sgd, adam };

inline std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    OptimizerKind kind, const std::vector<torch::Tensor>& parameters) {
  if (kind == OptimizerKind::adam)
    return std::make_unique<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-3));
  return std::make_unique<torch::optim::SGD>(parameters,
                                             torch::optim::SGDOptions(1e-2).momentum(0.9));
}

struct CompareOptions {
  int steps = 5;
  OptimizerKind optimizer = OptimizerKind::sgd;
  bool zero_grad = true;
  bool same_peak_when_captured = true;
};

/// What one step left behind.
inline bool same_state(const Subject& a, const Subject& b) {
  bool same = true;
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    INFO("parameter " << i);
    const bool parameter = same_bits(a.parameters[i], b.parameters[i]);
    const bool gradient = same_bits(a.parameters[i].grad(), b.parameters[i].grad());
    CHECK(parameter);
    CHECK(gradient);
    same = same && parameter && gradient;
  }
  for (std::size_t i = 0; i < a.buffers.size(); ++i) {
    INFO("buffer " << i);
    const bool buffer = same_bits(a.buffers[i], b.buffers[i]);
    CHECK(buffer);
    same = same && buffer;
  }
  return same;
}

template <class Step>
void compare_steps(Subject& eager, Subject& ours, Step& step,
                   const std::function<std::vector<torch::Tensor>(int)>& inputs,
                   const CompareOptions& options) {
  auto eager_optimizer = make_optimizer(options.optimizer, eager.parameters);
  auto our_optimizer = make_optimizer(options.optimizer, ours.parameters);
  for (int i = 0; i < options.steps; ++i) {
    INFO("step " << i);
    const std::vector<torch::Tensor> batch = inputs(i);
    const torch::Tensor before = generator_state();
    if (options.zero_grad) eager_optimizer->zero_grad();
    if (options.zero_grad) our_optimizer->zero_grad();

    const Bytes eager_base = device_memory().live();
    device_memory().reset_peak();
    torch::Tensor eager_loss = eager.loss(batch);
    eager_loss.backward();
    const Bytes eager_peak = device_memory().peak() - eager_base;
    eager_loss = eager_loss.detach();
    eager_optimizer->step();
    const torch::Tensor eager_generator = generator_state();

    set_generator_state(before);
    const torch::Tensor our_loss = step(batch);
    const TrainStepReport last = step.last();
    our_optimizer->step();

    CHECK(same_bits(eager_loss, our_loss));
    CHECK(same_bits(eager_generator, generator_state()));
    if (last.replayed) CHECK(last.peak == last.predicted_peak);
    CHECK((last.peak - last.base).count <= eager_peak.count);
    if (!last.replayed && options.same_peak_when_captured)
      CHECK((last.peak - last.base).count == eager_peak.count);
    if (!same_state(eager, ours)) return;
  }
}

inline TrainStepCounters compare_with_eager(
    const std::function<Subject()>& make,
    const std::function<std::vector<torch::Tensor>(int)>& inputs,
    const CompareOptions& options = {}) {
  torch::manual_seed(7);
  Subject eager = make();
  torch::manual_seed(7);
  Subject ours = make();
  std::string notices;
  const TrainStepOptions step_options{
      .run = {.on_notice = [&](const std::string& text) { notices += text + "\n"; }}};
  TrainStepCounters counters;
  const auto with = [&](auto&& model) {
    Replaying step{model, ours.loss, step_options};
    compare_steps(eager, ours, step, inputs, options);
    counters = step.counters();
  };
  if (ours.module) with(ours.module);
  else with(ours.parameters);
  INFO(notices);
  CHECK(counters.eager_runs == 0);
  CHECK(counters.guard_failures == 0);
  return counters;
}

/// The usual case: one input list for all steps, one capture, the rest replayed.
inline void replays_like_eager(const std::function<Subject()>& make,
                               const std::vector<torch::Tensor>& inputs,
                               const CompareOptions& options = {}) {
  const TrainStepCounters counters = compare_with_eager(
      make, [&](int) { return inputs; }, options);
  CHECK(counters.captures == 1);
  CHECK(counters.replays == options.steps - 1);
}

}  // namespace reprise::testing
