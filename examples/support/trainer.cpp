#include "support/trainer.hpp"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>

#include <ATen/CPUGeneratorImpl.h>
#include <reprise/plan/plan_file.hpp>

#include "support/optimizer.hpp"

namespace examples {
namespace {

/// Adds what the allocator holds more (or less) at the end of a scope than at its start.
class Charge {
 public:
  explicit Charge(reprise::Bytes& account)
      : account_(account), before_(reprise::device_memory().live()) {}
  ~Charge() { account_ += reprise::device_memory().live() - before_; }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  reprise::Bytes& account_;
  reprise::Bytes before_;
};

models::Task make_task(const std::function<models::Task()>& make, reprise::Bytes& held) {
  const Charge charge(held);
  return make();
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
  return values.is_floating_point() ? show<double>(values, element)
                                    : show<std::int64_t>(values, element);
}

bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  return a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

using Named = torch::OrderedDict<std::string, torch::Tensor>;

std::optional<std::string> first_named_difference(const char* what, const Named& a, const Named& b,
                                                  bool gradients = false) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto& left = a[i].value();
    const auto& right = b[i].value();
    const auto where =
        gradients ? first_difference(left.grad(), right.grad()) : first_difference(left, right);
    if (where) return std::string(what) + " " + a[i].key() + ", " + *where;
  }
  return std::nullopt;
}

reprise::TrainStepOptions step_options(const TrainerOptions& options) {
  using reprise::OnFallback;
  return {.budget = options.budget,
          .run = {.name = options.model,
                  .strategy = options.strategy,
                  .planning = {.seed = options.seed, .effort = options.effort},
                  .verify_every = options.verify ? 1 : 0},
          .on_fallback =
              options.budget.given() && !options.fallback ? OnFallback::error : OnFallback::notice,
          // what these programs train has no host state; --compare looks at every step
          .recheck = false};
}

/// What a step cost, from what it measured itself. Its numbers leave out the other copies' bytes
/// already.
void add_measurement(StepRecord& record, const reprise::TrainStepReport& measured) {
  record.predicted_peak = measured.replayed ? measured.predicted_peak : measured.peak;
  record.replayed = measured.replayed;
  record.unlimited_peak = measured.eager_peak;
  record.reserved_peak = measured.reserved_peak;
  record.arena = measured.arena;
  record.arena_misses = measured.arena_misses;
  record.budget = measured.budget;
  record.floor = measured.floor;
  record.moved = measured.moved;
  record.recomputed = static_cast<std::size_t>(measured.recomputed);
  record.extra_time_predicted = measured.predicted_overhead();
  record.plan_seconds = measured.planning_time.count / 1e6;
  record.seconds -= record.plan_seconds;
}

void add_measurement(StepRecord& record, const reprise::GuidedStepReport& measured) {
  record.peak = record.reserved_peak = measured.peak;
  record.replayed =
      (measured.planned || measured.fits) && measured.predicted_peak > reprise::Bytes{0};
  record.unlimited_peak = measured.eager_peak;
  record.predicted_peak = record.replayed ? measured.predicted_peak : measured.peak;
  record.budget = measured.budget;
  record.floor = measured.floor;
  record.moved = measured.moved;
  record.recomputed = static_cast<std::size_t>(measured.recomputed);
  record.brought_back = measured.brought_back;
  const double own = (measured.time - measured.extra_time).count;
  record.extra_time_predicted = own > 0 ? measured.extra_time.count / own : 0;
  record.plan_seconds = measured.planning_time.count / 1e6;
  record.seconds -= record.plan_seconds;
}

std::unique_ptr<reprise::MemoryBudget> make_guided(const TrainerOptions& options) {
  constexpr reprise::Bytes no_limit{std::int64_t{1} << 50};
  return std::make_unique<reprise::MemoryBudget>(
      options.budget.given() ? options.budget : reprise::Budget(no_limit),
      reprise::MemoryBudgetOptions{
          .run = {.name = options.model,
                  .strategy = options.strategy,
                  .planning = {.seed = options.seed, .effort = options.effort},
                  .max_plans = options.online ? std::size_t{0} : std::size_t{8}},
          .plan_in_background = false,
          .over_budget = reprise::OverBudget::error});
}

}  // namespace

Trainer::Trainer(const TrainerOptions& options, Mode mode)
    : Trainer(
          [&] {
            return models::make(options.model, options.config, options.batch, options.seed,
                                options.size);
          },
          options, mode) {}

Trainer::Trainer(const std::function<models::Task()>& make, const TrainerOptions& options,
                 Mode mode)
    : task_(make_task(make, held_)),
      stream_(at::make_generator<at::CPUGeneratorImpl>(options.seed)) {
  const Charge charge(held_);
  optimizer_ = make_optimizer(options.optimizer, *task_.module);
  if (mode == Mode::eager) return;
  if (mode == Mode::guided) {
    guided_ = make_guided(options);
    guided_->name_tensors_of(task_.module);
    return;
  }
  compiled_ = std::make_unique<CompiledStep>(task_.module, task_.loss, step_options(options));
  if (!options.plan_in.empty()) compiled_->load_plan(options.plan_in);
}

torch::Tensor Trainer::forward_backward(const std::vector<torch::Tensor>& batch) {
  if (compiled_) return (*compiled_)(batch);
  std::optional<reprise::MemoryBudget::Step> step;
  if (guided_) step.emplace(*guided_);
  torch::Tensor loss = task_.loss(batch);
  loss.backward();
  if (step) step->finish();
  return loss.detach();
}

StepRecord Trainer::step(const std::vector<torch::Tensor>& batch, reprise::Bytes others) {
  using Clock = std::chrono::steady_clock;
  auto& memory = reprise::device_memory();
  const Charge charge(held_);
  copy_state(stream_, at::detail::getDefaultCPUGenerator());

  StepRecord record;
  optimizer_->zero_grad();
  if (compiled_) compiled_->exclude(others);
  if (guided_) guided_->exclude(others);
  record.base = memory.live() - others;
  memory.reset_peak();
  const auto start = Clock::now();
  torch::Tensor loss = forward_backward(batch);
  record.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  record.peak = memory.peak() - others;
  record.reserved_peak = record.peak;
  if (compiled_) add_measurement(record, compiled_->last());
  if (guided_) add_measurement(record, guided_->last());
  record.loss = loss.item<double>();
  loss.reset();

  memory.reset_peak();
  optimizer_->step();
  record.optimizer_peak = memory.peak() - others;
  copy_state(at::detail::getDefaultCPUGenerator(), stream_);
  return record;
}

std::optional<std::string> first_difference(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.defined() != b.defined())
    return a.defined() ? "only the first is there" : "only the second is there";
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
  return "element " + std::to_string(index) + ": " + show(left, index) + " and " +
         show(right, index);
}

std::optional<std::string> first_difference(const Trainer& a, const Trainer& b) {
  const auto& left = *a.task().module;
  const auto& right = *b.task().module;
  if (auto found = first_named_difference("gradient of", left.named_parameters(),
                                          right.named_parameters(), true))
    return found;
  if (auto found = first_named_difference("buffer", left.named_buffers(), right.named_buffers()))
    return found;
  if (auto found =
          first_named_difference("parameter", left.named_parameters(), right.named_parameters()))
    return found;
  if (auto found = first_difference(a.stream().get_state(), b.stream().get_state()))
    return "generator state, " + *found;
  return std::nullopt;
}

}  // namespace examples
