#pragma once
// A StepCapture runs the user's own step under the recorder, inside the budget if the budget is
// known.
//
//   StepCapture capture{context, meter, planning, ops.if_needed()};
//   CapturedStep step = capture(known, model, arguments, run, &hooks);

#include <string>

#include <reprise/base/error.hpp>
#include <reprise/base/free_memory.hpp>
#include <reprise/libtorch/record/capture.hpp>
#include <reprise/libtorch/train_step/known_step.hpp>
#include <reprise/libtorch/train_step/step_context.hpp>
#include <reprise/libtorch/train_step/step_meter.hpp>
#include <reprise/libtorch/train_step/step_planning.hpp>

namespace reprise::training {

/// All arguments must outlive it.
class StepCapture {
 public:
  using Known = KnownSteps::Known;

  /// `ops`: null for the recorder's own clock.
  StepCapture(StepContext& context, StepMeter& meter, StepPlanning& planning, OpMeter* ops)
      : context_(context), meter_(meter), planning_(planning), ops_(ops) {}

  template <class Run>
  [[nodiscard]] CapturedStep operator()(const Known& known, const ModelTensors& model,
                                        const StepArguments& arguments, const Run& run,
                                        RecorderHooks* hooks = nullptr) {
    return capture_step(model, arguments, run, options(known, hooks));
  }

  /// Spilling has a limit: a budget below the bytes at the step's begin or end is an error, which
  /// says what budget is sufficient.
  template <class Run>
  [[nodiscard]] CapturedStep inside(const Known& known, const ModelTensors& model,
                                    const StepArguments& arguments, const Run& run) {
    try {
      return (*this)(known, model, arguments, run);
    } catch (const Error& error) {
      if (error.code() != Errc::budget_unreachable || context_.last.floor <= Bytes{0}) throw;
      throw Error(error.code(),
                  std::string(error.what()) + ". Of this step: " + planning_.what_it_needs());
    }
  }

 private:
  [[nodiscard]] CaptureOptions options(const Known& known, RecorderHooks* hooks) {
    const RunOptions& run = context_.options.run;
    CaptureOptions options{
        .name = run.name, .hooks = hooks, .meter = ops_, .spill_folder = run.spill_folder};
    TrainStepReport& last = context_.last;
    last.limit = planning_.known_budget(known);
    if (last.limit == Bytes{0} && context_.options.budget.given())
      last.limit = limit_until_known(run.limit_until_known, last.base, free_memory());
    if (last.limit > Bytes{0}) options.memory_limit = last.limit + meter_.excluded();
    if (meter_.is_share() && known.key.budget > Bytes{0})
      options.held_at_start = last.base + meter_.excluded();
    return options;
  }

  StepContext& context_;
  StepMeter& meter_;
  StepPlanning& planning_;
  OpMeter* ops_;
};

}  // namespace reprise::training
