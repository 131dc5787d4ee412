#include <reprise/profile/profile.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::profiling;
using namespace reprise::literals;
using reprise_test::refusal;
using reprise_test::toy_graph;

TEST_CASE("the median of samples is the one in the middle, or the mean of the two there") {
  CHECK(aggregate({{121}, {119.5}, {120.5}}, Aggregate::median) == Microseconds{120.5});
  CHECK(aggregate({{1}, {100}, {2}, {3}}, Aggregate::median) == Microseconds{2.5});
  CHECK(aggregate({{7}}, Aggregate::median) == Microseconds{7});
  CHECK(aggregate({}, Aggregate::median) == Microseconds{0});
  CHECK(aggregate({{1}, {2}, {6}}, Aggregate::mean) == Microseconds{3});
}

TEST_CASE("a graph that nobody has run has a profile all the same") {
  const Profile p = unmeasured_profile(toy_graph());
  CHECK(p.nodes[0].samples == std::vector<Microseconds>{{120.5}});
  CHECK(p.nodes[0].time == Microseconds{120.5});
  CHECK(p.nodes[0].memory.before == 4160_B);
  CHECK(p.nodes[0].memory.peak == 12608_B);
  CHECK(p.nodes[0].memory.after == 12352_B);  // without the workspace of 256 B
  CHECK(p.nodes[4].memory.before == 28736_B);
  CHECK(p.nodes[4].memory.peak == 28740_B);
  CHECK(p.nodes[4].memory.after == 28740_B);  // before anything is freed
  CHECK(p.total_time() == Microseconds{188.5});
  CHECK(p.peak == 28740_B);
  CHECK(p.base == 4160_B);
  CHECK_FALSE(p.storages[0].measured);
}

TEST_CASE("what is there at the start is active before the first node") {
  GraphBuilder b;
  const ValueId v = b.add_value({.id = 0, .bytes = 8_B, .initial = true});
  b.add_value({.id = 1, .bytes = 3_B, .persistent = true});
  b.add_node({.id = 0}, {v}, {});
  CHECK(unmeasured_profile(std::move(b).build()).nodes[0].memory.before == 11_B);
}

TEST_CASE("transfers are estimated where they are not known") {
  Profile p = empty_profile(toy_graph());
  StorageProfile& h = p.storages[p.graph.value(ValueId{2}).storage.index];
  StorageProfile& wide = p.storages[p.graph.value(ValueId{5}).storage.index];
  wide.swap_out = {1};
  wide.swap_in = {2};
  wide.measured = true;
  estimate_transfers(p, {.out = 4096, .in = 8192});
  CHECK(h.bytes == 8192_B);
  CHECK(h.swap_out == Microseconds{2});
  CHECK(h.swap_in == Microseconds{1});
  CHECK_FALSE(h.measured);
  CHECK(wide.swap_out == Microseconds{1});
  CHECK(wide.swap_in == Microseconds{2});
  CHECK(refusal([&] { estimate_transfers(p, {}); }) ==
        "bad argument: a transfer rate must be greater than zero");
}
