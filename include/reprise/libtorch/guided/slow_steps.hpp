#pragma once
// SlowSteps reports once that steps without a plan are expensive, and which budget would avoid
// that.
//
//   SlowSteps slow{options};
//   slow.look_at(last, sequences, limit, tell);     "steps take 7.3 times what their own ops take …: there is no plan for 300.00 MiB; …"
//   slow.refusal()                                  why the next step is not begun (WhenSlow::fail); empty if it is

#include <cstdio>
#include <functional>
#include <string>

#include <reprise/base/units.hpp>
#include <reprise/libtorch/guided/budget_limit.hpp>
#include <reprise/libtorch/guided/known_sequences.hpp>
#include <reprise/libtorch/options/memory_budget_options.hpp>

namespace reprise::guided {

class SlowSteps {
 public:
  /// `options` must outlive this.
  explicit SlowSteps(const MemoryBudgetOptions& options) : options_(options) {}

  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  void reset() {
    refusal_.clear();
    told_ = false;
  }

  /// A step without a plan has ended. Waits until a sufficient budget is known.
  void look_at(const GuidedStepReport& last, KnownSequences& sequences, BudgetLimit& limit,
               const std::function<void(const std::string&)>& tell) {
    if (told_ || last.slow_down() <= options_.slow_down || sequences.planning()) return;
    const bool by_budget = last.budget > Bytes{0} && last.eager_peak > last.budget;
    if (!by_budget) return;
    std::string text = what_it_costs(last);
    const Advice* advice = nullptr;
    if (sequences.last() != nullptr) {
      advice = sequences.smallest_plan();
      if (advice == nullptr && options_.plan_in_background) return;  // at a later step
      if (advice != nullptr) text += what_would_do(*advice, last.base, *sequences.last()->graph);
    } else {
      text += ", since their ops do not come again";
    }
    told_ = true;
    if (options_.when_slow == WhenSlow::fail) refusal_ = text;
    if (options_.when_slow == WhenSlow::go_above && advice != nullptr) {
      if (const auto above = sequences.use_smallest_plan()) {
        limit.stretch(last.base, *above);
        text += ". From now on they take that";
      }
    }
    tell(text);
  }

 private:
  static std::string number(double value, const char* format) {
    char text[32];
    std::snprintf(text, sizeof text, format, value);
    return text;
  }

  static std::string what_it_costs(const GuidedStepReport& last) {
    return "steps take " + number(last.slow_down(), "%.1f") + " times what their own ops take (" +
           format_time(last.own_time) + ", and " + format_time(last.extra_time) +
           " to run ops again, " + format_time(last.moving_time) +
           " to move storages): there is no plan for " + format_bytes(last.budget);
  }
  static std::string what_would_do(const Advice& advice, Bytes base, const StepGraph& graph) {
    const Bytes smallest = advice.smallest + base - start_bytes(graph);
    return "; the smallest budget with a plan is " + format_bytes(smallest) + " (" +
           std::to_string(smallest.count) + " bytes), and takes " +
           number(1 + advice.extra_time(), "%.2f") + " times as long";
  }

  const MemoryBudgetOptions& options_;
  std::string refusal_;
  bool told_ = false;
};

}  // namespace reprise::guided
