#pragma once
// The few numbers that measurements are summed up in.
//
//   quantile({1, 2, 4, 8}, 0.5);     // 3: half-way between the two in the middle
//   quantile({1, 2, 4, 8}, 0.25);    // 1.75

#include <algorithm>
#include <cstddef>
#include <vector>

namespace examples {

/// Linear between neighbours; `share` 0.5 is the median. There must be at least one value.
[[nodiscard]] inline double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace examples
