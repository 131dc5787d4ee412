#include <reprise/profile/metrics.hpp>

#include <cmath>
#include <map>

#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::profiling;
using namespace reprise::literals;

namespace {

using Nodes = std::vector<NodeId>;
using Values = std::vector<ValueId>;

// An MLP with three layers, h = fc(x) and r = relu(h), and a loss, forward and backward. Weights
// are 100 B each, activations 400 B, the batch 400 B, gradients as large as what they belong to.
// relu's backward reads its result, as PyTorch's does.
//
//    node        us   reads             makes            during: 700 B persistent (x, w1 … w3), and
//  0 fc1         30   x w1              h1                h1                                     1100
//  1 relu1        5   h1                r1                h1 r1                                  1500
//  2 fc2         20   r1 w2             h2                r1 h2                                  1500
//  3 relu2        4   h2                r2                r1 h2 r2                               1900
//  4 fc3         10   r2 w3             y                 r1 r2 y                                1900
//  5 loss         2   y                 l (4)             r1 r2 y l                              1904
//  6 d_loss       2   y                 gy                r1 r2 y l gy                           2304
//  7 d_fc3.w      9   gy r2             gw3 (100)         r1 r2 l gy gw3                         2004
//  8 d_fc3.x      8   gy w3             gr2               r1 r2 l gy gw3 gr2                     2404   <- peak
//  9 d_relu2      3   gr2 r2            gh2               r1 r2 l gw3 gr2 gh2                    2404
// 10 d_fc2.w     15   gh2 r1            gw2 (100)         r1 l gw3 gh2 gw2                       1704
// 11 d_fc2.x     14   gh2 w2            gr1               r1 l gw3 gh2 gw2 gr1                   2104
// 12 d_relu1      3   gr1 r1            gh1               r1 l gw3 gw2 gr1 gh1                   2104
// 13 d_fc1.w     25   gh1 x             gw1 (100)         l gw3 gw2 gh1 gw1                      1404
struct Mlp {
  ValueId x{}, h1{}, r1{}, h2{}, r2{}, y{};
  StepGraph graph;

  Mlp() {
    GraphBuilder b{"mlp"};
    std::int64_t ids = 0;
    const auto value = [&](const char* name, Bytes bytes, Role role, bool persistent = false) {
      return b.add_value(
          {.id = ids++, .name = name, .bytes = bytes, .role = role, .persistent = persistent});
    };
    x = value("x", 400_B, Role::input, true);
    const ValueId w1 = value("w1", 100_B, Role::parameter, true),
                  w2 = value("w2", 100_B, Role::parameter, true);
    const ValueId w3 = value("w3", 100_B, Role::parameter, true);
    h1 = value("h1", 400_B, Role::activation);
    r1 = value("r1", 400_B, Role::activation);
    h2 = value("h2", 400_B, Role::activation);
    r2 = value("r2", 400_B, Role::activation);
    y = value("y", 400_B, Role::activation);
    const ValueId l = value("l", 4_B, Role::other), gy = value("gy", 400_B, Role::gradient),
                  gw3 = value("gw3", 100_B, Role::gradient);
    const ValueId gr2 = value("gr2", 400_B, Role::gradient),
                  gh2 = value("gh2", 400_B, Role::gradient);
    const ValueId gw2 = value("gw2", 100_B, Role::gradient),
                  gr1 = value("gr1", 400_B, Role::gradient);
    const ValueId gh1 = value("gh1", 400_B, Role::gradient),
                  gw1 = value("gw1", 100_B, Role::gradient);
    std::int64_t nodes = 0;
    const auto node = [&](const char* name, double us, std::initializer_list<ValueId> in,
                          ValueId out) {
      b.add_node({.id = nodes,
                  .name = name,
                  .phase = nodes < 6 ? Phase::forward : Phase::backward,
                  .time = {us}},
                 in, {out});
      ++nodes;
    };
    node("fc1", 30, {x, w1}, h1);
    node("relu1", 5, {h1}, r1);
    node("fc2", 20, {r1, w2}, h2);
    node("relu2", 4, {h2}, r2);
    node("fc3", 10, {r2, w3}, y);
    node("loss", 2, {y}, l);
    node("d_loss", 2, {y}, gy);
    node("d_fc3.w", 9, {gy, r2}, gw3);
    node("d_fc3.x", 8, {gy, w3}, gr2);
    node("d_relu2", 3, {gr2, r2}, gh2);
    node("d_fc2.w", 15, {gh2, r1}, gw2);
    node("d_fc2.x", 14, {gh2, w2}, gr1);
    node("d_relu1", 3, {gr1, r1}, gh1);
    node("d_fc1.w", 25, {gh1, x}, gw1);
    for (ValueId out : {l, gw1, gw2, gw3}) b.add_output(out);
    graph = std::move(b).build();
  }
};

std::map<std::string, ActivationMetrics> metrics_by_name(const Profile& profile) {
  std::map<std::string, ActivationMetrics> by_name;
  for (ActivationMetrics& m : activation_metrics(profile))
    by_name[profile.graph.value(m.use.value).name] = std::move(m);
  return by_name;
}

}  // namespace

TEST_CASE(
    "the MLP's memory rises through forward and falls through backward, as worked out by hand") {
  const MemoryAnalysis m = analyse_memory(Mlp{}.graph);
  CHECK(m.live_during == std::vector<Bytes>{1100_B, 1500_B, 1500_B, 1900_B, 1900_B, 1904_B, 2304_B,
                                            2004_B, 2404_B, 2404_B, 1704_B, 2104_B, 2104_B,
                                            1404_B});
  CHECK(m.peak == 2404_B);
  CHECK(m.peak_node == NodeId{8});
  // After each node, what is not used again is gone: r1; r1 and r2; and back down to the loss and
  // the gradients.
  CHECK(m.live_after == std::vector<Bytes>{1100_B, 1100_B, 1500_B, 1500_B, 1900_B, 1904_B, 1904_B,
                                           2004_B, 2004_B, 1604_B, 1704_B, 1704_B, 1304_B, 1004_B});
  CHECK(std::is_sorted(m.live_after.begin(), m.live_after.begin() + 6));
  CHECK(m.live_after.back() < m.live_after[5]);
}

TEST_CASE("the MLP's metrics are those worked out by hand") {
  const Mlp mlp;
  Profile profile = unmeasured_profile(mlp.graph);
  estimate_transfers(profile, {.out = 100, .in = 50});
  const auto metrics = metrics_by_name(profile);
  CHECK(metrics.size() == 5);

  // r1: made by relu1, last read forward by fc2, backward by d_fc2.w and d_relu1. Between fc2 and
  // d_fc2.w run relu2 (4), fc3 (10), loss (2), d_loss (2), d_fc3.w (9), d_fc3.x (8) and d_relu2
  // (3): 38 us. h1 is not used in backward, so fc1 runs again: 30 + 5 us, with h1 and r1 side by
  // side: 800 B.
  const ActivationMetrics& r1 = metrics.at("r1");
  CHECK(r1.use.created == NodeId{1});
  CHECK(r1.use.last_forward == NodeId{2});
  CHECK(r1.use.first_backward == NodeId{10});
  CHECK(r1.use.last_backward == NodeId{12});
  CHECK(r1.use.bytes == 400_B);
  CHECK(r1.inactive_time == Microseconds{38});
  CHECK(r1.recompute_nodes == Nodes{NodeId{0}, NodeId{1}});
  CHECK(r1.recompute_sources == Values{mlp.x, ValueId{1}});
  CHECK(r1.recomp_time == Microseconds{35});
  CHECK(r1.recomp_memory == 800_B);
  CHECK(r1.recompute_ratio == 400.0 / 35.0);
  CHECK(r1.swap_time == Microseconds{400.0 / 100 + 400.0 / 50});

  // r2: made by relu2, last read forward by fc3, backward by d_fc3.w and d_relu2. Between: loss
  // (2), d_loss (2): 4 us. r1 is there, h2 is not: fc2 and relu2, 24 us, h2 and r2: 800 B.
  const ActivationMetrics& r2 = metrics.at("r2");
  CHECK(r2.inactive_time == Microseconds{4});
  CHECK(r2.recompute_nodes == Nodes{NodeId{2}, NodeId{3}});
  CHECK(r2.recompute_sources == Values{ValueId{2}, mlp.r1});
  CHECK(r2.recomp_time == Microseconds{24});
  CHECK(r2.recomp_memory == 800_B);
  CHECK(r2.recompute_ratio == 400.0 / 24.0);

  // y: read by loss and d_loss, one right after the other; r2 is there: fc3, 10 us, 400 B.
  const ActivationMetrics& y = metrics.at("y");
  CHECK(y.use.last_forward == NodeId{5});
  CHECK(y.use.first_backward == NodeId{6});
  CHECK(y.inactive_time == Microseconds{0});
  CHECK(y.recompute_nodes == Nodes{NodeId{4}});
  CHECK(y.recomp_time == Microseconds{10});
  CHECK(y.recomp_memory == 400_B);

  // h1: not used in backward.
  const ActivationMetrics& h1 = metrics.at("h1");
  CHECK_FALSE(h1.use.first_backward.valid());
  CHECK(h1.inactive_time == Microseconds{0});
  CHECK(h1.recompute_nodes == Nodes{NodeId{0}});
}

TEST_CASE("recomputing what was written in place makes its input anew, and the workspace counts") {
  Profile profile = unmeasured_profile(reprise_test::toy_graph());
  const auto metrics = metrics_by_name(profile);
  const ActivationMetrics& h = metrics.at("h");
  // h.relu is what backward sees, through h.flat
  CHECK(h.use.saved == ValueId{3});
  CHECK(h.recompute_nodes == Nodes{NodeId{0}, NodeId{1}});  // norm, relu_
  // x, and not the statistics that norm updates
  CHECK(h.recompute_sources == Values{ValueId{0}});
  CHECK(h.recomp_time == Microseconds{130.5});
  CHECK(h.recomp_memory == Bytes{8192 + 256});
  CHECK(h.inactive_time == Microseconds{38});  // wide and sum
  CHECK(h.swap_time == Microseconds{0});
}

TEST_CASE("what costs nothing has an infinite ratio, what may run only once none") {
  GraphBuilder b;
  const ValueId x = b.add_value({.id = 0, .bytes = 8_B, .persistent = true});
  const ValueId free =
      b.add_value({.id = 1, .name = "free", .bytes = 8_B, .role = Role::activation});
  const ValueId once =
      b.add_value({.id = 2, .name = "once", .bytes = 8_B, .role = Role::activation});
  const ValueId empty = b.add_value({.id = 3, .name = "empty", .role = Role::activation});
  b.add_node({.id = 0}, {x}, {free, empty});
  b.add_node({.id = 1, .time = {5}, .recomputable = false}, {x}, {once});
  b.add_node({.id = 2, .phase = Phase::backward}, {free, once, empty}, {});
  const auto metrics = metrics_by_name(unmeasured_profile(std::move(b).build()));
  CHECK(std::isinf(metrics.at("free").recompute_ratio));
  CHECK(metrics.at("free").recomp_time == Microseconds{0});
  CHECK_FALSE(metrics.at("once").recomputable);
  CHECK(metrics.at("once").recompute_nodes.empty());
  CHECK(metrics.at("once").recompute_ratio == 0);
  CHECK(metrics.at("empty").recompute_ratio == 0);
}

TEST_CASE("another output of a recomputed node is made anew and counts, though it is kept") {
  GraphBuilder b;
  const ValueId x = b.add_value({.id = 0, .bytes = 8_B, .persistent = true});
  const ValueId out =
      b.add_value({.id = 1, .name = "out", .bytes = 100_B, .role = Role::activation});
  const ValueId mask =
      b.add_value({.id = 2, .name = "mask", .bytes = 10_B, .role = Role::activation});
  b.add_node({.id = 0, .name = "dropout", .time = {5}}, {x}, {out, mask});
  b.add_node({.id = 1, .phase = Phase::backward}, {out, mask}, {});
  const auto metrics = metrics_by_name(unmeasured_profile(std::move(b).build()));
  CHECK(metrics.at("out").recomp_memory == 110_B);
  CHECK(metrics.at("mask").recomp_memory == 110_B);
}

TEST_CASE("a recomputation judged possible can be run before the first backward use") {
  std::size_t checked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    testing::Rng rng{seed};
    const StepGraph graph = testing::resnet_step({.blocks = 1 + rng.below(4)});
    const Profile profile = unmeasured_profile(graph);
    for (const ActivationMetrics& m : activation_metrics(profile)) {
      if (!m.recomputable || !m.use.first_backward.valid()) continue;
      Schedule schedule = own_order(graph);
      schedule.insert(schedule.begin() + m.use.first_backward.index, m.recompute_nodes.begin(),
                      m.recompute_nodes.end());
      const Simulation run = simulate(graph, schedule);
      INFO("seed " << seed << ", value " << graph.value(m.use.value).id << ": "
                   << (run.valid ? "" : run.violation->message));
      REQUIRE(run.valid);
      REQUIRE(run.time.count ==
              Approx(simulate(graph, own_order(graph)).time.count + m.recomp_time.count));
      ++checked;
    }
  }
  CHECK(checked > 50);
}
