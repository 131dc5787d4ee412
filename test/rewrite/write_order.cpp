#include <reprise/rewrite/write_order.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::rewriting;
using namespace reprise::literals;

namespace {

const NodeId reader{0}, writer{1}, last{2};

// The reader looks at p through a view; the writer puts a new p, or updates it; the last reads what
// the reader made.
StepGraph step(bool updates) {
  GraphBuilder b;
  const ValueId p = b.add_value({.id = 0, .bytes = 8_B, .persistent = true}),
                view = b.add_value({.id = 1, .persistent = true, .alias_of = p}),
                a = b.add_value({.id = 2, .bytes = 8_B}), c = b.add_value({.id = 3, .bytes = 8_B});
  b.add_node({.id = 0}, {view}, {a});
  if (updates) b.add_node({.id = 1}, {a}, {}, {p});
  else b.add_node({.id = 1, .recomputable = false}, {a}, {p});
  b.add_node({.id = 2}, {a}, {c});
  b.add_output(c);
  return std::move(b).build();
}

}  // namespace

TEST_CASE(
    "a run that reads a persistent storage finds it as in the graph's own order, or is told") {
  const bool updates = GENERATE(false, true);
  const StepGraph graph = step(updates);
  WriteOrder order{graph};
  CHECK(order.run(reader, true) == nullptr);
  CHECK(order.run(reader, false) == nullptr);
  CHECK(order.run(writer, true) == nullptr);
  CHECK(order.writes(StorageId{0}) == 1);
  const WriteOrder::Touch* touch = order.run(reader, false);
  REQUIRE(touch != nullptr);
  CHECK(touch->storage == StorageId{0});
  CHECK(touch->writes_before == 0);
  CHECK(order.run(last, true) == nullptr);
}

TEST_CASE("a first run that comes after a write that it came before is told, too") {
  const StepGraph graph = step(false);
  WriteOrder order{graph};
  CHECK(order.run(writer, true) == nullptr);
  CHECK(order.run(reader, true) != nullptr);
}

TEST_CASE("a clone of a node that updates neither writes nor depends on how often others have") {
  const StepGraph graph = step(true);
  WriteOrder order{graph};
  CHECK(order.run(writer, true) == nullptr);
  CHECK(order.run(writer, false) == nullptr);
  CHECK(order.writes(StorageId{0}) == 1);
}
