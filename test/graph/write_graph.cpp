#include <reprise/graph/write_graph.hpp>

#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include <reprise/graph/read_graph.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::TempDir;
using reprise_test::toy_document;
using reprise_test::toy_graph;

namespace {

// One value and one node that makes it, with what is given.
StepGraph single(Value v, Node n = {}, std::string extra = {}) {
  GraphBuilder b{"single"};
  b.set_extra(std::move(extra));
  const ValueId made = b.add_value(std::move(v));
  b.add_node(std::move(n), {}, {made});
  return std::move(b).build();
}

std::string refused(const StepGraph& graph) {
  std::ostringstream out;
  const std::string message = refusal([&] { write_graph(out, graph); });
  CHECK(out.str().empty());
  return message;
}

}  // namespace

TEST_CASE("the toy graph is written as the toy document") {
  std::ostringstream out;
  write_graph(out, toy_graph());
  CHECK(nlohmann::json::parse(out.str()) == nlohmann::json::parse(toy_document));
  CHECK(out.str().find(R"(  {"id":0,"name":"x","bytes":4096,"role":"input","persistent":true},)") !=
        std::string::npos);
}

TEST_CASE("a graph is written one value or node a line, defaults left out") {
  const std::string text = graph_text(single({.id = 3, .bytes = 8_B, .initial = false},
                                             {.id = 4, .time = {2.5}}, R"({"source":"test"})"));
  CHECK(text ==
        R"({"format":"reprise.graph","version":1,"name":"single","values":[)"
        "\n"
        R"(  {"id":3,"name":"","bytes":8,"role":"other"})"
        "\n"
        R"(],"nodes":[)"
        "\n"
        R"(  {"id":4,"name":"","op":"","phase":"forward","time_us":2.5,"inputs":[],"outputs":[3]})"
        "\n"
        R"(],"outputs":[],"source":"test"})"
        "\n");
}

TEST_CASE("whatever is not a default is written and read back") {
  GraphBuilder b{"all \"features\"\n"};
  b.set_extra(R"({"tool":{"version":[1,2]}})");
  const ValueId p = b.add_value({.id = -3,
                                 .name = "p",
                                 .bytes = 16_B,
                                 .role = Role::parameter,
                                 .persistent = true,
                                 .extra = R"({"dtype":"float"})"});
  const ValueId i =
      b.add_value({.id = 50, .name = "i", .bytes = 16_B, .role = Role::input, .initial = true});
  const ValueId a = b.add_value({.id = 7, .name = "a", .bytes = 16_B, .role = Role::activation});
  const ValueId v = b.add_value({.id = 8, .name = "v", .role = Role::activation, .alias_of = a});
  const ValueId w = b.add_value({.id = 9, .name = "w", .role = Role::gradient, .overwrites = v});
  b.add_node({.id = 100,
              .name = "f",
              .op = "make",
              .time = {0.1},
              .workspace = 5_B,
              .extra = R"({"scalars":[0.5,true]})"},
             {i, i}, {a, v}, {p});
  b.add_node({.id = 99,
              .name = "b",
              .phase = Phase::backward,
              .recomputable = false,
              .forward = NodeId{0}},
             {v}, {w, p});
  b.add_output(w);
  const StepGraph graph = std::move(b).build();
  CHECK(parse_graph(graph_text(graph)) == graph);
}

TEST_CASE("what was set after reading is written, whatever the file spelt out") {
  StepGraph graph = parse_graph(
      R"({"format": "reprise.graph", "version": 1, "values": [{"id": 0, "bytes": 8, "role": "other"}],
          "nodes": [{"id": 0, "time_us": 0, "workspace_bytes": 0, "outputs": [0]}]})");
  graph.set_workspace(NodeId{0}, 9_B);
  graph.set_name("named");
  const StepGraph again = parse_graph(graph_text(graph));
  CHECK(again.node(NodeId{0}).workspace == 9_B);
  CHECK(again.name() == "named");
}

TEST_CASE("what has no JSON form is refused before anything is written") {
  CHECK(refused(single({.id = 3, .name = "\xff"})) == "bad graph: values: 3: name is not UTF-8: ?");
  CHECK(refused(single({}, {.id = 4, .op = "a\xc3"})) ==
        "bad graph: nodes: 4: op is not UTF-8: a?");
  CHECK(refused(single({.id = 3, .extra = "[]"})) ==
        "bad graph: values: 3: extra is not the text of a JSON object: the document is not an "
        "object");
  CHECK(refused(single({}, {.id = 4, .extra = "{\"a\": }"}))
            .starts_with(
                "bad graph: nodes: 4: extra is not the text of a JSON object: line 1, column 7"));
  CHECK(refused(single({}, {}, "{\"a\": 1, \"a\": 2}")) ==
        "bad graph: graph: extra is not the text of a JSON object: member 'a' stands twice");
}

TEST_CASE("an extra may be nested as deep as a reader allows, and no deeper") {
  const auto nested = [](std::size_t arrays) {
    return "{\"a\":" + std::string(arrays, '[') + std::string(arrays, ']') + "}";
  };
  const StepGraph deepest = single({.id = 3, .extra = nested(125)});
  CHECK(parse_graph(graph_text(deepest)).value(ValueId{0}).extra ==
        deepest.value(ValueId{0}).extra);
  CHECK(refused(single({.id = 3, .extra = nested(126)})) ==
        "bad graph: values: 3: extra is not the text of a JSON object: a: arrays and objects are "
        "nested deeper than 126");
  CHECK(refused(single({.id = 3, .extra = nested(1'000'000)})) != "accepted");
}

TEST_CASE("a stream or file that fails is an error") {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  CHECK(refusal([&] { write_graph(out, toy_graph()); }) ==
        "input/output: the graph could not be written: the stream has failed");
  CHECK(refusal([&] { write_graph_file("/nowhere/at/all.json", toy_graph()); }) ==
        "input/output: /nowhere/at/all.json: cannot be opened for writing");
  if (std::ifstream{"/dev/full"}.good())
    CHECK(refusal([&] { write_graph_file("/dev/full", toy_graph()); }) ==
          "input/output: /dev/full: could not be written completely");
}

TEST_CASE("a file that was written is read back as the same graph") {
  const TempDir dir;
  const std::string path = dir / "graph.json";
  write_graph_file(path, toy_graph());
  CHECK(read_graph_file(path) == toy_graph());
}
