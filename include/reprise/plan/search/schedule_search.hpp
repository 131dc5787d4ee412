#pragma once
// ScheduleSearch is the common part of PenalisedSearch and RecomputeSearch: the edited schedule,
// its rules, random numbers, and the finder of recompute cones.

#include <cstdint>
#include <span>
#include <utility>

#include <reprise/plan/search/cone_finder.hpp>
#include <reprise/plan/search/undoable_schedule.hpp>

namespace reprise::planning {

class ScheduleSearch {
 public:
  using Occurrence = LiveSchedule::Occurrence;
  using Instance = LiveSchedule::Instance;
  static constexpr std::uint32_t none = LiveSchedule::none;

  [[nodiscard]] const LiveSchedule& live() const { return s_.live(); }

 protected:
  /// Cones of more than `most_cone` nodes are not searched to the end.
  ScheduleSearch(const ScheduleFacts& facts, std::span<const NodeId> schedule, SearchRules rules,
                 std::uint64_t seed, std::size_t most_cone)
      : facts_(facts),
        rules_(std::move(rules)),
        random_(seed),
        s_(facts, schedule),
        cone_(facts, most_cone) {}
  ~ScheduleSearch() = default;

  [[nodiscard]] bool may_repeat(std::uint32_t n) const {
    return rules_.may_repeat(facts_.graph(), n);
  }

  const ScheduleFacts& facts_;
  SearchRules rules_;
  SearchRandom random_;
  UndoableSchedule s_;
  ConeFinder cone_;
  std::uint64_t work_ = 0;    ///< the search's own work; the schedule counts its edits itself
  std::uint64_t ask_at_ = 0;  ///< the work at which the search calls rules_.stop next
  bool stopped_ = false;
};

}  // namespace reprise::planning
