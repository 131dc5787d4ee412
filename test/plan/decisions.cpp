#include <reprise/plan/decisions.hpp>

#include <sstream>

#include <reprise_test/toy.hpp>

TEST_CASE("the toy's plan recomputes h and keeps the rest: the dearest first, then the largest") {
  const auto list = decisions(toy_graph(), toy_schedule());
  REQUIRE(list.size() == 4);
  CHECK(list[0].storage == toy_graph().value(ValueId{2}).storage);
  CHECK(list[0].decision == Decision::recompute);
  CHECK(list[0].cost.count == 120.5);
  CHECK(list[0].runs == 2);
  std::vector<std::int64_t> bytes;
  for (const ActivationDecision& d : list) bytes.push_back(d.bytes.count);
  CHECK(bytes == std::vector<std::int64_t>{8192, 16384, 4096, 4});
}

TEST_CASE("decisions are written as a table, with quotes where a name needs them") {
  GraphBuilder b;
  const ValueId v = b.add_value({.id = 7, .name = "a,\"b\"", .bytes = 8_B});
  b.add_node({.id = 0, .time = {2}}, {}, {v});
  const StepGraph graph = std::move(b).build();
  std::ostringstream out;
  write_decisions_csv(out, graph, decisions(graph, nodes({0})));
  CHECK(out.str() == "activation,decision,bytes,cost_us,runs\n\"a,\"\"b\"\"\",keep,8,0,1\n");
}
