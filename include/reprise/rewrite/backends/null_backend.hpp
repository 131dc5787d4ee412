#pragma once
// NullBackend compiles nothing: its program is the checked Rewriting. Copy it for a backend of your
// own.
//
// ```cpp
// const Rewriting program = Rewriter<NullBackend>{}.rewrite(graph, schedule);
// ```

#include <reprise/rewrite/concepts.hpp>

namespace reprise::rewriting {

struct NullBackend {
  using Program = Rewriting;

  [[nodiscard]] Program compile(const StepGraph& /*graph*/, const Rewriting& rewriting) const {
    return rewriting;
  }
};

static_assert(GraphBackend<NullBackend>);

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::NullBackend;
}  // namespace reprise
