#pragma once
// buffers_of() lists the sizes and lifetimes of a schedule's storages, for assign_offsets().
//
// ```cpp
// const ArenaPlan arena = assign_offsets(buffers_of(resolve(graph, schedule)));
// ```

#include <cstdint>
#include <vector>

#include <reprise/graph/simulate.hpp>
#include <reprise/pack/assign_offsets.hpp>

namespace reprise::planning {

/// The storages of a schedule that the schedule itself allocates, in the order of
/// Resolution::storages. Persistent and initial storages are left out.
[[nodiscard]] inline std::vector<Buffer> buffers_of(const Resolution& resolution) {
  std::vector<Buffer> buffers;
  for (const StorageInstance& s : resolution.storages)
    if (!s.persistent && s.made_by != no_index)
      buffers.push_back({s.first, std::int64_t{s.last} + 1, s.bytes});
  return buffers;
}

}  // namespace reprise::planning
