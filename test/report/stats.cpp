#include <reprise/report/stats.hpp>

#include <sstream>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/temp_dir.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::reporting;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::TempDir;
using reprise_test::toy_graph;

namespace {

Profile toy_profile() {
  Profile p = unmeasured_profile(toy_graph());
  p.nodes[0].samples = {{121}, {119}, {120.5}};
  return p;
}

std::string text_of(const auto& rows, const auto& columns) {
  std::ostringstream out;
  write_csv(out, rows, columns);
  return out.str();
}

std::string line(const std::string& text, int number) {
  std::istringstream in{text};
  std::string result;
  for (int i = 0; i <= number; ++i) std::getline(in, result);
  return result;
}

}  // namespace

TEST_CASE("the node table of the toy is the header's example") {
  const std::string text = text_of(node_stats(toy_profile()), node_stats_columns);
  CHECK(line(text, 0) ==
        "rank,id,name,op,phase,time_us,samples_us,output_bytes,workspace_bytes,active_before_bytes,"
        "active_peak_bytes,active_after_bytes,"
        "live_bytes");
  CHECK(line(text, 1) ==
        "0,0,norm,aten::native_batch_norm,forward,120.5,121 119 "
        "120.5,8192,256,4160,12608,12352,12608");
  CHECK(line(text, 6) ==
        "5,5,grad,aten::threshold_backward,backward,20,20,4096,0,12356,16452,16452,16452");
}

TEST_CASE("the activation table of the toy is the header's example") {
  const Profile profile = toy_profile();
  const std::string text = text_of(activation_stats(profile.graph, activation_metrics(profile)),
                                   activation_stats_columns);
  CHECK(line(text, 0) ==
        "id,name,memory_bytes,created_rank,created_node,last_fw_node,first_bw_node,last_bw_node,"
        "inactive_time_us,recomputable,"
        "recomp_time_us,recomp_memory_bytes,recompute_ratio,swap_time_us,recompute_nodes,recompute_"
        "sources");
  CHECK(line(text, 1) == "2,h,8192,0,0,2,5,5,38,1,130.5,8448,62.77394636015325,0,0 1,0");
  CHECK(line(text, 2) == "5,wide,16384,3,3,4,,,0,1,30,16384,546.1333333333333,0,3,0");
}

TEST_CASE("files carry the caller's prefix and read back as they were written") {
  GraphBuilder b;
  const ValueId v =
      b.add_value({.id = 7, .name = "a, \"b\"\nc", .bytes = 8_B, .role = Role::activation});
  b.add_node({.id = 3, .name = "n,\"x\"", .op = "op", .time = {0.1}}, {}, {v});
  b.add_node({.id = 9, .phase = Phase::backward, .time = {0.2}}, {v}, {});
  const Profile profile = unmeasured_profile(std::move(b).build());
  const TempDir dir;
  write_stats_files(dir / "out/deep", "bs16_", profile);
  std::ifstream nodes{dir / "out/deep/bs16_node_stats.csv"},
      activations{dir / "out/deep/bs16_activation_stats.csv"};
  CHECK(read_csv<NodeStats>(nodes, node_stats_columns) == node_stats(profile));
  CHECK(read_csv<ActivationStats>(activations, activation_stats_columns) ==
        activation_stats(profile.graph, activation_metrics(profile)));
}

TEST_CASE("a folder that cannot be written is an error with the path") {
  CHECK(refusal([] { write_stats_files("/dev/null/x", "", toy_profile()); }) ==
        "input/output: /dev/null/x/node_stats.csv: cannot be opened for writing");
}
