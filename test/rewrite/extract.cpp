#include <reprise/rewrite/extract.hpp>

#include <sstream>

#include <reprise_test/toy.hpp>

namespace {

std::string printed(const StepGraph& graph, const Schedule& schedule) {
  std::ostringstream out;
  write_recomputations(out, graph, schedule, extract(graph, schedule));
  return out.str();
}

// a = f(); b = g_(a) in place; c = h_(b) in place; d = use(c), and e = last(c), which is handed
// over with d.
StepGraph in_place_chain() {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .name = "a", .bytes = 8_B}),
                g = b.add_value({.id = 1, .name = "b", .overwrites = a}),
                c = b.add_value({.id = 2, .name = "c", .overwrites = g}),
                d = b.add_value({.id = 3, .name = "d", .bytes = 1_B}),
                e = b.add_value({.id = 4, .name = "e", .bytes = 1_B});
  b.add_node({.id = 0, .name = "f"}, {}, {a});
  b.add_node({.id = 1, .name = "g_"}, {a}, {g});
  b.add_node({.id = 2, .name = "h_"}, {g}, {c});
  b.add_node({.id = 3, .name = "use"}, {c}, {d});
  b.add_node({.id = 4, .name = "last"}, {c}, {e});
  b.add_output(d);
  b.add_output(e);
  return std::move(b).build();
}

// a = f(x); v = view(a); w = g(v); three readers of w and one of v.
StepGraph fan_out() {
  GraphBuilder b;
  const ValueId x = b.add_value({.id = 0, .name = "x", .bytes = 4_B, .persistent = true}),
                a = b.add_value({.id = 1, .name = "a", .bytes = 8_B}),
                v = b.add_value({.id = 2, .name = "v", .alias_of = a}),
                w = b.add_value({.id = 3, .name = "w", .bytes = 8_B});
  b.add_node({.id = 0, .name = "f"}, {x}, {a});
  b.add_node({.id = 1, .name = "view"}, {a}, {v});
  b.add_node({.id = 2, .name = "g"}, {v}, {w});
  for (int i = 0; i < 3; ++i) {
    const ValueId r = b.add_value({.id = 4 + i, .name = "r" + std::to_string(i), .bytes = 1_B});
    b.add_node({.id = 3 + i, .name = "read" + std::to_string(i)}, {w}, {r});
    b.add_output(r);
  }
  const ValueId s = b.add_value({.id = 7, .name = "s", .bytes = 1_B});
  b.add_node({.id = 6, .name = "read_v"}, {v}, {s});
  b.add_output(s);
  return std::move(b).build();
}

}  // namespace

TEST_CASE("the toy's plan recomputes one value that is needed, through two others") {
  const Extraction all = extract(toy_graph(), toy_schedule());
  REQUIRE(all.recomputations.size() == 1);
  CHECK(all.recomputations[0] ==
        Recomputation{.value = ValueId{4},
                      .occurrences = {5, 6, 7},
                      .nodes = nodes({0, 1, 2}),
                      .sources = {{ValueId{0}, no_index}},
                      .reads = {{ValueId{0}, no_index, 5}, {ValueId{2}, 5, 6}, {ValueId{3}, 6, 7}},
                      .uses = {8}});
  CHECK(all.unneeded.empty());
  CHECK(printed(toy_graph(), toy_schedule()) ==
        "h.flat, read by grad at 8: norm at 5, relu at 6, flat at 7, from x\n");
}

TEST_CASE("where nothing runs again there is nothing to extract") {
  CHECK(extract(toy_graph(), own_order(toy_graph())) == Extraction{});
  CHECK(printed(toy_graph(), own_order(toy_graph())) == "");
}

TEST_CASE("an in-place value is recomputed through all that its storage went through") {
  CHECK(printed(in_place_chain(), nodes({0, 1, 2, 3, 0, 1, 2, 4})) ==
        "c, read by last at 7: f at 4, g_ at 5, h_ at 6\n");
}

TEST_CASE(
    "a view of a recomputed base belongs to the subgraph, and so does a first run that reads only "
    "the view") {
  CHECK(printed(fan_out(), nodes({0, 1, 2, 3, 4, 5, 0, 1, 6})) ==
        "v, read by read_v at 8: f at 6, view at 7, from x\n");
}

TEST_CASE("a base that is still there is a source, named by the run that made it") {
  CHECK(printed(fan_out(), nodes({0, 1, 2, 3, 2, 4, 5, 6})) ==
        "w, read by read1 at 5 and read by read2 at 6: g at 4, from v of 1\n");
}

TEST_CASE("a node that runs three times more gives three recomputations") {
  CHECK(printed(fan_out(), nodes({0, 1, 2, 2, 3, 2, 4, 2, 5, 6})) ==
        "w, read by read0 at 4: g at 3, from v of 1\n"
        "w, read by read1 at 6: g at 5, from v of 1\n"
        "w, read by read2 at 8: g at 7, from v of 1\n");
}

TEST_CASE("subgraphs share what both need") {
  CHECK(printed(fan_out(), nodes({0, 1, 2, 3, 4, 0, 1, 2, 5, 6})) ==
        "v, read by read_v at 9: f at 5, view at 6, from x\n"
        "w, read by read2 at 8: f at 5, view at 6, g at 7, from x\n");
}

TEST_CASE("an old instance that is still alive is not read again, and not a source") {
  // The base runs again while the first v is alive: v stays the newest v, so g still reads the old
  // storage.
  CHECK(printed(fan_out(), nodes({0, 1, 0, 2, 3, 4, 5, 6})) ==
        "f at 2 runs again, and nothing needs it\n");
}

TEST_CASE("what the step hands over is a use") {
  CHECK(printed(in_place_chain(), nodes({0, 1, 2, 3, 3, 4})) ==
        "d, handed over: use at 4, from c of 2\n");
}

TEST_CASE("in a schedule that breaks a rule there is nothing to extract") {
  CHECK(refusal([] { return extract(toy_graph(), nodes({1})); }) ==
        "bad schedule: step 0: node 1 (relu): value 2 (h) is read and does not exist");
}
