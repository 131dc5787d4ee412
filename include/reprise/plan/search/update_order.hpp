#pragma once
// UpdateOrder finds occurrences that come after another number of updates of a value than in the
// graph's own order.
//
//   norm updates mean, sum reads it        own order: norm, sum      sum, norm: broken() == 1, sum reads too early
//
// A node updates at its first occurrence only. recount() visits only what a changed occurrence
// affects.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/plan/search/occurrence_order.hpp>
#include <reprise/plan/search/schedule_facts.hpp>

namespace reprise::planning {

class UpdateOrder {
 public:
  UpdateOrder(const ScheduleFacts& facts, const OccurrenceOrder& order)
      : facts_(facts), order_(order), broken_by_(facts.all_updates().size(), 0) {}

  [[nodiscard]] std::size_t broken() const { return broken_; }

  /// An occurrence of n was inserted or removed; `first_changed`: it is, or was, the first one.
  void recount(std::uint32_t n, bool first_changed) {
    for (const auto& b : facts_.read_bounds(n)) recount(b.update);
    if (first_changed)
      for (std::uint32_t u : facts_.updates_by(n)) recount(u);
  }

 private:
  void recount(std::uint32_t u) {
    const auto& update = facts_.all_updates()[u];
    std::uint32_t broken = 0;
    for (std::size_t i = 1; i < update.updaters.size(); ++i)
      if (order_.first_slot(update.updaters[i - 1]) > order_.first_slot(update.updaters[i]))
        ++broken;
    for (std::uint32_t n : update.readers) {
      std::uint32_t before = 0;
      for (const auto& b : facts_.read_bounds(n))
        if (b.update == u) before = b.before;
      const std::uint32_t low = before == 0 ? 0 : order_.first_slot(update.updaters[before - 1]);
      const std::uint32_t high = before == update.updaters.size()
                                     ? ScheduleFacts::none
                                     : order_.first_slot(update.updaters[before]);
      for (OccurrenceOrder::Occurrence x : order_.runs(n))
        if (order_.slot(x) < low || order_.slot(x) > high) ++broken;
    }
    broken_ += broken;
    broken_ -= broken_by_[u];
    broken_by_[u] = broken;
  }

  const ScheduleFacts& facts_;
  const OccurrenceOrder& order_;
  std::vector<std::uint32_t> broken_by_;  // by update
  std::size_t broken_ = 0;
};

}  // namespace reprise::planning
