#include <reprise/plan/frontier.hpp>

#include <sstream>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>

using namespace reprise;
using namespace reprise::testing;

TEST_CASE("the frontier falls from left to right and draws itself") {
  const StepGraph graph = chain_step(16);
  const auto curve = frontier(graph, {.keep_order = true, .effort = 0.05}, 6);
  REQUIRE(curve.size() >= 3);
  CHECK(curve.front().overhead() == 0);
  for (std::size_t i = 1; i < curve.size(); ++i) {
    CHECK(curve[i].budget < curve[i - 1].budget);
    CHECK(curve[i].time >= curve[i - 1].time);
    CHECK(curve[i].within_budget());
  }
  std::ostringstream svg;
  write_frontier_svg(svg, graph, curve);
  CHECK(svg.str().rfind("<svg", 0) == 0);
}
