#include <reprise/report/pictures.hpp>

#include <sstream>

#include <reprise_test/toy.hpp>

namespace {

std::string before_and_after(const StepGraph& graph, const Schedule& schedule) {
  std::ostringstream out;
  write_before_and_after(out, graph, schedule, extract(graph, schedule).recomputations.at(0));
  return out.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("before, the use reads the first run; after, the clone") {
  const std::string text = before_and_after(toy_graph(), toy_schedule());
  CHECK(has(text, R"(before5 [label="grad\nstep 5, 20.0 us"];)"));
  CHECK(has(text, R"(before2 -> before5 [label="h.flat", color="#f28e2b"];)"));
  CHECK(has(text, R"(after8 [label="grad\nstep 8, 20.0 us"];)"));
  CHECK(has(text, R"(after7 -> after8 [label="h.flat", color="#f28e2b"];)"));
  CHECK_FALSE(has(text, "after2 -> after8"));
}

TEST_CASE("clones are marked, first runs are not") {
  const std::string text = before_and_after(toy_graph(), toy_schedule());
  CHECK(has(
      text,
      R"(after5 [label="norm#1\nstep 5, 120.5 us", style="rounded,filled,dashed", color="#d9480f")"));
  CHECK(has(text, R"(after0 [label="norm\nstep 0, 120.5 us"];)"));
  CHECK_FALSE(has(text, "after3 "));  // wide has nothing to do with it
}

TEST_CASE("a value from elsewhere is one ellipse in each half, whoever reads it") {
  const std::string text = before_and_after(toy_graph(), toy_schedule());
  CHECK(has(text, R"(beforev0 [label="x", shape=ellipse)"));
  CHECK(has(text, "afterv0 -> after0 "));
  CHECK(has(text, "afterv0 -> after5 "));
  CHECK(has(text, "afterv0 -> after8 "));
  CHECK(text.find("afterv0 [") == text.rfind("afterv0 ["));
}

TEST_CASE("memory over time keeps every peak, and a schedule takes the width that it costs") {
  const StepGraph graph = toy_graph();
  const Simulation own = simulate(graph, own_order(graph)),
                   planned = simulate(graph, toy_schedule());
  // 319 us in 319 places: norm 120.5, relu 10, flat 0, wide 30, sum 8, grad 20, then nothing.
  const std::vector<double> before = live_over_time(graph, own_order(graph), own, 319, 319);
  CHECK(before[0] == 12608);
  CHECK(before[119] == 12608);
  CHECK(before[125] == 12352);
  CHECK(before[140] == 28736);
  CHECK(before[165] == 28740);
  CHECK(before[180] == 16452);
  CHECK(before[189] == 0);
  const std::vector<double> after = live_over_time(graph, toy_schedule(), planned, 319, 319);
  CHECK(*std::max_element(after.begin(), after.end()) == 20548);
  CHECK(after[318] == 16452);
}

TEST_CASE("a node that takes no time is still seen") {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 4_B}), c = b.add_value({.id = 1, .bytes = 8_B}),
                d = b.add_value({.id = 2, .bytes = 1_B});
  b.add_node({.id = 0, .time = {10}}, {}, {a});
  b.add_node({.id = 1, .workspace = 100_B}, {a}, {c});
  b.add_node({.id = 2, .time = {10}}, {c}, {d});
  b.add_output(d);
  const StepGraph graph = std::move(b).build();
  const Simulation cost = simulate(graph, own_order(graph));
  CHECK(live_over_time(graph, own_order(graph), cost, 20, 4) == std::vector<double>{4, 4, 112, 9});
}

TEST_CASE("a curve reaches its end, however its times add up") {
  GraphBuilder b;
  ValueId last = b.add_value({.id = 0, .bytes = 4_B, .persistent = true});
  for (int i = 0; i < 10; ++i) {
    const ValueId next = b.add_value({.id = i + 1, .bytes = 4_B});
    b.add_node({.id = i, .time = {0.1}}, {last}, {next});
    last = next;
  }
  b.add_output(last);
  const StepGraph graph = std::move(b).build();
  const Simulation cost = simulate(graph, own_order(graph));
  CHECK(live_over_time(graph, own_order(graph), cost, cost.time.count, 541).back() == 12);
}

TEST_CASE("where nothing takes time, memory is drawn over steps") {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 4_B}), c = b.add_value({.id = 1, .bytes = 8_B});
  b.add_node({.id = 0}, {}, {a});
  b.add_node({.id = 1}, {a}, {c});
  b.add_output(c);
  const StepGraph graph = std::move(b).build();
  CHECK(live_over_time(graph, own_order(graph), simulate(graph, own_order(graph)), 2, 4) ==
        std::vector<double>{4, 4, 12, 12});
  CHECK(has(memory_before_and_after(graph, own_order(graph)), ">step</text>"));
}

TEST_CASE("the memory picture says both peaks, the cost and the budget") {
  const std::string svg = memory_before_and_after(toy_graph(), toy_schedule(), 24000_B);
  CHECK(svg.starts_with("<svg "));
  CHECK(has(svg, "peak 28.07 KiB before, 20.07 KiB after; 3 runs again, 69.2 % more time"));
  CHECK(has(svg, "budget 23.44 KiB"));
  CHECK(has(svg, ">time (us)</text>"));
  CHECK_FALSE(has(memory_before_and_after(toy_graph(), toy_schedule()), "budget"));
}

TEST_CASE("a schedule that cannot be run is not drawn") {
  CHECK(refusal([] { return memory_before_and_after(toy_graph(), nodes({0})); }) ==
        "bad schedule: step 1: node 1 (relu) never runs");
}
