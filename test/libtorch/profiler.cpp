// Measuring a captured step, and leaving no trace.

#include "models/task.hpp"

#include <sstream>

#include <reprise_test/eager.hpp>

#include <reprise/profile/timers/fixed_timer.hpp>

using namespace reprise;
using namespace reprise::profiling;
using namespace reprise::recording;
using namespace reprise::replaying;
using namespace reprise::training;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

struct Net : torch::nn::Module {
  Net()
      : a(register_module("a", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)))),
        bn(register_module("bn", torch::nn::BatchNorm2d(8))) {
    for (int i = 0; i < 8; ++i)
      blocks.push_back(register_module(
          std::to_string(i), torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1))));
  }
  Tensor forward(const Tensor& x) {
    auto h = bn(a(x)).relu_();
    for (auto& block : blocks) h = torch::dropout(torch::relu(block(h)), 0.2, true) + h;
    return h.pow(2).mean();
  }
  torch::nn::Conv2d a;
  torch::nn::BatchNorm2d bn;
  std::vector<torch::nn::Conv2d> blocks;
};

/// All that a step could have changed.
std::vector<Tensor> state_of(Net& net, const Tensor& x) {
  std::vector<Tensor> state{generator_state(), x.clone()};
  for (const Tensor& p : net.parameters()) {
    state.push_back(p.detach().clone());
    state.push_back(p.grad().defined() ? p.grad().clone() : Tensor());
  }
  for (const Tensor& b : net.buffers()) state.push_back(b.clone());
  return state;
}

void check_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(same_bits(a[i], b[i]));
}

struct Fixture {
  std::shared_ptr<Net> net;
  Tensor x = torch::randn({8, 3, 24, 24});
  Fixture() {
    torch::manual_seed(2);
    net = std::make_shared<Net>();
  }
  CapturedStep capture_step() {
    return capture(
        net, [this](const Tensor& in) { return net->forward(in); }, x);
  }
};

}  // namespace

TEST_CASE("profiling leaves no trace, in the middle of training and with gradients to add to") {
  Fixture f;
  torch::optim::SGD sgd(f.net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  f.net->forward(f.x).backward();
  sgd.step();
  auto captured = f.capture_step();  // gradients are there: this step adds to them in place
  const auto before = state_of(*f.net, f.x);
  const Bytes live = device_memory().live();
  const Profile profile = Profiler<SteadyTimer, AllocatorProbe>{}.run(captured);
  CHECK(device_memory().live() == live);
  check_same(before, state_of(*f.net, f.x));
  CHECK(profile.runs == 3);
  for (const NodeProfile& node : profile.nodes) CHECK(node.samples.size() == 3);
}

TEST_CASE("times are the median of the runs, warm-up not counted") {
  Fixture f;
  auto captured = f.capture_step();
  struct Rising {  // run r takes 10 (r + 1) for every node
    double run = 0;
    std::size_t n = 0;
    void begin_run(std::size_t occurrences) {
      n = occurrences;
      run += 10;
    }
    void start(std::size_t) {}
    void stop(std::size_t) {}
    std::vector<Microseconds> end_run() { return std::vector<Microseconds>(n, Microseconds{run}); }
  };
  const Profile median = Profiler<Rising, NullProbe>{}.run(captured, {.warmup = 2, .runs = 4});
  CHECK(median.nodes[0].samples == std::vector<Microseconds>{{30}, {40}, {50}, {60}});
  CHECK(median.nodes[0].time == Microseconds{45});
  CHECK(median.graph.node(NodeId{0}).time == Microseconds{45});
  const Profile mean = Profiler<Rising, NullProbe>{}.run(
      captured, {.warmup = 0, .runs = 2, .aggregate = Aggregate::mean});
  CHECK(mean.nodes.back().time == Microseconds{15});
  CHECK_THROWS_AS((Profiler<Rising, NullProbe>{}.run(captured, {.runs = 0})), Error);
}

TEST_CASE("the probe sees exactly the bytes that the graph has") {
  Fixture f;
  auto captured = f.capture_step();
  f.net->zero_grad();
  const Profile profile = Profiler<FixedTimer, AllocatorProbe>{FixedTimer{{1}}}.run(captured);
  const Simulation own = simulate(captured.graph(), own_order(captured.graph()));
  const Bytes persistent = captured.graph().persistent_bytes();
  for (std::size_t i = 0; i < profile.nodes.size(); ++i) {
    INFO(captured.graph().node(NodeId{i}).name);
    CHECK((profile.nodes[i].memory.peak - profile.base).count ==
          (own.live_during[i] - persistent).count);
    const Bytes after = own.live_during[i] - captured.graph().node(NodeId{i}).workspace;
    CHECK((profile.nodes[i].memory.after - profile.base).count == (after - persistent).count);
  }
  CHECK((profile.peak - profile.base).count == (own.peak - persistent).count);
  CHECK(profile.total_time() == Microseconds{static_cast<double>(captured.graph().node_count())});
}

TEST_CASE("profiling inside a limit that the step does not fit into") {
  Fixture f;
  auto captured = f.capture_step();
  f.net->zero_grad();
  const auto before = state_of(*f.net, f.x);
  const Bytes base = device_memory().live();
  const Simulation own = simulate(captured.graph(), own_order(captured.graph()));
  const Bytes above = own.peak - captured.graph().persistent_bytes();
  const Bytes limit = base + Bytes{above.count / 3};
  const Profile profile =
      Profiler<SteadyTimer, AllocatorProbe>{}.run(captured, {.memory_limit = limit});
  CHECK(profile.peak <= limit);
  CHECK(profile.bandwidth_out > 0);
  CHECK(std::ranges::any_of(profile.storages, [](const StorageProfile& s) {
    return s.measured && s.swap_out.count > 0 && s.swap_in.count > 0;
  }));
  check_same(before, state_of(*f.net, f.x));
  // What others are moved for is not the op's own time: a fixed timer of 1 us an op leaves nothing
  // where something was moved.
  const Profile fixed =
      Profiler<FixedTimer, AllocatorProbe>{FixedTimer{{1}}}.run(captured, {.memory_limit = limit});
  CHECK(std::ranges::any_of(fixed.nodes,
                            [](const NodeProfile& node) { return node.time == Microseconds{0}; }));
  CHECK(std::ranges::any_of(fixed.nodes,
                            [](const NodeProfile& node) { return node.time == Microseconds{1}; }));
  const Profile free = Profiler<SteadyTimer, AllocatorProbe>{}.run(captured);
  for (std::size_t i = 0; i < profile.nodes.size(); ++i)
    CHECK(profile.graph.node(NodeId{i}).workspace == free.graph.node(NodeId{i}).workspace);
}

TEST_CASE("cancelling leaves the model as it was") {
  Fixture f;
  auto captured = f.capture_step();
  const auto before = state_of(*f.net, f.x);
  std::stop_source stop;
  std::size_t seen = 0;
  const ProfileOptions options{.stop = stop.get_token(),
                               .progress = [&](std::size_t done, std::size_t total) {
                                 CHECK(total == 4 * captured.graph().node_count());
                                 seen = done;
                                 if (done == captured.graph().node_count() + 20)
                                   stop.request_stop();
                               }};
  try {
    static_cast<void>(Profiler<SteadyTimer, AllocatorProbe>{}.run(captured, options));
    FAIL("profiling should have been cancelled");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::cancelled);
  }
  CHECK(seen == captured.graph().node_count() + 20);
  check_same(before, state_of(*f.net, f.x));
}

TEST_CASE("isolated: each distinct op is run once for all its repetitions") {
  Fixture f;
  auto captured = f.capture_step();
  const auto before = state_of(*f.net, f.x);
  const Profile profile = Profiler<SteadyTimer, AllocatorProbe>{}.run(
      captured, {.runs = 2, .mode = ProfileMode::isolated});
  check_same(before, state_of(*f.net, f.x));
  CHECK(profile.isolated_ops < captured.graph().node_count() / 2);
  CHECK(profile.total_time().count > 0);
  CHECK(profile.total_time() == profile.isolated_time);
  std::vector<Microseconds> blocks;  // the eight equal convolutions
  for (std::size_t i = 0; i < captured.graph().node_count(); ++i) {
    const Node& node = captured.graph().node(NodeId{i});
    if (node.op == "aten::convolution" && node.name != "a/convolution")
      blocks.push_back(profile.nodes[i].time);
  }
  REQUIRE(blocks.size() == 8);
  for (const Microseconds time : blocks) CHECK(time == blocks.front());
  const Profile both =
      Profiler<SteadyTimer, AllocatorProbe>{}.run(captured, {.mode = ProfileMode::both});
  CHECK(both.isolated_time.count > 0);
  CHECK(both.isolated_time != both.total_time());
}

TEST_CASE("isolated ops say how far they are and can be cancelled") {
  Fixture f;
  auto captured = f.capture_step();
  const auto before = state_of(*f.net, f.x);
  std::stop_source stop;
  std::vector<std::size_t> seen;
  const ProfileOptions options{.mode = ProfileMode::isolated,
                               .stop = stop.get_token(),
                               .progress = [&](std::size_t done, std::size_t total) {
                                 CHECK(total == captured.graph().node_count());
                                 seen.push_back(done);
                                 if (done == 3) stop.request_stop();
                               }};
  CHECK_THROWS_AS((Profiler<SteadyTimer, AllocatorProbe>{}.run(captured, options)), Error);
  CHECK(seen == std::vector<std::size_t>{0, 1, 2, 3});
  check_same(before, state_of(*f.net, f.x));
}

TEST_CASE("transfers are measured for every storage on request") {
  Fixture f;
  auto captured = f.capture_step();
  const Profile profile =
      Profiler<FixedTimer, NullProbe>{}.run(captured, {.warmup = 0, .runs = 1, .transfers = true});
  for (const StorageProfile& storage : profile.storages) {
    if (storage.bytes == 0_B) continue;
    CHECK(storage.swap_out.count > 0);
    CHECK(storage.swap_in.count > 0);
  }
  CHECK(profile.bandwidth_in > 0);
}

TEST_CASE("a model with running statistics is profiled several times inside a limit") {
  models::Task task = models::make("unet", models::Config::tiny, 8);
  const auto batch = task.make_batch(0);
  CapturedStep captured = capture(task.module, task.loss, batch);
  const std::vector<torch::Tensor> before = [&] {
    std::vector<torch::Tensor> copies;
    for (const torch::Tensor& b : task.module->buffers()) copies.push_back(b.clone());
    return copies;
  }();
  const Bytes unlimited = Profiler<FixedTimer, AllocatorProbe>{FixedTimer{}}
                              .run(captured, {.warmup = 0, .runs = 1})
                              .peak;
  const Bytes limit =
      floor_bytes(captured.graph()) - captured.graph().persistent_bytes() + device_memory().live();
  for (const int part : {2, 4, 10, 50}) {
    const Bytes tight = limit + Bytes{(unlimited - limit).count / part};
    INFO("limit " << tight.count << " of " << unlimited.count);
    REQUIRE(tight < unlimited);
    const Profile profile = Profiler<FixedTimer, AllocatorProbe>{FixedTimer{}}.run(
        captured, {.warmup = 1, .runs = 2, .memory_limit = tight});
    CHECK(profile.peak <= tight);
  }
  const auto after = task.module->buffers();
  for (std::size_t i = 0; i < after.size(); ++i) CHECK(torch::equal(before[i], after[i]));
}
