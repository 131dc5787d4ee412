#pragma once
// Looks at no memory: where only times are wanted, and the template for a probe of one's own.

#include <reprise/profile/concepts.hpp>

namespace reprise::profiling {

struct NullProbe {
  void begin_run() {}
  void begin_op() {}
  [[nodiscard]] MemorySample end_op() { return {}; }
  [[nodiscard]] Bytes end_run() { return {}; }
};

static_assert(MemProbe<NullProbe>);

}  // namespace reprise::profiling

namespace reprise {
using profiling::NullProbe;
}  // namespace reprise
