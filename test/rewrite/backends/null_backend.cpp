#include <reprise/rewrite/backends/null_backend.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/schedules.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;

TEST_CASE("the null backend gives back what it was given") {
  const Rewriting rewriting = rewrite(reprise_test::toy_graph(), reprise_test::toy_schedule());
  CHECK(NullBackend{}.compile(reprise_test::toy_graph(), rewriting) == rewriting);
}
