#pragma once
// A BudgetStep is one step of a MemoryBudget: from its construction to the end of its scope.
//
//   auto step = budget.step();
//   …                                                 the user's own step
//   step.pin(tensor);                                 before a pointer is taken that an op does not see
//   auto joined = step.join_thread();                          on a thread of the user's own, before its first op

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include <reprise/libtorch/guided/guided_step.hpp>

namespace reprise::guided {

/// Joins another thread to the step until the end of the scope.
class JoinedThread {
 public:
  explicit JoinedThread(const DispatchHook* hook) {
    if (hook != nullptr) joined_.emplace(*hook);
  }

 private:
  std::optional<DispatchHook::Joined> joined_;
};

template <class Budget, class Policy>
class BudgetStep {
 public:
  explicit BudgetStep(Budget& budget) : budget_(budget), exceptions_(std::uncaught_exceptions()) {
    if (budget.off_) return;
    measured_ = budget.uses_checkpoints();
    if (measured_) budget_.begin_measuring();
    else budget_.begin(guide_);
  }
  /// Never throws: storages that do not fit into the budget are restored above it.
  ~BudgetStep() {
    if (!guide_ && !measured_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      guide_.reset();
      return;
    }
    std::string why = "an error that is no std::exception";
    try {
      finish();
      return;
    } catch (const std::exception& error) {
      why = error.what();
    } catch (...) {  // of the user's callbacks or planner
    }
    guide_.reset();
    try {
      budget_.notice("at the end of the step: " + why);
    } catch (...) {  // of the user's callback
    }
  }
  BudgetStep(const BudgetStep&) = delete;
  BudgetStep& operator=(const BudgetStep&) = delete;

  /// Ends the step now: every tensor that is alive becomes readable. May throw if that does not fit
  /// into the budget.
  void finish() {
    if (guide_) budget_.end(guide_);
    if (std::exchange(measured_, false)) budget_.end_measuring();
  }
  /// User code keeps a pointer to this tensor: the step materializes it, and neither evicts nor
  /// spills it from here on.
  void pin(const at::Tensor& tensor) {
    if (guide_) guide_->pin(tensor);
  }
  /// For a thread of the user's own that runs a part of the step:
  /// `auto joined = step.join_thread();` on that thread, before its first op.
  [[nodiscard]] JoinedThread join_thread() {
    return JoinedThread(guide_ ? &guide_->recorder() : nullptr);
  }

 private:
  Budget& budget_;
  std::optional<GuidedStep<Policy>> guide_;
  bool measured_ = false;  // only measured: the user's own checkpoints do the rest
  int exceptions_;
};

}  // namespace reprise::guided
