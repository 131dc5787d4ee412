#include <reprise/report/dot.hpp>

#include <sstream>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::reporting;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::toy_graph;

namespace {

std::string dot(const StepGraph& graph, const DotOptions& options = {}) {
  std::ostringstream out;
  write_dot(out, graph, options);
  return out.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The lines of a cluster.
std::string cluster(const std::string& text, const std::string& phase) {
  const auto begin = text.find("subgraph cluster_" + phase);
  return begin == std::string::npos ? "" : text.substr(begin, text.find("\n  }\n", begin) - begin);
}

}  // namespace

TEST_CASE("nodes stand in the cluster of their phase") {
  const std::string text = dot(toy_graph());
  CHECK(has(cluster(text, "forward"), R"(n1 [label="relu\naten::relu_\n10.0 us")"));
  CHECK(has(cluster(text, "forward"), "n4 ["));
  CHECK_FALSE(has(cluster(text, "forward"), "n5 ["));
  CHECK(has(cluster(text, "backward"), "n5 ["));
  CHECK(cluster(text, "optimizer").empty());
}

TEST_CASE("edges carry the value that flows, in the colour of its role") {
  const std::string text = dot(toy_graph());
  CHECK(has(text, R"(n0 -> n1 [label="h 8.00 KiB", color="#f28e2b"];)"));
  CHECK(has(text, R"x(n1 -> n2 [label="h.relu (in place)", color="#f28e2b"];)x"));
  CHECK(has(text, R"x(n2 -> n5 [label="h.flat (view)", color="#f28e2b"];)x"));
  CHECK(has(text, R"(v0 -> n0 [color="#76b7b2"];)"));
  CHECK(has(text, R"(v1 -> n0 [dir=back, style=dotted, color="#9c755f"];)"));
  CHECK(has(text, R"(n4 -> o6 [color="#59a14f"];)"));
}

TEST_CASE("order without data is dashed, and can be left out") {
  GraphBuilder b;
  const ValueId h = b.add_value({.id = 0, .bytes = 8_B}), a = b.add_value({.id = 1, .bytes = 8_B}),
                r = b.add_value({.id = 2, .overwrites = h});
  b.add_node({.id = 0}, {}, {h});
  b.add_node({.id = 1}, {h}, {a});
  b.add_node({.id = 2}, {h}, {r});
  const StepGraph graph = std::move(b).build();
  CHECK(has(dot(graph), "n1 -> n2 [style=dashed"));
  CHECK_FALSE(has(dot(graph, {.order_edges = false}), "n1 -> n2"));
}

TEST_CASE("around a node, only what is near is drawn") {
  const std::string text = dot(toy_graph(), {.around = NodeId{1}, .radius = 1});
  CHECK(has(text, "n0 ["));
  CHECK(has(text, "n1 ["));
  CHECK(has(text, "n2 ["));
  CHECK_FALSE(has(text, "n3 ["));
  CHECK_FALSE(has(text, "n5 ["));
  CHECK_FALSE(has(text, "-> n5"));
  CHECK_FALSE(has(text, "o6"));
  CHECK(has(dot(toy_graph(), {.around = NodeId{1}, .radius = 2}), "n5 ["));
  CHECK_FALSE(has(dot(toy_graph(), {.around = NodeId{1}, .radius = 0}), "n0 ["));
  CHECK(refusal([&] { dot(toy_graph(), {.around = NodeId{6}}); }) ==
        "bad argument: no such node to draw around");
}

TEST_CASE("values from before the step and handed over can be left out") {
  const std::string text = dot(toy_graph(), {.outside_values = false});
  CHECK_FALSE(has(text, "v0"));
  CHECK_FALSE(has(text, "o6"));
}

TEST_CASE("any text is a valid quoted DOT string") {
  CHECK(dot_quoted("plain") == R"("plain")");
  CHECK(dot_quoted("a \"b\" \\") == R"("a \"b\" \\")");
  CHECK(dot_quoted("two\nlines") == R"("two\nlines")");
  CHECK(dot_quoted("&lt;<b>") == R"("&amp;lt;<b>")");
  CHECK(dot_quoted(std::string_view("\0\x01\xff", 3)) == R"("???")");
  CHECK(dot_quoted("μ") == "\"μ\"");
}

TEST_CASE("a graph without names is drawn by its ids") {
  GraphBuilder b;
  const ValueId v = b.add_value({.id = -7, .bytes = 8_B});
  b.add_node({.id = 40}, {}, {v});
  b.add_node({.id = 41}, {v}, {});
  const std::string text = dot(std::move(b).build());
  CHECK(has(text, R"(label="node 40\n0.0 us")"));
  CHECK(has(text, R"(label="value -7 8 B")"));
}
