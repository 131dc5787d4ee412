#include "support/trainer.hpp"

#include <chrono>
#include <cstring>
#include <sstream>

#include <ATen/CPUGeneratorImpl.h>

#include "support/optimizer.hpp"

namespace examples {
namespace {

/// Adds what the allocator holds more (or less) at the end of a scope than at its start.
class Charge {
 public:
  explicit Charge(reprise::Bytes& account) : account_(account), before_(reprise::cpu_memory().live()) {}
  ~Charge() { account_ += reprise::cpu_memory().live() - before_; }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  reprise::Bytes& account_;
  reprise::Bytes before_;
};

models::Task make_task(const TrainerOptions& options, reprise::Bytes& held) {
  const Charge charge(held);
  return models::make(options.model, options.config, options.batch, options.seed, options.size);
}

void copy_state(const at::Generator& from, at::Generator to) { to.set_state(from.get_state()); }

template <class T>
std::string show(const torch::Tensor& values, std::int64_t element) {
  std::ostringstream text;
  text.precision(17);
  text << values.flatten()[element].item<T>();
  return text.str();
}

std::string show(const torch::Tensor& values, std::int64_t element) {
  return values.is_floating_point() ? show<double>(values, element) : show<std::int64_t>(values, element);
}

bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  return a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

using Named = torch::OrderedDict<std::string, torch::Tensor>;

std::optional<std::string> first_named_difference(const char* what, const Named& a, const Named& b, bool gradients = false) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto& left = a[i].value();
    const auto& right = b[i].value();
    const auto where = gradients ? first_difference(left.grad(), right.grad()) : first_difference(left, right);
    if (where) return std::string(what) + " " + a[i].key() + ", " + *where;
  }
  return std::nullopt;
}

reprise::TrainStepOptions step_options(const TrainerOptions& options) {
  using reprise::OnFallback;
  return {.name = options.model,
          .budget = options.budget,
          .strategy = options.strategy,
          .planning = {.seed = options.seed, .effort = options.effort},
          .on_fallback = options.budget.given() && !options.fallback ? OnFallback::error : OnFallback::notice,
          .recheck = false,
          .verify = options.verify ? 1 : 0};  // what these programs train has no host state; --compare looks at every step
}

/// What a step cost, from what it measured itself. Its numbers leave out the other copies' bytes already.
void add_measurement(StepRecord& record, const reprise::StepMeasurement& measured) {
  record.predicted_peak = measured.predicted_peak;
  record.replayed = measured.replayed;
  record.reserved_peak = measured.reserved_peak;
  record.arena = measured.arena;
  record.arena_misses = measured.arena_misses;
  record.budget = measured.budget;
  record.floor = measured.floor;
  record.moved = measured.moved;
  record.recomputed = measured.recomputed;
  record.extra_time_predicted = measured.extra_time_predicted;
  record.plan_seconds = measured.plan_seconds;
  record.seconds -= measured.plan_seconds;
}

}  // namespace

Trainer::Trainer(const TrainerOptions& options, Mode mode)
    : task_(make_task(options, held_)), stream_(at::make_generator<at::CPUGeneratorImpl>(options.seed)) {
  const Charge charge(held_);
  optimizer_ = make_optimizer(options.optimizer, *task_.module);
  if (mode == Mode::eager) return;
  compiled_ = std::make_unique<CompiledStep>(task_.module, task_.loss, step_options(options));
  if (!options.plan_in.empty()) compiled_->load_plan(options.plan_in);
}

torch::Tensor Trainer::forward_backward(const std::vector<torch::Tensor>& batch) {
  if (compiled_) return (*compiled_)(batch);
  auto loss = task_.loss(batch);
  loss.backward();
  return loss;
}

StepRecord Trainer::step(const std::vector<torch::Tensor>& batch, reprise::Bytes others) {
  using Clock = std::chrono::steady_clock;
  auto& memory = reprise::cpu_memory();
  const Charge charge(held_);
  copy_state(stream_, at::detail::getDefaultCPUGenerator());

  StepRecord record;
  optimizer_->zero_grad();
  if (compiled_) compiled_->exclude(others);
  record.base = memory.live() - others;
  memory.reset_peak();
  const auto start = Clock::now();
  torch::Tensor loss = forward_backward(batch);
  record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  record.peak = memory.peak() - others;
  record.reserved_peak = record.peak;
  if (compiled_) add_measurement(record, compiled_->last());
  record.loss = loss.item<double>();
  loss.reset();

  memory.reset_peak();
  optimizer_->step();
  record.optimizer_peak = memory.peak() - others;
  copy_state(at::detail::getDefaultCPUGenerator(), stream_);
  return record;
}

std::optional<std::string> first_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.defined() != b.defined()) return a.defined() ? "only the first is there" : "only the second is there";
  if (!a.defined()) return std::nullopt;
  if (a.dtype() != b.dtype()) return "types differ";
  if (a.sizes() != b.sizes()) return "shapes differ";
  if (a.strides() != b.strides()) return "strides differ";
  const auto left = a.detach().contiguous(), right = b.detach().contiguous();
  if (same_bytes(left, right)) return std::nullopt;
  const auto width = static_cast<std::size_t>(left.element_size());
  const auto* x = static_cast<const char*>(left.const_data_ptr());
  const auto* y = static_cast<const char*>(right.const_data_ptr());
  std::size_t element = 0;
  while (std::memcmp(x + element * width, y + element * width, width) == 0) ++element;
  const auto index = static_cast<std::int64_t>(element);
  return "element " + std::to_string(index) + ": " + show(left, index) + " and " + show(right, index);
}

std::optional<std::string> first_difference(const Trainer& a, const Trainer& b) {
  const auto& left = *a.task().module;
  const auto& right = *b.task().module;
  if (auto found = first_named_difference("gradient of", left.named_parameters(), right.named_parameters(), true)) return found;
  if (auto found = first_named_difference("buffer", left.named_buffers(), right.named_buffers())) return found;
  if (auto found = first_named_difference("parameter", left.named_parameters(), right.named_parameters())) return found;
  if (auto found = first_difference(a.stream().get_state(), b.stream().get_state())) return "generator state, " + *found;
  return std::nullopt;
}

}  // namespace examples
