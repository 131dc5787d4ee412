#include <reprise/rewrite/concepts.hpp>

#include <cstddef>

#include <reprise/rewrite/rewriter.hpp>
#include <reprise_test/backend_archetype.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/schedules.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;

namespace {

struct Count {
  using Program = std::size_t;
  Program compile(const StepGraph&, const Rewriting& rewriting) const {
    return rewriting.steps.size();
  }
};

struct NoProgram {
  int compile(const StepGraph&, const Rewriting&) const { return 0; }
};
struct NotConst {
  using Program = int;
  int compile(const StepGraph&, const Rewriting&) { return 0; }
};
struct OtherType {
  using Program = int;
  long compile(const StepGraph&, const Rewriting&) const { return 0; }
};
struct Immovable {
  struct Program {
    Program() = default;
    Program(Program&&) = delete;
  };
  Program compile(const StepGraph&, const Rewriting&) const { return {}; }
};

static_assert(GraphBackend<Count>);
static_assert(GraphBackend<reprise_test::BackendArchetype>);
static_assert(!GraphBackend<NoProgram>);
static_assert(!GraphBackend<NotConst>);
static_assert(!GraphBackend<OtherType>);
static_assert(!GraphBackend<Immovable>);

}  // namespace

TEST_CASE("a backend is a program type and compile()") {
  CHECK(Rewriter<Count>{}.rewrite(reprise_test::toy_graph(), reprise_test::toy_schedule()) == 9);
}
