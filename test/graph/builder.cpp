#include <reprise/graph/builder.hpp>

#include <limits>

#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
using namespace reprise::literals;
using reprise_test::refusal;

namespace {

// A builder with x (persistent, 8 bytes) and h (8 bytes), both without a node.
struct Started {
  GraphBuilder b{"started"};
  ValueId x =
      b.add_value({.id = 10, .name = "x", .bytes = 8_B, .role = Role::input, .persistent = true});
  ValueId h = b.add_value({.id = 20, .name = "h", .bytes = 8_B, .role = Role::activation});

  std::string value(Value v) {
    return refusal([&] { b.add_value(std::move(v)); });
  }
  std::string node(Node n, std::initializer_list<ValueId> in, std::initializer_list<ValueId> out,
                   std::initializer_list<ValueId> up = {}) {
    return refusal([&] { b.add_node(std::move(n), in, out, up); });
  }
  std::string build() {
    return refusal([&] { static_cast<void>(std::move(b).build()); });
  }
};

}  // namespace

TEST_CASE("the builder's own example builds") {
  GraphBuilder b{"toy"};
  const ValueId x =
      b.add_value({.id = 0, .name = "x", .bytes = 4096_B, .role = Role::input, .persistent = true});
  const ValueId h = b.add_value({.id = 2, .name = "h", .bytes = 8192_B, .role = Role::activation});
  b.add_node({.id = 0, .name = "norm", .op = "aten::native_batch_norm"}, {x}, {h});
  b.add_output(h);
  const StepGraph graph = std::move(b).build();
  CHECK(graph.name() == "toy");
  CHECK(graph.node_count() == 1);
  CHECK(graph.value_count() == 2);
}

TEST_CASE("a value that breaks a rule is refused by id and name") {
  Started s;
  CHECK(s.value({.id = 20, .name = "again"}) == "bad graph: values: 20 (again): id stands twice");
  CHECK(s.value({.id = 1, .bytes = Bytes{-1}}) == "bad graph: values: 1: bytes is negative");
  CHECK(s.value({.id = 1, .bytes = Bytes{(1LL << 53) + 1}}) ==
        "bad graph: values: 1: bytes is larger than 2^53");
  CHECK(s.value({.id = 1, .persistent = true, .initial = true}) ==
        "bad graph: values: 1: both initial and persistent");
  CHECK(s.value({.id = 1, .alias_of = s.x, .overwrites = s.h}) ==
        "bad graph: values: 1: both alias_of and overwrites");
  CHECK(s.value({.id = 1, .bytes = 1_B, .alias_of = s.h}) ==
        "bad graph: values: 1: a view or overwriting value owns no bytes, so bytes must be 0");
  CHECK(s.value({.id = 1, .initial = true, .overwrites = s.h}) ==
        "bad graph: values: 1: an initial value owns its bytes: it cannot be a view or overwrite "
        "anything");
  CHECK(s.value({.id = 1, .alias_of = ValueId{2}}) ==
        "bad graph: values: 1: alias_of or overwrites names itself");
}

TEST_CASE("a node that breaks a rule is refused by id and name") {
  Started s;
  const ValueId start = s.b.add_value({.id = 30, .name = "start", .bytes = 8_B, .initial = true});
  s.b.add_node({.id = 0, .name = "make"}, {s.x}, {s.h});
  CHECK(s.node({.id = 0}, {}, {}) == "bad graph: nodes: 0: id stands twice");
  CHECK(s.node({.id = 1, .time = {-0.5}}, {}, {}) ==
        "bad graph: nodes: 1: time_us is not a finite number >= 0");
  CHECK(s.node({.id = 1, .time = {std::numeric_limits<double>::quiet_NaN()}}, {}, {}) ==
        "bad graph: nodes: 1: time_us is not a finite number >= 0");
  CHECK(s.node({.id = 1, .workspace = Bytes{-1}}, {}, {}) ==
        "bad graph: nodes: 1: workspace_bytes is negative");
  CHECK(s.node({.id = 1, .workspace = Bytes{1LL << 60}}, {}, {}) ==
        "bad graph: nodes: 1: workspace_bytes is larger than 2^53");
  CHECK(s.node({.id = 1, .name = "n"}, {ValueId{9}}, {}) ==
        "bad graph: nodes: 1 (n): inputs: no such value");
  CHECK(s.node({.id = 1}, {}, {ValueId{}}) == "bad graph: nodes: 1: outputs: no such value");
  CHECK(s.node({.id = 1}, {}, {}, {ValueId{9}}) == "bad graph: nodes: 1: updates: no such value");
  CHECK(s.node({.id = 1}, {}, {}, {s.h}) ==
        "bad graph: nodes: 1: updates value 20, which is not persistent");
  CHECK(s.node({.id = 1}, {s.h, s.x}, {}, {s.x}) ==
        "bad graph: nodes: 1: updates value 10 and reads it; leave it out of inputs");
  CHECK(s.node({.id = 1}, {}, {s.x}) ==
        "bad graph: nodes: 1: writes the persistent value 10, so recomputable must be false");
  CHECK(s.node({.id = 1}, {}, {start}) ==
        "bad graph: values: 30 (start): is initial and has a producer, node 1");
  CHECK(s.node({.id = 1}, {}, {s.h}) ==
        "bad graph: values: 20 (h): has two producers, nodes 0 and 1");
}

TEST_CASE("a value that stands twice among one node's outputs has two producers") {
  Started s;
  CHECK(s.node({.id = 1}, {}, {s.h, s.h}) ==
        "bad graph: values: 20 (h): has two producers, nodes 1 and 1");
}

TEST_CASE("a persistent value may be written by several nodes that run once") {
  Started s;
  CHECK(s.node({.id = 1, .recomputable = false}, {}, {s.x, s.h}) == "accepted");
  CHECK(s.node({.id = 2, .recomputable = false}, {}, {s.x}) == "accepted");
  CHECK(s.build() == "accepted");
}

TEST_CASE("what was refused has left nothing behind") {
  Started s;
  CHECK(s.value({.id = 5, .bytes = Bytes{-1}}) != "accepted");
  CHECK_FALSE(s.b.find_value(5).valid());
  CHECK(s.value({.id = 5}) == "accepted");
  CHECK(s.node({.id = 7, .recomputable = true}, {}, {s.h, s.x}) != "accepted");
  CHECK_FALSE(s.b.find_node(7).valid());
  CHECK_FALSE(s.b.value(s.h).producer.valid());
  CHECK(s.node({.id = 7}, {}, {s.h, ValueId{2}}) == "accepted");
  CHECK(s.build() == "accepted");
}

TEST_CASE("values and nodes are found by the numbers of files") {
  Started s;
  CHECK(s.b.find_value(20) == s.h);
  CHECK_FALSE(s.b.find_value(21).valid());
}

TEST_CASE("what concerns several values is refused when the graph is built") {
  Started s;
  SECTION("no producer") {
    CHECK(s.build() ==
          "bad graph: values: 20 (h): has no producer and is neither persistent nor initial");
  }
  SECTION("a target that was never added") {
    const ValueId v = s.b.add_value({.id = 30, .name = "view", .alias_of = ValueId{99}});
    s.b.add_node({.id = 0}, {}, {s.h, v});
    CHECK(s.build() == "bad graph: values: 30 (view): alias_of or overwrites names no value");
  }
  SECTION("a circle of views") {
    const ValueId v = s.b.add_value({.id = 30, .name = "v", .alias_of = ValueId{3}});
    const ValueId w = s.b.add_value({.id = 31, .name = "w", .overwrites = v});
    s.b.add_node({.id = 0}, {}, {s.h, v, w});
    CHECK(s.build() == "bad graph: values: 31 (w): alias_of and overwrites run in a circle");
  }
  SECTION("a persistent view of what is not") {
    s.b.add_value({.id = 30, .name = "v", .persistent = true, .alias_of = s.h});
    s.b.add_node({.id = 0}, {}, {s.h});
    CHECK(s.build() == "bad graph: values: 30 (v): is persistent, but what it is a view of is not");
  }
  SECTION("a forward node that is none") {
    s.b.add_node({.id = 0, .name = "n", .forward = NodeId{4}}, {}, {s.h});
    CHECK(s.build() == "bad graph: nodes: 0 (n): forward names no node");
  }
}

TEST_CASE("a view may be added before what it is a view of") {
  Started s;
  const ValueId view = s.b.add_value({.id = 30, .alias_of = ValueId{3}});
  const ValueId base = s.b.add_value({.id = 31, .bytes = 16_B});
  s.b.add_node({.id = 0}, {}, {s.h, base, view});
  const StepGraph graph = std::move(s.b).build();
  CHECK(graph.value(view).storage == graph.value(base).storage);
}

TEST_CASE("a chain of a million views is followed without recursion") {
  GraphBuilder b;
  std::vector<ValueId> all{b.add_value({.id = 0, .bytes = 1_B})};
  for (int i = 1; i < 1'000'000; ++i) all.push_back(b.add_value({.id = i, .alias_of = all.back()}));
  b.add_node({.id = 0}, {}, all);
  const StepGraph graph = std::move(b).build();
  CHECK(graph.storage_count() == 1);
}

TEST_CASE("sums cannot overflow") {
  GraphBuilder b;
  for (int i = 0; i < 8; ++i) b.add_value({.id = i, .bytes = Bytes{1LL << 53}});
  CHECK(refusal([&] { b.add_value({.id = 8, .bytes = 1_B}); }) ==
        "bad graph: values: 8: all bytes together are more than 2^56");
  b.add_node({.id = 0, .time = {1e308}}, {}, {});
  CHECK(refusal([&] { b.add_node({.id = 1, .time = {1e308}}, {}, {}); }) ==
        "bad graph: nodes: 1: all times together are not a finite number");
}

TEST_CASE("an output of the step must be a value") {
  Started s;
  CHECK(refusal([&] { s.b.add_output(ValueId{5}); }) == "bad graph: outputs: no such value");
}
