#include <reprise/report/trace.hpp>

#include <cmath>
#include <sstream>

#include <nlohmann/json.hpp>

#include <reprise_test/toy.hpp>

using nlohmann::json;

namespace {

json events_of(const StepGraph& graph, const Schedule& schedule) {
  std::ostringstream out;
  write_trace(out, graph, schedule);
  return json::parse(out.str())["traceEvents"];
}

std::vector<json> of_kind(const json& events, const std::string& kind,
                          const std::string& name = "") {
  std::vector<json> found;
  for (const json& e : events)
    if (e["ph"] == kind && (name.empty() || e["name"] == name)) found.push_back(e);
  return found;
}

}  // namespace

TEST_CASE("a trace lays nodes end to end, with bytes beside them") {
  const json events = events_of(toy_graph(), own_order(toy_graph()));
  const auto slices = of_kind(events, "X");
  REQUIRE(slices.size() == 6);
  CHECK(slices[1] ==
        json::parse(R"({"name":"relu","ph":"X","cat":"forward","ts":120.5,"dur":10,"pid":1,"tid":1,
    "args":{"id":1,"op":"aten::relu_","phase":"forward","live_bytes":12352,"workspace_bytes":0,"time_us":10}})"));
  CHECK(slices[5]["ts"] == 168.5);
  CHECK(slices[5]["cat"] == "backward");
}

TEST_CASE("slices never overlap, however a reader comes to whole nanoseconds") {
  GraphBuilder b;
  for (int i = 0; i < 1000; ++i)
    b.add_node({.id = i, .time = {0.1 * (i % 7) + 0.001 * (i % 13)}}, {}, {});
  const StepGraph graph = std::move(b).build();
  const auto slices = of_kind(events_of(graph, own_order(graph)), "X");
  const auto whole = [](const json& us) {  // nanoseconds, the same cut off or rounded
    const double ns = us.get<double>() * 1000;
    REQUIRE(ns == std::floor(ns));
    return static_cast<std::int64_t>(ns);
  };
  std::int64_t last = 0;
  for (const json& e : slices) {
    REQUIRE(whole(e["ts"]) == last);
    last += whole(e["dur"]);
  }
  CHECK(slices.back()["ts"].get<double>() ==
        Approx(total_time(graph, own_order(graph)).count).margin(1));
}

TEST_CASE("live bytes are counters, in all and by role, and end with what is left") {
  const json events = events_of(toy_graph(), own_order(toy_graph()));
  const auto live = of_kind(events, "C", "live bytes");
  REQUIRE(live.size() == 7);
  CHECK(live[4]["args"]["bytes"] == 28740);
  CHECK(live[6]["ts"] == 188.5);
  CHECK(live[6]["args"]["bytes"] == 8260);
  const auto by_role = of_kind(events, "C", "live bytes by role");
  REQUIRE(by_role.size() == 6);
  CHECK(by_role[1]["args"] ==
        json::parse(R"({"input":4096,"buffer":64,"activation":8192,"gradient":0,"other":0})"));
}

TEST_CASE("what runs again in a plan is called a recomputation") {
  const auto slices = of_kind(events_of(toy_graph(), nodes({0, 1, 2, 3, 4, 0, 1, 2, 5})), "X");
  REQUIRE(slices.size() == 9);
  CHECK(slices[0]["cat"] == "forward");
  CHECK(slices[5]["cat"] == "recompute");
  CHECK(slices[5]["args"]["id"] == 0);
  CHECK(slices[8]["cat"] == "backward");
  CHECK(slices[8]["ts"] == 299);
}

TEST_CASE("the trace has names for its process and thread") {
  const auto names = of_kind(events_of(toy_graph(), own_order(toy_graph())), "M");
  REQUIRE(names.size() == 2);
  CHECK(names[0]["args"]["name"] == "toy");
  CHECK(names[1]["args"]["name"] == "nodes");
}

TEST_CASE("names of any kind, and no nodes at all, give valid JSON") {
  GraphBuilder b{"\"\xff"};
  b.add_node({.id = 0, .name = "a\n\"\xc3", .op = std::string("\0", 1)}, {}, {});
  const auto slices = of_kind(events_of(std::move(b).build(), nodes({0})), "X");
  CHECK(slices[0]["name"] == "a?\"?");
  CHECK(of_kind(events_of(GraphBuilder{}.build(), {}), "X").empty());
}

TEST_CASE("a schedule that cannot be run has no trace") {
  CHECK(refusal([] { events_of(toy_graph(), nodes({1})); }) ==
        "bad schedule: step 0: node 1 (relu): value 2 (h) is read and does not exist");
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  CHECK(refusal([&] { write_trace(out, toy_graph()); }) ==
        "input/output: the trace could not be written: the stream has failed");
}
