#include <reprise/report/plots.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/toy_graph.hpp>
#include <reprise_test/well_formed.hpp>
#include <reprise_test/working_time.hpp>

using namespace reprise;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::TempDir;
using reprise_test::toy_graph;
using reprise_test::xml_fault;

namespace {

struct Plotted {
  Profile profile;
  std::vector<ActivationMetrics> metrics{activation_metrics(profile)};
  ProfilePlots plots{profile, metrics};

  explicit Plotted(StepGraph graph) : profile(unmeasured_profile(std::move(graph))) {}

  [[nodiscard]] std::vector<std::string> all() const {
    return {plots.node_runtime(),  plots.node_memory(), plots.activation_size(),
            plots.inactive_time(), plots.live_memory(), plots.peak_breakdown()};
  }
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the toy's pictures say its numbers") {
  const Plotted toy{toy_graph()};
  for (const std::string& svg : toy.all()) CHECK(xml_fault(svg).empty());
  CHECK(has(toy.plots.node_runtime(), "188.5 us in 6 nodes; the longest, norm, takes 120.5 us"));
  CHECK(has(toy.plots.node_memory(), "peak 28.07 KiB at sum"));
  CHECK(has(toy.plots.activation_size(),
            "24.00 KiB in 2 activations; the largest, wide, has 16.00 KiB"));
  CHECK(has(toy.plots.inactive_time(), "the longest, of h, is 38.0 us"));
  CHECK(has(toy.plots.peak_breakdown(), "activation 24.00 KiB, 85.5 %"));
  CHECK(has(toy.plots.peak_breakdown(), "buffer 64 B, 0.2 %"));
}

TEST_CASE("live memory is stacked by role, with the boundary, and the budget where there is one") {
  const Plotted toy{toy_graph()};
  const std::string with = toy.plots.live_memory(24000_B), without = toy.plots.live_memory();
  CHECK(has(with, "budget 23.44 KiB"));
  CHECK_FALSE(has(without, "budget"));
  for (const char* role :
       {">input<", ">buffer<", ">activation<", ">gradient<", ">other<", ">workspace<"})
    CHECK(has(without, role));
  CHECK_FALSE(has(without, ">parameter<"));  // there is none
  CHECK(has(without, ">backward</text>"));
}

TEST_CASE("names of any kind, and graphs without anything, leave pictures well-formed") {
  GraphBuilder b;
  const ValueId v =
      b.add_value({.id = 0, .name = "<&\"\xff", .bytes = 8_B, .role = Role::activation});
  b.add_node({.id = 0, .name = "</svg>\x02", .time = {1}}, {}, {v});
  for (const std::string& svg : Plotted{std::move(b).build()}.all()) CHECK(xml_fault(svg).empty());
  for (const std::string& svg : Plotted{GraphBuilder{}.build()}.all())
    CHECK(xml_fault(svg).empty());
}

TEST_CASE("thousands of nodes stay small and quick") {
  const Plotted large{testing::transformer_step({.layers = 100})};
  REQUIRE(large.profile.graph.node_count() > 5000);
  const reprise_test::WorkingTime time;
  std::size_t bytes = 0;
  for (const std::string& svg : large.all()) bytes += svg.size();
  CHECK(bytes < 300'000);
  CHECK(time.seconds() < 2);
}

TEST_CASE("plots are written beside each other under the caller's prefix") {
  const Plotted toy{toy_graph()};
  const TempDir dir;
  write_plot_files(dir / "a/b", "bs4_", toy.plots, 20_KiB);
  for (const char* name : {"node_runtime", "node_memory", "activation_size", "inactive_time",
                           "live_memory", "peak_breakdown"})
    CHECK(std::filesystem::file_size(dir / ("a/b/bs4_" + std::string(name) + ".svg")) > 500);
  CHECK(refusal([&] { write_plot_files("/dev/null/x", "", toy.plots); }) ==
        "input/output: /dev/null/x/node_runtime.svg: could not be written");
}
