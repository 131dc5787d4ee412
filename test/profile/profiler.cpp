// The profiler without LibTorch: policies and a step that the test itself makes up.

#include <reprise/profile/profiler.hpp>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <reprise/profile/timers/fixed_timer.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/fake_step.hpp>
#include <reprise_test/profile_archetypes.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::base;
using namespace reprise::profiling;
using namespace reprise::literals;
using reprise_test::FakeStep;
using reprise_test::MemProbeArchetype;
using reprise_test::refusal;
using reprise_test::TimerArchetype;
using reprise_test::toy_graph;

namespace {

using Samples = std::vector<Microseconds>;

/// Writes down what is called, as both policies; run r of node i takes given[r][i].
struct Log {
  std::vector<std::string> calls{};
  std::vector<Samples> given{};
  std::size_t run = 0;
};

struct LoggingTimer {
  Log* log;
  void begin_run(std::size_t n) { log->calls.push_back("timer.begin_run " + std::to_string(n)); }
  void start(std::size_t i) { log->calls.push_back("start " + std::to_string(i)); }
  void stop(std::size_t i) { log->calls.push_back("stop " + std::to_string(i)); }
  void wait() { log->calls.emplace_back("wait"); }
  Samples end_run() {
    log->calls.emplace_back("timer.end_run");
    return log->given[log->run++];
  }
};

struct LoggingProbe {
  Log* log;
  void begin_run() { log->calls.emplace_back("probe.begin_run"); }
  void begin_op() { log->calls.emplace_back("begin_op"); }
  MemorySample end_op() {
    log->calls.emplace_back("end_op");
    return {1_B, 3_B, 2_B};
  }
  Bytes end_run() {
    log->calls.emplace_back("probe.end_run");
    return 3_B;
  }
};

/// Gives the samples and peaks that it was made with, run after run.
struct RisingProbe {
  std::int64_t run = 0, op = 0;
  void begin_run() {
    ++run;
    op = 0;
  }
  void begin_op() {}
  MemorySample end_op() {
    ++op;
    return {{100 * run}, {100 * run + op}, {100 * run + 1}};
  }
  Bytes end_run() { return {run == 2 ? 5000 : 100 * run}; }
};

StepGraph two_nodes() {
  GraphBuilder b{"two"};
  b.add_node({.id = 0, .name = "a"}, {}, {});
  b.add_node({.id = 1, .name = "b"}, {}, {});
  return std::move(b).build();
}

}  // namespace

TEST_CASE("a profiler asks no more of its policies than the concepts say") {
  FakeStep step{.graph = toy_graph()};
  Profiler<TimerArchetype, MemProbeArchetype> profiler{TimerArchetype{1}, MemProbeArchetype{1}};
  const Profile profile = profiler.run(step);
  CHECK(step.runs == 4);
  CHECK(profile.total_time() == Microseconds{0});
}

TEST_CASE("the simple profiler has no angle brackets") {
  FakeStep step{.graph = toy_graph()};
  const Profile profile = Profiler{}.run(step);
  CHECK(profile.runs == 3);
  CHECK(profile.peak == 0_B);
}

TEST_CASE("the timer stands closest to the op, and waits before the run's time is read") {
  Log log{.given = {{{1}, {2}}}};
  FakeStep step{.graph = two_nodes(),
                .op = [&](NodeId n) { log.calls.push_back("op " + std::to_string(n.index)); }};
  Profiler<LoggingTimer, LoggingProbe> profiler{LoggingTimer{&log}, LoggingProbe{&log}};
  const Profile profile = profiler.run(step, {.warmup = 0, .runs = 1});
  CHECK(log.calls == std::vector<std::string>{"timer.begin_run 2", "probe.begin_run",             //
                                              "begin_op", "start 0", "op 0", "stop 0", "end_op",  //
                                              "begin_op", "start 1", "op 1", "stop 1", "end_op",  //
                                              "wait", "probe.end_run", "timer.end_run"});
  CHECK(profile.run_times.size() == 1);
}

TEST_CASE("warm-up is dropped, every other sample is kept, and the median goes into the graph") {
  Log log{.given = {{{310}, {40}}, {{120}, {31}}, {{118}, {30}}, {{123}, {33}}}};
  FakeStep step{.graph = two_nodes()};
  const Profile profile =
      Profiler<LoggingTimer>{LoggingTimer{&log}}.run(step, {.warmup = 1, .runs = 3});
  CHECK(profile.nodes[0].samples == Samples{{120}, {118}, {123}});
  CHECK(profile.nodes[1].samples == Samples{{31}, {30}, {33}});
  CHECK(profile.nodes[0].time == Microseconds{120});
  CHECK(profile.graph.node(NodeId{0}).time == Microseconds{120});
  CHECK(profile.graph.node(NodeId{1}).time == Microseconds{31});
  CHECK(profile.warmup == 1);
  CHECK(profile.runs == 3);
  CHECK(profile.run_times.size() == 3);
  CHECK(step.graph.node(NodeId{0}).time == Microseconds{0});
}

TEST_CASE("the mean on request") {
  Log log{.given = {{{1}, {0}}, {{2}, {0}}, {{6}, {0}}}};
  FakeStep step{.graph = two_nodes()};
  const Profile profile = Profiler<LoggingTimer>{LoggingTimer{&log}}.run(
      step, {.warmup = 0, .runs = 3, .aggregate = Aggregate::mean});
  CHECK(profile.nodes[0].time == Microseconds{3});
}

TEST_CASE("memory is that of the last run, the peak that of the worst") {
  FakeStep step{.graph = two_nodes()};
  const Profile profile = Profiler<FixedTimer, RisingProbe>{}.run(step, {.warmup = 0, .runs = 3});
  CHECK(profile.nodes[0].memory.before == 300_B);
  CHECK(profile.nodes[0].memory.peak == 301_B);
  CHECK(profile.nodes[1].memory.peak == 302_B);
  CHECK(profile.nodes[1].memory.after == 301_B);
  CHECK(profile.peak == 5000_B);
}

TEST_CASE("a peak of the warm-up is dropped with it") {
  FakeStep step{.graph = two_nodes()};
  const Profile profile = Profiler<FixedTimer, RisingProbe>{}.run(step, {.warmup = 2, .runs = 1});
  CHECK(profile.peak == 300_B);
}

TEST_CASE(
    "what the runner knows beside the profiler is in the profile, and its times go into the "
    "graph") {
  FakeStep step{.graph = two_nodes(), .complete = [](Profile& p) {
                  p.base = 77_B;
                  p.nodes[1].time = {9};
                }};
  const Profile profile = Profiler<FixedTimer>{FixedTimer{{5}}}.run(step);
  CHECK(profile.base == 77_B);
  CHECK(profile.graph.node(NodeId{0}).time == Microseconds{5});
  CHECK(profile.graph.node(NodeId{1}).time == Microseconds{9});
}

TEST_CASE("isolated ops are the runner's business: the step itself is not run") {
  FakeStep step{.graph = two_nodes()};
  const Profile profile =
      Profiler<FixedTimer>{FixedTimer{{5}}}.run(step, {.mode = ProfileMode::isolated});
  CHECK(step.runs == 0);
  CHECK(profile.run_times.empty());
  CHECK(profile.nodes.size() == 2);
}

TEST_CASE("progress counts every node of every run, to the end") {
  FakeStep step{.graph = two_nodes()};
  std::vector<std::pair<std::size_t, std::size_t>> seen;
  const auto progress = [&](std::size_t done, std::size_t total) {
    seen.emplace_back(done, total);
  };
  static_cast<void>(Profiler{}.run(step, {.warmup = 1, .runs = 1, .progress = progress}));
  CHECK(seen == std::vector<std::pair<std::size_t, std::size_t>>{{1, 4}, {2, 4}, {3, 4}, {4, 4}});
}

TEST_CASE("cancelling stops before the next node and lets go of the step") {
  FakeStep step{.graph = two_nodes()};
  std::stop_source stop;
  int ops = 0;
  step.op = [&](NodeId) {
    if (++ops == 3) stop.request_stop();
  };
  CHECK(refusal([&] { static_cast<void>(Profiler{}.run(step, {.stop = stop.get_token()})); }) ==
        "cancelled: profiling was cancelled; the model is as it was");
  CHECK(ops == 3);
  CHECK(step.runners_alive == 0);
}

TEST_CASE("a profiler can be used again after a run that failed") {
  FakeStep step{.graph = two_nodes(), .op = [](NodeId n) {
                  if (n.index == 1) throw std::runtime_error("out of order");
                }};
  Profiler<FixedTimer> profiler{FixedTimer{{5, 6}}};
  CHECK_THROWS_AS(static_cast<void>(profiler.run(step)), std::runtime_error);
  CHECK(step.runners_alive == 0);
  step.op = {};
  const Profile profile = profiler.run(step, {.warmup = 0, .runs = 1});
  CHECK(profile.nodes[1].samples == Samples{{6}});
  CHECK(profile.run_times.size() == 1);
}

TEST_CASE("no measured run is no profile") {
  FakeStep step{.graph = two_nodes()};
  CHECK(refusal([&] { static_cast<void>(Profiler{}.run(step, {.runs = 0})); }) ==
        "bad argument: runs: at least one run must be measured");
  CHECK(step.runs == 0);
}

TEST_CASE("a timer that gives too few times is refused") {
  Log log{.given = {{{1}}}};
  FakeStep step{.graph = two_nodes()};
  CHECK(refusal([&] { static_cast<void>(Profiler<LoggingTimer>{LoggingTimer{&log}}.run(step)); }) ==
        "bad argument: the timer's end_run() gave 1 times for 2 nodes");
}

TEST_CASE("a time that no clock shows is refused") {
  FakeStep step{.graph = two_nodes()};
  CHECK(refusal([&] { static_cast<void>(Profiler<FixedTimer>{FixedTimer{{-1}}}.run(step)); }) ==
        "bad argument: time of node 0 is not a finite number >= 0");
}

TEST_CASE("a step without nodes has a profile without nodes") {
  FakeStep step;
  const Profile profile = Profiler{}.run(step);
  CHECK(profile.nodes.empty());
  CHECK(profile.runs == 3);
}
