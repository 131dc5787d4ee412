#include <reprise/graph/json.hpp>

#include <sstream>

#include <nlohmann/json.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;

namespace {

// Reads and writes again; the result must be the same document, and reading it once more the same
// graph.
void check_identity(const std::string& document) {
  const StepGraph graph = parse_graph(document);
  const std::string again = graph_text(graph);
  CHECK(nlohmann::json::parse(again) == nlohmann::json::parse(document));
  CHECK(parse_graph(again) == graph);
  CHECK(graph_text(parse_graph(again)) == again);
}

std::string toy_with(const std::string& old_text, const std::string& new_text) {
  std::string text = reprise_test::toy_document;
  const auto at = text.find(old_text);
  REQUIRE(at != std::string::npos);
  return text.replace(at, old_text.size(), new_text);
}

}  // namespace

TEST_CASE("the header's example: what the graph has no place for is in extra") {
  const StepGraph graph = parse_graph(R"({"format": "reprise.graph", "version": 1,
    "values": [{"id": 2, "name": "h", "bytes": 8192, "role": "activation", "persistent": false, "shape": [8, 256]}],
    "nodes": [{"id": 0, "name": "norm", "time_us": 1, "inputs": [], "outputs": [2]}]})");
  CHECK(graph.value(ValueId{0}).extra == R"({"persistent":false,"shape":[8,256]})");
  CHECK(graph.node(NodeId{0}).extra == R"({"op":null,"phase":null})");
  CHECK(graph.extra() == R"({"name":null,"outputs":null})");
}

TEST_CASE("reading and writing is the identity on documents") {
  SECTION("the toy") { check_identity(reprise_test::toy_document); }
  SECTION("defaults spelt out") {
    check_identity(toy_with(
        "8192",
        R"(8192, "persistent": false, "initial": false, "alias_of": null, "overwrites": null)"));
    check_identity(toy_with(R"("updates": [1])", R"("updates": [], "recomputable": true)"));
    check_identity(toy_with("256", "0"));
  }
  SECTION("members left out") {
    check_identity(toy_with(R"(, "name": "toy")", ""));
    check_identity(toy_with(R"("name": "h", )", ""));
    check_identity(toy_with(R"("op": "aten::sum", "phase": "forward", )", ""));
    check_identity(toy_with(R"("inputs": [0], "outputs": [5]})", R"("outputs": [5]})"));
    check_identity(
        R"({"format": "reprise.graph", "version": 1, "values": [], "nodes": [{"id": 1, "time_us": 0}]})");
  }
  SECTION("members that are not the format's, at every level") {
    check_identity(toy_with(
        R"("name": "toy")",
        R"("name": "toy", "tool": {"version": [1, {"deep": [[], {}, null, 1e5, -0.25]}]}, "op": null)"));
    check_identity(toy_with(
        "8192",
        R"(8192, "shape": [8, 256], "dtype": "float32", "op": null, "inputs": null, "phase": 3, "": "")"));
    check_identity(toy_with(
        "256",
        R"(256, "attributes": {"a\"\\\u0000\u001f": "µ 😀 \ud83d\ude00 \/"}, "swap_out_us": 12.5, "alias_of": null)"));
  }
  SECTION("forward nodes, and what is none") {
    check_identity(toy_with(R"("phase": "backward")", R"("phase": "backward", "forward_node": 1)"));
    check_identity(
        toy_with(R"("phase": "backward")", R"("phase": "backward", "forward_node": 99)"));
    check_identity(
        toy_with(R"("phase": "backward")", R"("phase": "backward", "forward_node": "relu")"));
  }
}

TEST_CASE("numbers in members that are not the format's keep their text") {
  const StepGraph graph =
      parse_graph(toy_with("8192", R"(8192, "n": [1.10, 18446744073709551617, 1e2, 0.1e-7])"));
  CHECK(graph.value(ValueId{2}).extra == R"({"n":[1.10,18446744073709551617,1e2,0.1e-7]})");
  CHECK(graph_text(graph).find(R"("n":[1.10,18446744073709551617,1e2,0.1e-7])") !=
        std::string::npos);
}

TEST_CASE("times survive to the last bit") {
  const StepGraph graph = parse_graph(toy_with("120.5", "0.1234567890123456789"));
  CHECK(parse_graph(graph_text(graph)).node(NodeId{0}).time.count == 0.1234567890123456789);
}
