#pragma once
// A BudgetLimit is the budget of a MemoryBudget in bytes, as far as the budget is known.
//
//   BudgetLimit limit{Budget::savable(50), {}};
//   limit.now()                                    80 % of free memory: the share is not known yet
//   limit.note_step(eager, floor);                 above the start, of the largest step so far
//   limit.resolve(start, …);
//   limit.now()                                    start + floor + 50 % of (eager − floor)
//
// Steps that may exceed the budget by choice (WhenSlow::go_above) are limited to enforced().

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include <reprise/base/error.hpp>
#include <reprise/base/free_memory.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/options/budget.hpp>
#include <reprise/libtorch/options/run_options.hpp>

namespace reprise::guided {

class BudgetLimit {
 public:
  BudgetLimit(const Budget& budget, Bytes until_known)
      : budget_(checked(budget)), until_known_(until_known) {}

  void set(const Budget& budget) {
    budget_ = checked(budget);
    resolved_ = stretched_ = stretched_above_ = {};
  }
  [[nodiscard]] const Budget& budget() const { return budget_; }

  /// Live bytes of the allocator that do not belong to the loop.
  void exclude(Bytes others) { excluded_ = others; }
  [[nodiscard]] Bytes excluded() const { return excluded_; }

  [[nodiscard]] bool is_known() const {
    return budget_.kind == Budget::Kind::bytes || resolved_ > Bytes{0};
  }
  [[nodiscard]] bool is_resolved_share() const { return resolved_ > Bytes{0}; }
  [[nodiscard]] bool is_stretched() const { return stretched_ > Bytes{0}; }

  [[nodiscard]] Bytes now() const {
    if (budget_.kind == Budget::Kind::bytes) return budget_.bytes;
    if (resolved_ > Bytes{0}) return resolved_;
    return limit_until_known(until_known_, cpu_memory().live() - excluded_, free_memory());
  }
  /// Larger than now() if steps may exceed the budget by choice.
  [[nodiscard]] Bytes enforced() const {
    const Bytes limit = now();
    return limit > Bytes{0} ? std::max(limit, stretched_) : limit;
  }
  /// enforced() in the allocator's count: with the excluded bytes.
  [[nodiscard]] Bytes enforced_with_excluded() const {
    const Bytes limit = enforced();
    return limit > Bytes{0} ? limit + excluded_ : limit;
  }
  /// Bytes between the start bytes and the limit.
  [[nodiscard]] static Bytes headroom(Bytes start, Bytes limit) {
    return limit > Bytes{0} ? limit - start : Bytes{std::numeric_limits<std::int64_t>::max() / 2};
  }

  /// The step's eager peak and its floor, both above its start bytes.
  void note_step(Bytes eager_above, Bytes floor_above) {
    eager_above_ = std::max(eager_above_, eager_above);
    floor_above_ = std::max(floor_above_, floor_above);
  }
  /// Resolves a share by the largest step so far, and a budget by its cost by what `for_cost` says.
  template <class ForCost>
  void resolve(Bytes start, const ForCost& for_cost) {
    if (stretched_above_ > Bytes{0}) stretched_ = start + stretched_above_;
    if (budget_.kind == Budget::Kind::extra_time) {
      if (const std::optional<Bytes> above = for_cost(budget_.percent)) resolved_ = start + *above;
      return;
    }
    if (budget_.kind != Budget::Kind::bytes && floor_above_ > Bytes{0})
      resolved_ = budget_.resolve(start + eager_above_, start + floor_above_);
  }

  /// From here on, steps may use `above` bytes in addition to their start bytes.
  void stretch(Bytes start, Bytes above) {
    stretched_above_ = above;
    stretched_ = start + above;
  }

 private:
  static Budget checked(const Budget& budget) {
    if (!budget.given())
      throw Error(Errc::bad_argument, "a MemoryBudget needs a budget: bytes, or a share");
    return budget;
  }

  Budget budget_;
  Bytes until_known_{}, excluded_{};
  Bytes resolved_{};                       // of a share or a cost
  Bytes stretched_{}, stretched_above_{};  // peak of the smallest plan, if steps may use it
  Bytes eager_above_{}, floor_above_{};    // of the largest step so far
};

}  // namespace reprise::guided
