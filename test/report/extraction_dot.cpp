#include <reprise/report/extraction_dot.hpp>

#include <sstream>

#include <reprise_test/catch.hpp>
#include <reprise_test/schedules.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using reprise_test::nodes;
using reprise_test::toy_graph;
using reprise_test::toy_schedule;

namespace {

std::string drawn(const StepGraph& graph, const Schedule& schedule) {
  std::ostringstream out;
  write_dot(out, graph, schedule, extract(graph, schedule).recomputations.at(0));
  return out.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a drawn recomputation shows its sources, what runs again and the use") {
  const std::string text = drawn(toy_graph(), toy_schedule());
  CHECK(has(text, "digraph \"h.flat again\" {"));
  CHECK(has(text, R"(v0 [label="x", shape=ellipse, style=filled, fillcolor="#76b7b255"];)"));
  CHECK(has(text, R"(s5 [label="norm#1\nstep 5, 120.5 us", style="rounded,filled,dashed"];)"));
  CHECK(has(text, R"(s8 [label="grad\nstep 8, 20.0 us", style="rounded,filled"];)"));
  CHECK(has(text, R"(v0 -> s5 [label="x", color="#76b7b2"];)"));
  CHECK(has(text, R"(s5 -> s6 [label="h", color="#f28e2b"];)"));
  CHECK(has(text, R"(s7 -> s8 [label="h.flat", color="#f28e2b"];)"));
  CHECK_FALSE(has(text, "s0 "));
}

TEST_CASE("a source that a first run made, and a value that is handed over, are drawn as such") {
  const std::string text = drawn(toy_graph(), nodes({0, 1, 2, 3, 4, 4, 5}));
  CHECK(has(text, R"(v5_3 [label="wide of 3", shape=ellipse)"));
  CHECK(has(text, R"(s7 [label="handed over", shape=ellipse, peripheries=2];)"));
  CHECK(has(text, "s5 -> s7"));
}
