#pragma once
// NodeId, ValueId and StorageId are strong ids: an index into one array of a StepGraph cannot be
// used for another array.
//
// ```cpp
// NodeId n{3};               // the fourth node
// graph.node(n).name;        // fine; graph.value(n) does not compile
// ```

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include <reprise/base/rooms.hpp>

namespace reprise::base {

template <class Tag>
struct Id {
  std::uint32_t index = std::numeric_limits<std::uint32_t>::max();

  constexpr Id() = default;
  constexpr explicit Id(std::size_t i) : index(static_cast<std::uint32_t>(i)) {}

  /// The invalid id, which is also the default.
  [[nodiscard]] static constexpr Id none() { return {}; }
  [[nodiscard]] constexpr bool valid() const {
    return index != std::numeric_limits<std::uint32_t>::max();
  }
  constexpr auto operator<=>(const Id&) const = default;
};

using NodeId = Id<struct NodeTag>;        ///< an op of the step, in the graph's own order
using ValueId = Id<struct ValueTag>;      ///< one version of a tensor
using StorageId = Id<struct StorageTag>;  ///< an allocation of bytes

}  // namespace reprise::base

template <class Tag>
struct std::hash<reprise::base::Id<Tag>> {
  std::size_t operator()(reprise::base::Id<Tag> id) const noexcept {
    return std::hash<std::uint32_t>{}(id.index);
  }
};

namespace reprise {
using base::NodeId;
using base::StorageId;
using base::ValueId;
}  // namespace reprise
