#include <reprise/graph/alive_during.hpp>
#include <reprise/graph/analysis.hpp>

#include <numeric>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/random_graphs.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::literals;
using reprise_test::toy_graph;

namespace {

const NodeId norm{0}, flat{2}, wide_node{3}, sum{4}, grad{5};
const ValueId x{0}, h{2}, h_relu{3}, wide{5}, loss{6};

Bytes at_role(const MemoryAnalysis& m, Role role) {
  return m.peak_by_role[static_cast<std::size_t>(role)];
}

}  // namespace

TEST_CASE("the header's example: the toy's curve, peak and floor") {
  const StepAnalysis a = analyse(toy_graph());
  CHECK(a.first_backward == grad);
  CHECK(a.memory.live_during ==
        std::vector<Bytes>{12608_B, 12352_B, 12352_B, 28736_B, 28740_B, 16452_B});
  CHECK(a.memory.live_after ==
        std::vector<Bytes>{12352_B, 12352_B, 12352_B, 28736_B, 12356_B, 8260_B});
  CHECK(a.memory.peak == 28740_B);
  CHECK(a.memory.peak_node == sum);
  CHECK(a.memory.time == Microseconds{188.5});
  CHECK(a.memory.floor == 20548_B);
}

TEST_CASE("the toy's peak by role") {
  const MemoryAnalysis m = analyse_memory(toy_graph());
  CHECK(at_role(m, Role::activation) == 24576_B);
  CHECK(at_role(m, Role::input) == 4096_B);
  CHECK(at_role(m, Role::buffer) == 64_B);
  CHECK(at_role(m, Role::other) == 4_B);
  CHECK(at_role(m, Role::gradient) == 0_B);
  CHECK(m.peak_workspace == 0_B);
}

TEST_CASE("an activation's uses are those of everything in its storage") {
  const StepGraph graph = toy_graph();
  const std::vector<StorageUse> uses = activation_uses(graph);
  REQUIRE(uses.size() == 2);
  CHECK(uses[0] == StorageUse{.storage = graph.value(h).storage,
                              .value = h,
                              .bytes = 8192_B,
                              .created = norm,
                              .first_forward = norm,
                              .last_forward = flat,
                              .first_backward = grad,
                              .last_backward = grad,
                              .saved = h_relu});
  CHECK(uses[1] == StorageUse{.storage = graph.value(wide).storage,
                              .value = wide,
                              .bytes = 16384_B,
                              .created = wide_node,
                              .first_forward = wide_node,
                              .last_forward = sum,
                              .first_backward = {},
                              .last_backward = {},
                              .saved = {}});
}

TEST_CASE("a dead range lies between the last forward and the first backward use") {
  const std::vector<StorageUse> uses = activation_uses(toy_graph());
  const DeadRange dead = dead_range(uses[0]);
  CHECK(dead == DeadRange{flat, grad});
  CHECK(dead.covers(wide_node));
  CHECK(dead.covers(sum));
  CHECK_FALSE(dead.covers(flat));
  CHECK_FALSE(dead.covers(grad));
  CHECK_FALSE(dead.empty());
  CHECK(dead_range(uses[1]) == DeadRange{});  // backward does not use wide
  CHECK(dead_range(uses[1]).empty());
  CHECK(DeadRange{flat, wide_node}.empty());
}

TEST_CASE("storage lifetimes run from the producer to the last use of anything inside") {
  const StepGraph graph = toy_graph();
  const std::vector<StorageLifetime> lives = storage_lifetimes(graph);
  CHECK(lives[graph.value(x).storage.index] == StorageLifetime{});
  CHECK(lives[graph.value(h).storage.index] == StorageLifetime{norm, grad});
  CHECK(lives[graph.value(wide).storage.index] == StorageLifetime{wide_node, sum});
  CHECK(lives[graph.value(loss).storage.index] == StorageLifetime{sum, {}});
}

TEST_CASE("what is alive during a node comes largest first") {
  const StepGraph graph = toy_graph();
  std::vector<ValueId> owners;
  for (StorageId s : alive_during(graph, storage_lifetimes(graph), sum))
    owners.push_back(graph.storage(s).owner);
  CHECK(owners == std::vector{wide, h, x, ValueId{1}, loss});
}

TEST_CASE("an activation that only backward reads is last used forward where it is made") {
  GraphBuilder b;
  const ValueId mask = b.add_value({.id = 0, .bytes = 8_B, .role = Role::activation});
  const ValueId a = b.add_value({.id = 1, .bytes = 8_B, .role = Role::gradient}),
                c = b.add_value({.id = 2, .overwrites = mask});
  b.add_node({.id = 0}, {}, {mask});
  b.add_node({.id = 1, .phase = Phase::backward}, {mask}, {a});
  b.add_node({.id = 2, .phase = Phase::backward}, {}, {c});
  const StepGraph graph = std::move(b).build();
  const auto uses = activation_uses(graph);
  REQUIRE(uses.size() == 1);
  CHECK(uses[0].last_forward == NodeId{0});
  CHECK(uses[0].first_backward == NodeId{1});
  CHECK(uses[0].last_backward == NodeId{2});
  CHECK(uses[0].saved == mask);
}

TEST_CASE("initial activations come first and have no creation, persistent ones are none") {
  GraphBuilder b;
  const ValueId made = b.add_value({.id = 0, .bytes = 8_B, .role = Role::activation});
  b.add_value({.id = 1, .bytes = 8_B, .role = Role::activation, .persistent = true});
  const ValueId start =
      b.add_value({.id = 2, .bytes = 8_B, .role = Role::activation, .initial = true});
  b.add_node({.id = 0}, {start}, {made});
  const auto uses = activation_uses(std::move(b).build());
  REQUIRE(uses.size() == 2);
  CHECK(uses[0].value == start);
  CHECK_FALSE(uses[0].created.valid());
  CHECK(uses[0].last_forward == NodeId{0});
  CHECK(uses[1].value == made);
}

TEST_CASE("a graph without backward nodes has no boundary, and one without nodes no peak node") {
  GraphBuilder b;
  b.add_value({.id = 0, .bytes = 8_B, .persistent = true});
  const StepAnalysis a = analyse(std::move(b).build());
  CHECK_FALSE(a.first_backward.valid());
  CHECK_FALSE(a.memory.peak_node.valid());
  CHECK(a.memory.peak == 8_B);
}

TEST_CASE("Boost.Graph's search finds the uses that a walk through the nodes finds") {
  std::size_t saved = 0, dead = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    testing::Rng rng{seed};
    const StepGraph graph = testing::random_graph(rng, {.nodes = 5 + rng.below(40)});
    INFO("seed " << seed);
    const std::size_t turn = rng.below(graph.node_count());
    const auto phase = [turn](NodeId n) {
      return n.index < turn ? Phase::forward : Phase::backward;
    };
    std::vector<StorageUse> walked(graph.storage_count());
    for (std::size_t i = 0; i < walked.size(); ++i) {
      const Storage& s = graph.storage(StorageId{i});
      walked[i] = {.storage = StorageId{i},
                   .value = s.owner,
                   .bytes = s.bytes,
                   .created = graph.value(s.owner).producer};
    }
    const auto use = [&](NodeId n, ValueId v, bool reads) {
      StorageUse& u = walked[graph.value(v).storage.index];
      if (phase(n) == Phase::forward) {
        if (!u.first_forward.valid()) u.first_forward = n;
        u.last_forward = n;
      } else {
        if (!u.first_backward.valid()) u.first_backward = n;
        if (!u.saved.valid() && reads) u.saved = viewed(graph, v);
        u.last_backward = n;
      }
    };
    for (std::size_t i = 0; i < graph.node_count(); ++i) {
      for (ValueId v : graph.inputs(NodeId{i})) use(NodeId{i}, v, true);
      for (ValueId v : graph.outputs(NodeId{i})) {
        use(NodeId{i}, v, false);
        if (const ValueId t = graph.value(v).target(); t.valid())
          use(NodeId{i}, t, graph.value(t).producer != NodeId{i});
      }
    }
    const std::vector<StorageUse> found = storage_uses(GraphAdapter{graph, Edges::data}, phase);
    REQUIRE(found == walked);
    for (const StorageUse& u : found) {
      saved += u.saved.valid() ? 1u : 0u;
      dead += dead_range(u).empty() ? 0u : 1u;
    }
  }
  CHECK(saved > 1000);
  CHECK(dead > 500);
}

TEST_CASE("lifetimes and roles add up to the simulator's bytes on random graphs") {
  std::size_t checked = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    testing::Rng rng{seed};
    const StepGraph graph = testing::random_graph(rng, {.nodes = 5 + rng.below(20)});
    if (!simulate(graph, own_order(graph)).valid) continue;
    const StepAnalysis a = analyse(graph);
    INFO("seed " << seed);
    for (std::size_t i = 0; i < graph.node_count(); ++i) {
      Bytes live = graph.node(NodeId{i}).workspace;
      for (std::size_t s = 0; s < graph.storage_count(); ++s)
        if (a.lifetimes[s].covers(NodeId{i})) live += graph.storage(StorageId{s}).bytes;
      REQUIRE(live == a.memory.live_during[i]);
    }
    REQUIRE(std::accumulate(a.memory.peak_by_role.begin(), a.memory.peak_by_role.end(),
                            a.memory.peak_workspace) == a.memory.peak);
    REQUIRE(a.memory.floor <= a.memory.peak);
    ++checked;
  }
  CHECK(checked > 150);
}
