#pragma once
// NullProbe measures no memory: for runs that need only times. Copy it for a probe of your own.

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
