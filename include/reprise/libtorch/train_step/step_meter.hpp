#pragma once
// A StepMeter measures the bytes of one call of a TrainStep, and reports if they exceed the budget.
//
//   StepMeter meter{context};
//   meter.begin(arena.capacity());                    the start bytes, and the bytes of other steps' arenas
//   …                                                 the step
//   meter.end();                                      peaks into context.last; a notice if they exceed the budget

#include <algorithm>
#include <chrono>
#include <string>

#include <reprise/base/clock.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/train_step/known_step.hpp>
#include <reprise/libtorch/train_step/step_context.hpp>

namespace reprise::training {

class StepMeter {
 public:
  explicit StepMeter(StepContext& context) : context_(context) {}

  void exclude(Bytes others) { excluded_ = others; }
  [[nodiscard]] Bytes excluded() const { return excluded_; }
  /// The running call exceeds its budget by design.
  void unbound() { unbounded_ = true; }

  /// `arena`: the capacity of this step's own arena.
  void begin(Bytes arena) {
    unbounded_ = false;
    start_ = std::chrono::steady_clock::now();
    context_.last = {};
    context_.last.base = device_memory().live() - excluded_;
    context_.others = device_memory().spare() - arena;
    started_with_ = context_.last.base + device_memory().spare();
    device_memory().reset_peak();
  }

  /// The step was replayed.
  void replayed(const ReadyProgram& ready) {
    TrainStepReport& last = context_.last;
    last.replayed = true;
    last.recomputed = static_cast<std::int64_t>(ready.recomputed());
    last.planned = ready.recomputed() > 0;
    last.fits = context_.options.budget.given() && !last.planned;
    last.predicted_peak = last.base + ready.program->peak_above_base();
    last.own_time = ready.plan.baseline_time;
    last.predicted_extra_time = ready.plan.time - ready.plan.baseline_time;
  }

  void end() {
    TrainStepReport& last = context_.last;
    last.peak = device_memory().peak() - excluded_;
    last.reserved_peak = device_memory().reserved_peak() - excluded_;
    if (!last.replayed) last.predicted_peak = {};
    tell_of_overshoot();
    last.time = time_since(start_);
  }

  /// A share is a share of this step's bytes; a budget in bytes bounds all bytes of the allocator.
  [[nodiscard]] bool is_share() const {
    return context_.options.budget.kind == Budget::Kind::share ||
           context_.options.budget.kind == Budget::Kind::savable;
  }
  /// The reserved bytes when the call began, plus those of this step since then: reserved_peak
  /// without the allocations of other threads.
  [[nodiscard]] Bytes own_reserved_peak() const {
    const ByteCounter* own = StepBytes::here();
    return own != nullptr ? started_with_ + own->reserved_peak()
                          : device_memory().reserved_peak() - excluded_;
  }

 private:
  // Compares the limit with the maximum of the reserved bytes. A share does not bound other
  // threads' allocations.
  void tell_of_overshoot() {
    TrainStepReport& last = context_.last;
    const Bytes own = own_reserved_peak();
    last.elsewhere = std::max(last.reserved_peak - own, Bytes{0});
    const bool bounded = context_.options.budget.given() &&
                         context_.options.budget.kind != Budget::Kind::extra_time && !unbounded_;
    const Bytes allowed = last.limit > Bytes{0} ? last.limit : last.budget;
    const Bytes held = is_share() ? own : last.reserved_peak;
    last.over_budget = bounded && allowed > Bytes{0} && held > allowed;
    if (!last.over_budget) return;
    context_.notice("this step went above its budget: it held " + format_bytes(held) + " (" +
                    std::to_string(held.count) + " bytes) of " + format_bytes(allowed) + " (" +
                    std::to_string(allowed.count) + " bytes). " +
                    (own <= allowed ? "Threads that are not part of the step took " +
                                          format_bytes(last.elsewhere) + " meanwhile"
                                    : "Its ops took other blocks than when it was captured; the "
                                      "next plan leaves room for them"));
  }

  StepContext& context_;
  Bytes excluded_{};      // live bytes that do not belong to the step
  Bytes started_with_{};  // reserved bytes when the call began, arenas included
  bool unbounded_ = false;
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace reprise::training
