// Where two captures of one step differ.

#include <reprise/graph/diff.hpp>

#include <reprise/graph/builder.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::literals;

namespace {

struct Variation {
  const char* second_op = "aten::mul";
  const char* attributes = R"({"attributes":{"other":2.0}})";
  std::int64_t result_bytes = 64;
  bool second_reads_input = false;
  bool view = false;
  bool one_more = false;
  std::int64_t id_offset = 0;
};

StepGraph make(const Variation& how) {
  GraphBuilder b{"step"};
  const ValueId x = b.add_value(
      {.id = how.id_offset, .name = "x", .bytes = 64_B, .role = Role::input, .persistent = true});
  const ValueId h =
      b.add_value({.id = how.id_offset + 1, .name = "h", .bytes = 64_B, .role = Role::activation});
  Value result{
      .id = how.id_offset + 2, .name = "y", .bytes = {how.result_bytes}, .role = Role::activation};
  if (how.view) {
    result.bytes = 0_B;
    result.alias_of = h;
  }
  const ValueId y = b.add_value(result);
  b.add_node({.id = 0, .name = "mm", .op = "aten::mm", .time = {1.0}}, {x}, {h});
  b.add_node({.id = 1, .name = "head/mul", .op = how.second_op, .extra = how.attributes},
             {how.second_reads_input ? x : h}, {y});
  if (how.one_more) b.add_node({.id = 2, .name = "sum", .op = "aten::sum"}, {y}, {});
  b.add_output(y);
  return std::move(b).build();
}

std::string message(const Variation& how) {
  const auto difference = diff(make({}), make(how));
  return difference ? difference->message : "";
}

}  // namespace

TEST_CASE(
    "a step does not differ from itself, whatever its values are numbered and its nodes took") {
  StepGraph again = make({.id_offset = 100});
  again.set_time(NodeId{0}, {99.0});
  again.set_workspace(NodeId{0}, 7_B);
  CHECK_FALSE(diff(make({}), again).has_value());
}

TEST_CASE("the first difference is named with its node") {
  CHECK(
      message({.attributes = R"({"attributes":{"other":3.0}})"}) ==
      R"(node 1 (head/mul): attributes differ: {"attributes":{"other":2.0}} and {"attributes":{"other":3.0}})");
  CHECK(message({.second_op = "aten::div"}) ==
        "node 1 (head/mul): op differs: aten::mul and aten::div");
  CHECK(message({.second_reads_input = true}) ==
        "node 1 (head/mul): operand 0 differs: value 1 (h) and value 0 (x)");
  CHECK(message({.result_bytes = 128}) ==
        "node 1 (head/mul): result 0 differs in size: 64 B and 128 B");
  CHECK(message({.result_bytes = 0, .view = true}) ==
        "node 1 (head/mul): result 0 differs in size: 64 B and 0 B");
  CHECK(message({.one_more = true}) ==
        "one step has 2 nodes, the other 3; the first 2 are the same");
  CHECK(diff(make({}), make({.second_op = "aten::div"}))->node == NodeId{1});
}

TEST_CASE("a view is not the same as a tensor of its own") {
  const auto difference = diff(make({.result_bytes = 0}), make({.result_bytes = 0, .view = true}));
  REQUIRE(difference.has_value());
  CHECK(difference->message == "node 1 (head/mul): result 0 lies in another storage");
}
