#include <reprise/graph/read_graph.hpp>

#include <chrono>
#include <fstream>
#include <sstream>

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

std::string refused(const std::string& text) {
  return refusal([&] { static_cast<void>(parse_graph(text)); });
}

// The toy document with one piece of text replaced, which must be there.
std::string toy_with(const std::string& old_text, const std::string& new_text) {
  std::string text = toy_document;
  const auto at = text.find(old_text);
  REQUIRE(at != std::string::npos);
  return text.replace(at, old_text.size(), new_text);
}

std::string refused_with(const std::string& old_text, const std::string& new_text) {
  return refused(toy_with(old_text, new_text));
}

// x (persistent, 8 bytes, id 0), and what is given.
std::string small(const std::string& values, const std::string& nodes,
                  const std::string& outputs = "") {
  return R"({"format": "reprise.graph", "version": 1, "values": [{"id": 0, "bytes": 8, "role": "input", "persistent": true})" +
         (values.empty() ? "" : ", " + values) + R"(], "nodes": [)" + nodes + R"(], "outputs": [)" +
         outputs + "]}";
}

}  // namespace

TEST_CASE("the toy document is read as the graph that it describes") {
  const StepGraph graph = parse_graph(toy_document);
  CHECK(graph == toy_graph());
  const Simulation own = simulate(graph, own_order(graph));
  CHECK(own.peak == 28740_B);
  CHECK(own.time == Microseconds{188.5});
}

TEST_CASE("a graph is read from a stream and from a file") {
  std::istringstream in{toy_document};
  CHECK(read_graph(in) == toy_graph());
  const TempDir dir;
  const std::string path = dir / "graph.json";
  std::ofstream{path} << toy_document;
  CHECK(read_graph_file(path) == toy_graph());
  std::ofstream{path} << "{";
  CHECK(refusal([&] {
          static_cast<void>(read_graph_file(path));
        }).starts_with("bad format: " + path + ": line 1, column 2 (offset 1): "));
  CHECK(refusal([&] { static_cast<void>(read_graph_file("no/such.json")); }) ==
        "input/output: no/such.json: cannot be opened for reading");
  CHECK(refusal([&] { static_cast<void>(read_graph_file(".")); }) ==
        "input/output: .: the graph cannot be read: the stream has failed");
}

TEST_CASE("ids need not be dense, in order or positive, and lists may stand in any order") {
  const StepGraph graph = parse_graph(
      R"({"outputs": [-5], "nodes": [{"id": 9223372036854775807, "time_us": 1, "inputs": [70], "outputs": [-5]}],
    "values": [{"id": 70, "bytes": 8, "role": "input", "initial": true}, {"id": -5, "bytes": 8, "role": "other"}],
    "version": 1, "format": "reprise.graph"})");
  CHECK(graph.node(NodeId{0}).id == 9223372036854775807);
  CHECK(graph.value(graph.outputs(NodeId{0})[0]).id == -5);
}

TEST_CASE("what the format has a default for may be left out") {
  const StepGraph graph = parse_graph(
      R"({"format": "reprise.graph", "version": 1, "values": [{"id": 0, "bytes": 8, "role": "other"}],
    "nodes": [{"id": 0, "time_us": 0, "outputs": [0]}]})");
  const Node& n = graph.node(NodeId{0});
  CHECK(n.name.empty());
  CHECK(n.op.empty());
  CHECK(n.phase == Phase::forward);
  CHECK(n.workspace == 0_B);
  CHECK(n.recomputable);
  CHECK(graph.inputs(NodeId{0}).empty());
  CHECK(graph.updates(NodeId{0}).empty());
  CHECK(graph.outputs().empty());
  CHECK_FALSE(graph.value(ValueId{0}).persistent);
  CHECK_FALSE(graph.value(ValueId{0}).initial);
}

TEST_CASE("null stands for no alias_of and no overwrites") {
  const StepGraph graph = parse_graph(
      toy_with(R"("bytes": 8192)", R"("bytes": 8192, "alias_of": null, "overwrites": null)"));
  CHECK(graph.value(ValueId{2}).owns());
}

TEST_CASE("an empty graph is a graph") {
  CHECK(parse_graph(R"({"format": "reprise.graph", "version": 1, "values": [], "nodes": []})")
            .node_count() == 0);
}

TEST_CASE("names keep every character") {
  const StepGraph graph =
      parse_graph(toy_with(R"("name": "h")", R"("name": "a\"\\\u0000\n\u00b5 😀")"));
  CHECK(graph.value(ValueId{2}).name == std::string("a\"\\\0\nµ 😀", 12));
}

TEST_CASE(
    "the forward node of a backward node is read where it names one, and otherwise kept as it is") {
  CHECK(parse_graph(toy_with(R"("phase": "backward")", R"("phase": "backward", "forward_node": 1)"))
            .node(NodeId{5})
            .forward == NodeId{1});
  const StepGraph other =
      parse_graph(toy_with(R"("phase": "backward")", R"("phase": "backward", "forward_node": 99)"));
  CHECK_FALSE(other.node(NodeId{5}).forward.valid());
  CHECK(other.node(NodeId{5}).extra == R"({"forward_node":99})");
  CHECK(parse_graph(
            toy_with(R"("phase": "backward")", R"("phase": "backward", "forward_node": true)"))
            .node(NodeId{5})
            .extra == R"({"forward_node":true})");
}

TEST_CASE("a document of another kind is refused by format and version") {
  CHECK(refused_with("reprise.graph", "reprise.plan") ==
        R"(bad format: format: "reprise.plan" is not "reprise.graph")");
  CHECK(refused_with(R"("reprise.graph")", "7") ==
        R"(bad format: format: 7 is not "reprise.graph")");
  CHECK(refused_with(R"("version": 1)", R"("version": 2)") ==
        "bad format: version: 2 is not 1, the version that this reader knows");
  CHECK(refused_with(R"("version": 1)", R"("version": "1")") ==
        R"(bad format: version: "1" is not 1, the version that this reader knows)");
  CHECK(refused("{}") == R"(bad format: format is missing; it must be "reprise.graph")");
  CHECK(refused(R"({"format": "reprise.graph"})") ==
        "bad format: version is missing; it must be 1");
  CHECK(refused(R"({"format": "reprise.graph", "version": 1, "nodes": []})") ==
        "bad format: values is missing; it must be a list of values");
  CHECK(refused(R"({"format": "reprise.graph", "version": 1, "values": []})") ==
        "bad format: nodes is missing; it must be a list of nodes");
}

TEST_CASE("a truncated document is refused wherever it ends") {
  const std::string whole = toy_document;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string message = refused(whole.substr(0, length));
    INFO(length << ": " << message);
    REQUIRE(message.starts_with("bad format: line "));
  }
}

TEST_CASE("a member of the wrong type is refused by field and id") {
  CHECK(refused_with(R"("name": "toy")", R"("name": 1)") == "bad graph: name: 1 is not a string");
  CHECK(refused_with("[6, 7]", "6") == "bad graph: outputs: 6 is not a list of ids (integers)");
  CHECK(refused_with("[6, 7]", "[6, 7.0]") ==
        "bad graph: outputs: [6,7.0] is not a list of ids (integers)");
  CHECK(refused(R"({"format": "reprise.graph", "version": 1, "values": {}, "nodes": []})") ==
        "bad graph: values: {} is not a list");
  CHECK(refused(R"({"format": "reprise.graph", "version": 1, "values": [], "nodes": null})") ==
        "bad graph: nodes: null is not a list");
  CHECK(refused_with(R"("id": 2,)", R"("id": "2",)") ==
        "bad graph: values: element 2: id: \"2\" is not an integer of at most 64 bits");
  CHECK(refused_with(R"("id": 2,)", R"("id": 2.0,)") ==
        "bad graph: values: element 2: id: 2.0 is not an integer of at most 64 bits");
  CHECK(refused_with(R"("id": 2,)", R"("id": true,)") ==
        "bad graph: values: element 2: id: true is not an integer of at most 64 bits");
  CHECK(
      refused_with(R"("id": 2,)", R"("id": 9223372036854775808,)") ==
      "bad graph: values: element 2: id: 9223372036854775808 is not an integer of at most 64 bits");
  CHECK(refused_with(R"("id": 2, "name": "h", )", "") ==
        "bad graph: values: element 2: id is missing");
  CHECK(refused_with(R"("name": "h")", R"("name": ["h"])") ==
        R"(bad graph: values: 2: name: ["h"] is not a string)");
  CHECK(refused_with("8192", "\"8192\"") ==
        R"(bad graph: values: 2 (h): bytes: "8192" is not a whole number from 0 to 2^53)");
  CHECK(refused_with("8192", "8192.0") ==
        "bad graph: values: 2 (h): bytes: 8192.0 is not a whole number from 0 to 2^53");
  CHECK(refused_with("8192", "true") ==
        "bad graph: values: 2 (h): bytes: true is not a whole number from 0 to 2^53");
  CHECK(refused_with(R"("bytes": 8192, )", "") == "bad graph: values: 2 (h): bytes is missing");
  CHECK(refused_with(R"("persistent": true)", R"("persistent": 1)") ==
        "bad graph: values: 0 (x): persistent: 1 is not true or false");
  CHECK(refused_with(R"("overwrites": 2)", R"("overwrites": 2.0)") ==
        "bad graph: values: 3 (h.relu): overwrites: 2.0 is not an integer of at most 64 bits");
  CHECK(refused_with(R"("overwrites": 2)", R"("overwrites": false)") ==
        "bad graph: values: 3 (h.relu): overwrites: false is not an integer of at most 64 bits");
  CHECK(refused_with(R"("role": "gradient")", R"("role": "weight")") ==
        "bad graph: values: 7 (g): role: \"weight\" is not a role: parameter, buffer, input, "
        "activation, gradient, optimizer_state, "
        "constant or other");
  CHECK(refused_with(R"(, "role": "gradient")", "") == "bad graph: values: 7 (g): role is missing");
  CHECK(
      refused_with(R"("phase": "backward")", R"("phase": "back")") ==
      "bad graph: nodes: 5 (grad): phase: \"back\" is not a phase: forward, backward or optimizer");
  CHECK(refused_with(R"("op": "aten::sum")", R"("op": null)") ==
        "bad graph: nodes: 4 (sum): op: null is not a string");
  CHECK(refused_with("120.5", "null") ==
        "bad graph: nodes: 0 (norm): time_us: null is not a number >= 0");
  CHECK(refused_with("120.5", "false") ==
        "bad graph: nodes: 0 (norm): time_us: false is not a number >= 0");
  CHECK(refused_with("120.5", "-0.5") ==
        "bad graph: nodes: 0 (norm): time_us: -0.5 is not a number >= 0");
  CHECK(refused_with(R"("time_us": 120.5,)", "") ==
        "bad graph: nodes: 0 (norm): time_us is missing");
  CHECK(refused_with("256", "null") ==
        "bad graph: nodes: 0 (norm): workspace_bytes: null is not a whole number from 0 to 2^53");
  CHECK(refused_with(R"("inputs": [0, 4])", R"("inputs": [0, true])") ==
        "bad graph: nodes: 5 (grad): inputs: [0,true] is not a list of ids (integers)");
  CHECK(refused_with(R"("inputs": [0, 4])", R"("inputs": [0, [4]])") ==
        "bad graph: nodes: 5 (grad): inputs: [0,[4]] is not a list of ids (integers)");
  CHECK(refused_with(R"("inputs": [0, 4])", R"("inputs": null)") ==
        "bad graph: nodes: 5 (grad): inputs: null is not a list of ids (integers)");
  CHECK(refused_with(R"("updates": [1])", R"("updates": 1)") ==
        "bad graph: nodes: 0 (norm): updates: 1 is not a list of ids (integers)");
  CHECK(refused_with(R"("updates": [1])", R"("recomputable": "yes")") ==
        "bad graph: nodes: 0 (norm): recomputable: \"yes\" is not true or false");
}

TEST_CASE("negative and overflowing sizes are refused") {
  CHECK(refused_with("8192", "-1") ==
        "bad graph: values: 2 (h): bytes: -1 is not a whole number from 0 to 2^53");
  CHECK(refused_with("8192", "9007199254740992") == "accepted");
  CHECK(refused_with("8192", "9007199254740993") ==
        "bad graph: values: 2 (h): bytes: 9007199254740993 is not a whole number from 0 to 2^53");
  CHECK(
      refused_with("8192", "18446744073709551616") ==
      "bad graph: values: 2 (h): bytes: 18446744073709551616 is not a whole number from 0 to 2^53");
  CHECK(refused_with("8192", "1e18") ==
        "bad graph: values: 2 (h): bytes: 1e18 is not a whole number from 0 to 2^53");
  CHECK(refused_with("256", "-1") ==
        "bad graph: nodes: 0 (norm): workspace_bytes: -1 is not a whole number from 0 to 2^53");
  CHECK(refused_with("120.5", "1e400").starts_with("bad format: line 14, "));
  CHECK(refused_with("120.5", "NaN").starts_with("bad format: line 14, "));
  CHECK(refused_with("120.5", "1e308") == "accepted");
}

TEST_CASE("an id that names nothing is refused where it stands") {
  CHECK(refused_with(R"("inputs": [0, 4])", R"("inputs": [0, 99])") ==
        "bad graph: nodes: 5: inputs: no value 99");
  CHECK(refused_with(R"("outputs": [7])", R"("outputs": [99])") ==
        "bad graph: nodes: 5: outputs: no value 99");
  CHECK(refused_with(R"("updates": [1])", R"("updates": [99])") ==
        "bad graph: nodes: 0: updates: no value 99");
  CHECK(refused_with(R"("alias_of": 3)", R"("alias_of": 99)") ==
        "bad graph: values: 4: alias_of: no value 99");
  CHECK(refused_with(R"("overwrites": 2)", R"("overwrites": -1)") ==
        "bad graph: values: 3: overwrites: no value -1");
  CHECK(refused_with("[6, 7]", "[6, 99]") == "bad graph: outputs: no value 99");
}

TEST_CASE("ids that stand twice are refused") {
  CHECK(refused_with(R"("id": 7, "name": "g")", R"("id": 2, "name": "g")") ==
        "bad graph: values: 2 (g): id stands twice");
  CHECK(refused_with(R"("id": 4, "name": "sum")", R"("id": 3, "name": "sum")") ==
        "bad graph: nodes: 3 (sum): id stands twice");
}

TEST_CASE("a value with two producers, or none, is refused") {
  CHECK(refused_with(R"("outputs": [6]})", R"("outputs": [6, 5]})") ==
        "bad graph: values: 5 (wide): has two producers, nodes 3 and 4");
  CHECK(refused_with(R"("outputs": [6]})", R"("outputs": []})") ==
        "bad graph: values: 6 (loss): has no producer and is neither persistent nor initial");
}

TEST_CASE("circles are refused: of views, and of nodes") {
  CHECK(refused_with(R"("bytes": 8192, "role": "activation")",
                     R"("bytes": 0, "role": "activation", "alias_of": 4)") ==
        "bad graph: values: 3 (h.relu): alias_of and overwrites run in a circle");
  CHECK(
      refused(small(
          R"({"id": 1, "bytes": 8, "role": "other"}, {"id": 2, "bytes": 8, "role": "other"})",
          R"({"id": 0, "time_us": 1, "inputs": [2], "outputs": [1]}, {"id": 1, "time_us": 1, "inputs": [1], "outputs": [2]})")) ==
      "bad graph: nodes: the graph's own order cannot be run: step 0: node 0: value 2 is read and "
      "does not exist");
}

TEST_CASE("a graph whose own order cannot be run is refused") {
  // h has been overwritten by relu_
  CHECK(refused_with(R"("inputs": [0, 4])", R"("inputs": [0, 2])") ==
        "bad graph: nodes: the graph's own order cannot be run: step 5: node 5 (grad): value 2 (h) "
        "is read and does not exist");
  CHECK(refused_with("[6, 7]", "[2]") ==
        "bad graph: nodes: the graph's own order cannot be run: step 6: value 2 (h) is an output "
        "of the step and does not exist at the end");
}

TEST_CASE("nesting a million deep is refused, wherever it stands") {
  const std::string deep(1'000'000, '[');
  CHECK(refused(deep) == "bad format: the document is not an object");
  CHECK(refused_with(R"("name": "toy")", R"("name": )" + deep) ==
        "bad format: name: arrays and objects are nested deeper than 128");
  CHECK(refused_with(R"("name": "toy")", R"("attributes": )" + deep) ==
        "bad format: attributes: arrays and objects are nested deeper than 128");
  CHECK(refused_with("8192", "8192, \"shape\": " + deep) ==
        "bad format: values: element 2: shape: arrays and objects are nested deeper than 128");
  CHECK(refused_with("[0, 4]", deep) ==
        "bad format: nodes: element 5: inputs: arrays and objects are nested deeper than 128");
}

TEST_CASE("a member that stands twice is refused") {
  CHECK(refused_with("8192", "8192, \"bytes\": 8192") ==
        "bad format: values: element 2: member 'bytes' stands twice");
  CHECK(refused_with(R"("version": 1)", R"("version": 1, "version": 1)") ==
        "bad format: member 'version' stands twice");
}

TEST_CASE("a hundred thousand nodes are read in well under two seconds", "[.full]") {
  std::string values, nodes;
  for (int i = 1; i <= 100'000; ++i) {
    const std::string id = std::to_string(i), before = std::to_string(i - 1);
    values += (i == 1 ? "" : ", ") +
              (R"({"id": )" + id + R"(, "name": "layer)" + id +
               R"(.out", "bytes": 4096, "role": "activation", "shape": [8, 3, 224, 224]})");
    nodes += (i == 1 ? "" : ", ") +
             (R"({"id": )" + id + R"(, "name": "layer)" + id +
              R"(/convolution", "op": "aten::convolution", "time_us": 1.25, "inputs": [)" + before +
              R"(, 0], "outputs": [)" + id + "]}");
  }
  const std::string text = small(values, nodes, "100000");
  const auto start = std::chrono::steady_clock::now();
  CHECK(parse_graph(text).node_count() == 100'000);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(seconds.count() < 2);
}
