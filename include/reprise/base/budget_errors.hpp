#pragma once
// The texts of Errc::budget_unreachable: every number has a unit, and the numbers of a sentence can
// be compared.
//
// ```cpp
// no_plan_text(1_GiB, 2_GiB, 3_GiB);              // "no plan for a budget of 1.00 GiB (1073741824 bytes): …"
// needs_at_once_text("aten::mm", 3_GiB, 1_GiB);   // "budget too small: aten::mm needs 3.00 GiB (…) at once …"
// ```

#include <optional>
#include <string>

#include <reprise/base/units.hpp>

namespace reprise::base {

/// No schedule was found. `smallest`: the smallest peak that was found, if there is one.
[[nodiscard]] inline std::string no_plan_text(Bytes budget, Bytes floor,
                                              std::optional<Bytes> smallest = {}) {
  std::string text = "no plan for a budget of " + format_exactly(budget) +
                     ": no schedule is below " + format_exactly(floor);
  if (smallest) text += ", the smallest peak found is " + format_exactly(*smallest);
  return text;
}

/// One op does not fit. `op`: empty for user code between two ops.
[[nodiscard]] inline std::string needs_at_once_text(const std::string& op, Bytes needed,
                                                    Bytes budget) {
  return "budget too small: " + (op.empty() ? std::string("an allocation outside of any op") : op) +
         " needs " + format_exactly(needed) +
         " at once for its operands, its results and all tensors that cannot be evicted or "
         "spilled. The budget is " +
         format_exactly(budget);
}

}  // namespace reprise::base
