#include <reprise/profile/print_stats.hpp>

#include <iomanip>
#include <sstream>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::profiling;
using namespace reprise::literals;
using reprise_test::toy_graph;

namespace {

std::string printed(const Profile& profile, std::size_t expensive = 10) {
  std::ostringstream out;
  print_stats(out, profile, expensive);
  return out.str();
}

bool contains(const std::string& text, const std::string& piece) {
  return text.find(piece) != text.npos;
}

Profile toy_profile() {
  Profile p = unmeasured_profile(toy_graph());
  p.warmup = 1;
  p.runs = 3;
  p.run_times = {{205}, {204}, {230}};
  return p;
}

}  // namespace

TEST_CASE("the statistics of the toy are the header's example") {
  CHECK(printed(toy_profile(), 2) ==
        "toy: 6 nodes, median of 3 runs (1 dropped as warm-up)\n"
        "\n"
        "  nodes         188.5 us   sum of their times\n"
        "  run           205.0 us   wall time\n"
        "  overhead       16.5 us   8.0 % of the run: between nodes (dispatch, freeing, the "
        "profiler itself)\n"
        "  base          4.06 KiB   held when the runs started\n"
        "  peak         28.07 KiB   held at most\n"
        "\n"
        "The most expensive nodes\n"
        "\n"
        "  node      time   share       peak  name\n"
        "     0  120.5 us  63.9 %  12.31 KiB  norm\n"
        "     3   30.0 us  15.9 %  28.06 KiB  wide\n");
}

TEST_CASE("isolated times and bandwidths are printed where they were measured") {
  Profile p = toy_profile();
  p.isolated_time = {1500};
  p.isolated_ops = 5;
  p.bandwidth_out = 1.5 * (1 << 30);
  p.bandwidth_in = 512.0 * (1 << 20);
  const std::string text = printed(p);
  CHECK(contains(
      text,
      "  isolated       1.50 ms   sum where each of 5 distinct ops is measured on its own\n"));
  p.isolated_failed = 2;
  CHECK(contains(printed(p),
                 "5 distinct ops is measured on its own, 2 of them only while capturing\n"));
  CHECK(contains(text,
                 "  out         1.50 GiB/s   moving storages out of memory\n"
                 "  in        512.00 MiB/s   bringing them back\n"));
}

TEST_CASE("what was not measured has no line") {
  Profile p = unmeasured_profile(toy_graph());
  p.peak = 0_B;  // as after a NullProbe
  CHECK(printed(p, 1) ==
        "toy: 6 nodes, median of 1 run\n"
        "\n"
        "  nodes         188.5 us   sum of their times\n"
        "\n"
        "The most expensive nodes\n"
        "\n"
        "  node      time   share  name\n"
        "     0  120.5 us  63.9 %  norm\n");
}

TEST_CASE("nodes that take longer than the run are not called negative overhead without a word") {
  Profile p = toy_profile();
  p.run_times = {{180}};
  p.aggregate = Aggregate::mean;
  p.runs = 1;
  const std::string text = printed(p);
  CHECK(text.starts_with("toy: 6 nodes, mean of 1 run (1 dropped as warm-up)\n"));
  CHECK(contains(text,
                 "  overhead       -8.5 us   none to be seen: nodes and run are aggregated each on "
                 "their own\n"));
}

TEST_CASE("ten nodes are printed, equally expensive ones in the graph's order") {
  GraphBuilder b;
  for (int i = 0; i < 12; ++i)
    b.add_node({.id = 100 + i, .name = "n" + std::to_string(i), .time = {i == 11 ? 2.0 : 1.0}}, {},
               {});
  const std::string text = printed(unmeasured_profile(std::move(b).build()));
  CHECK(text.starts_with("step: 12 nodes"));
  CHECK(
      text.ends_with("   111  2.0 us  15.4 %  n11\n"
                     "   100  1.0 us   7.7 %  n0\n"
                     "   101  1.0 us   7.7 %  n1\n"
                     "   102  1.0 us   7.7 %  n2\n"
                     "   103  1.0 us   7.7 %  n3\n"
                     "   104  1.0 us   7.7 %  n4\n"
                     "   105  1.0 us   7.7 %  n5\n"
                     "   106  1.0 us   7.7 %  n6\n"
                     "   107  1.0 us   7.7 %  n7\n"
                     "   108  1.0 us   7.7 %  n8\n"));
}

TEST_CASE("a stream's own settings do not disturb the statistics") {
  std::ostringstream out;
  out << std::left << std::setfill('*');
  print_stats(out, toy_profile(), 2);
  CHECK(out.str() == printed(toy_profile(), 2));
}
