#pragma once
// Guesses what comes next where a few things take turns: what followed the last time that the same
// things had come before.
//
//   Turns turns;
//   for (int id : {1, 2, 2, 3, 1, 2, 2}) turns.note(id);
//   turns.next()                                          3: after 1, 2, 2 it was 3 that came
//
// The longest row of things that has come before decides, and of equally long ones the latest.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace reprise::planning {

class Turns {
 public:
  void note(std::uint64_t id) {
    if (row_.size() == most) row_.erase(row_.begin(), row_.begin() + most / 2);
    row_.push_back(id);
  }

  [[nodiscard]] std::optional<std::uint64_t> next() const {
    std::optional<std::uint64_t> best;
    std::size_t longest = 0;
    for (std::size_t end = row_.size(); end-- > 1;) {  // what came at `end`
      std::size_t same = 0;
      while (same < end && row_[end - 1 - same] == row_[row_.size() - 1 - same]) ++same;
      if (same <= longest) continue;
      longest = same;
      best = row_[end];
    }
    return best;
  }

 private:
  static constexpr std::ptrdiff_t most = 128;

  std::vector<std::uint64_t> row_;
};

}  // namespace reprise::planning
