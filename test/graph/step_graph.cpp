#include <reprise/graph/step_graph.hpp>

#include <limits>

#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::toy_graph;

namespace {

template <class T>
std::vector<T> list(std::span<const T> items) {
  return {items.begin(), items.end()};
}

const ValueId x{0}, mean{1}, h{2}, relu{3}, flat{4}, loss{6}, g{7};

}  // namespace

TEST_CASE("a graph answers what its header's example says") {
  const StepGraph graph = toy_graph();
  CHECK(graph.node(NodeId{1}).name == "relu");
  CHECK(graph.node(NodeId{1}).op == "aten::relu_");
  CHECK(graph.node(NodeId{1}).phase == Phase::forward);
  CHECK(graph.node(NodeId{1}).time == Microseconds{10});
  CHECK(list(graph.inputs(NodeId{1})) == std::vector{h});
  CHECK(list(graph.outputs(NodeId{1})) == std::vector{relu});
  CHECK(graph.value(relu).bytes == 0_B);
  CHECK(graph.value(relu).overwrites == h);
  CHECK(graph.value(relu).storage == graph.value(h).storage);
}

TEST_CASE(
    "views and what was written in place live in the storage of the value that owns the bytes") {
  const StepGraph graph = toy_graph();
  CHECK(graph.storage_count() == 6);
  const StorageId s = graph.value(flat).storage;
  CHECK(s == graph.value(h).storage);
  CHECK(graph.storage(s).owner == h);
  CHECK(graph.storage(s).bytes == 8192_B);
  CHECK_FALSE(graph.storage(s).persistent);
  CHECK(graph.storage(graph.value(x).storage).persistent);
}

TEST_CASE("only persistent storages count as persistent bytes") {
  CHECK(toy_graph().persistent_bytes() == 4160_B);
}

TEST_CASE("readers are those of the inputs and those that view or overwrite, each once") {
  const StepGraph graph = toy_graph();
  CHECK(list(graph.readers(x)) == std::vector{NodeId{0}, NodeId{3}, NodeId{5}});
  CHECK(list(graph.readers(h)) == std::vector{NodeId{1}});  // relu both reads and overwrites h
  CHECK(graph.readers(mean).empty());                       // updated, not read
  CHECK(graph.readers(g).empty());
}

TEST_CASE("a view reads its base although the base is not among the inputs") {
  GraphBuilder b;
  const ValueId base = b.add_value({.id = 0, .bytes = 8_B});
  const ValueId view = b.add_value({.id = 1, .alias_of = base});
  b.add_node({.id = 0}, {}, {base});
  b.add_node({.id = 1}, {}, {view});
  const StepGraph graph = std::move(b).build();
  CHECK(graph.inputs(NodeId{1}).empty());
  CHECK(list(graph.readers(base)) == std::vector{NodeId{1}});
}

TEST_CASE("producers, updates and outputs of the step are those that were given") {
  const StepGraph graph = toy_graph();
  CHECK(graph.value(flat).producer == NodeId{2});
  CHECK_FALSE(graph.value(x).producer.valid());
  CHECK(list(graph.updates(NodeId{0})) == std::vector{mean});
  CHECK(graph.updates(NodeId{1}).empty());
  CHECK(list(graph.outputs()) == std::vector{loss, g});
}

TEST_CASE("measured costs can be set, impossible ones not") {
  StepGraph graph = toy_graph();
  graph.set_time(NodeId{2}, {1.5});
  graph.set_workspace(NodeId{2}, 77_B);
  CHECK(graph.node(NodeId{2}).time == Microseconds{1.5});
  CHECK(graph.node(NodeId{2}).workspace == 77_B);
  CHECK(refusal([&] { graph.set_time(NodeId{2}, {-1}); }) ==
        "bad argument: time of node 2 is not a finite number >= 0");
  CHECK(refusal([&] { graph.set_time(NodeId{2}, {std::numeric_limits<double>::infinity()}); }) !=
        "accepted");
  CHECK(refusal([&] { graph.set_time(NodeId{2}, {std::numeric_limits<double>::quiet_NaN()}); }) !=
        "accepted");
  CHECK(refusal([&] { graph.set_workspace(NodeId{2}, Bytes{-1}); }) ==
        "bad argument: workspace of node 2 is not from 0 to 2^53 bytes");
  CHECK(graph.node(NodeId{2}).time == Microseconds{1.5});
  CHECK(graph.node(NodeId{2}).workspace == 77_B);
}

TEST_CASE("graphs are equal where everything in them is") {
  StepGraph other = toy_graph();
  CHECK(other == toy_graph());
  other.set_time(NodeId{0}, {121});
  CHECK_FALSE(other == toy_graph());
}

TEST_CASE("roles and phases have the names that files use") {
  CHECK(to_string(Role::optimizer_state) == "optimizer_state");
  CHECK(to_string(Role::other) == "other");
  CHECK(to_string(Phase::backward) == "backward");
}
