#pragma once
// MemoryShares adds up bytes by role, and keeps the largest single tensors.
//
// ```cpp
// MemoryShares shares;
// shares.add(Role::parameter, 40_MiB, "fc.weight");
// shares.add(Role::activation, 8_MiB, "conv1/convolution");
// shares.text();
// ```
//     parameter   40.00 MiB
//     activation   8.00 MiB
//     largest: fc.weight 40.00 MiB, conv1/convolution 8.00 MiB

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/units.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::planning {

class MemoryShares {
 public:
  struct Tensor {
    std::string name{};
    Bytes bytes{};
  };

  void add(Role role, Bytes bytes, std::string name) {
    if (bytes <= Bytes{0}) return;
    by_role_[static_cast<std::size_t>(role)] += bytes;
    total_ += bytes;
    const auto larger = [&](const Tensor& t) { return t.bytes >= bytes; };
    const auto at = std::ranges::find_if_not(largest_, larger);
    largest_.insert(at, {std::move(name), bytes});
    if (largest_.size() > most) largest_.pop_back();
  }

  [[nodiscard]] Bytes of(Role role) const { return by_role_[static_cast<std::size_t>(role)]; }
  [[nodiscard]] Bytes total() const { return total_; }
  /// At most five, the largest first.
  [[nodiscard]] const std::vector<Tensor>& largest() const { return largest_; }

  /// One line for each role with bytes, and one for the largest tensors.
  [[nodiscard]] std::string text(const std::string& indent = "  ") const {
    std::string out;
    for (std::size_t i = 0; i < by_role_.size(); ++i) {
      if (by_role_[i] <= Bytes{0}) continue;
      std::string name{to_string(static_cast<Role>(i))};
      name.resize(std::max<std::size_t>(name.size(), 16), ' ');
      out += indent + name + " " + format_bytes(by_role_[i]) + "\n";
    }
    for (std::size_t i = 0; i < largest_.size(); ++i)
      out += (i == 0 ? indent + "largest: " : ", ") + largest_[i].name + " " +
             format_bytes(largest_[i].bytes);
    return out + (largest_.empty() ? "" : "\n");
  }

 private:
  static constexpr std::size_t most = 5;
  std::array<Bytes, 8> by_role_{};
  Bytes total_{};
  std::vector<Tensor> largest_;
};

}  // namespace reprise::planning
