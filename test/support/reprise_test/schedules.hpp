#pragma once
// Schedules as tests write them: nodes({0, 1, 0, 2}).

#include <cstddef>
#include <initializer_list>

#include <reprise/graph/schedule.hpp>

namespace reprise_test {

[[nodiscard]] inline reprise::Schedule nodes(std::initializer_list<std::size_t> list) {
  reprise::Schedule schedule;
  for (std::size_t i : list) schedule.push_back(reprise::NodeId{i});
  return schedule;
}

/// The plan for the toy of the plan format: norm, relu and flat run again before grad. Peak 20548
/// bytes, 319 us.
[[nodiscard]] inline reprise::Schedule toy_schedule() { return nodes({0, 1, 2, 3, 4, 0, 1, 2, 5}); }

}  // namespace reprise_test
