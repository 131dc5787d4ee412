#include <reprise/plan/step_plans.hpp>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::planning;
using reprise_test::toy_graph;

namespace {

/// A plan that says which seed it was made with: inside the budget, and as slow as `time` says.
Plan plan_of(std::uint64_t seed, double time, bool fits = true) {
  Plan plan;
  plan.schedule = {NodeId{0}};
  plan.seed = seed;
  plan.budget = Bytes{100};
  plan.peak = fits ? Bytes{90} : Bytes{100 + static_cast<std::int64_t>(time)};
  plan.time = {time};
  return plan;
}

}  // namespace

TEST_CASE("the best of several seeds: what fits first, then the fastest, then the first") {
  const StepGraph graph = toy_graph();
  const auto best = [&](std::vector<double> times, std::set<std::uint64_t> misfits = {}) {
    return plan_best_of(graph, {.seed = 5}, {static_cast<unsigned>(times.size()), 2},
                        [&](auto&, const PlanRequest& r) {
                          const std::size_t k = (r.seed - 5) / 1000;
                          return plan_of(k, times[k], !misfits.contains(k));
                        })
        .seed;
  };
  CHECK(best({7}) == 0);
  CHECK(best({7, 5, 6}) == 1);
  CHECK(best({7, 5, 5}) == 1);
  CHECK(best({7, 5, 6}, {1}) == 2);
  CHECK(best({7, 5, 6}, {0, 1, 2}) == 1);  // nothing fits: the smallest peak
}

TEST_CASE(
    "tries run side by side, each with a seed of its own, and the first alone tells of its "
    "progress") {
  const StepGraph graph = toy_graph();
  std::mutex guard;
  std::set<std::uint64_t> seeds;
  std::set<std::thread::id> threads;
  std::atomic<int> waiting{0}, told{0};
  const PlanRequest request{.seed = 3, .progress = [&](const PlanProgress&) { ++told; }};
  static_cast<void>(plan_best_of(graph, request, {4, 2}, [&](auto&, const PlanRequest& r) {
    ++waiting;
    while (waiting < 2) std::this_thread::yield();  // never ends where one thread has to do both
    if (r.progress) r.progress({});
    const std::lock_guard lock(guard);
    seeds.insert(r.seed);
    threads.insert(std::this_thread::get_id());
    return plan_of(r.seed, 1);
  }));
  CHECK(seeds == std::set<std::uint64_t>{3, 1003, 2003, 3003});
  CHECK(threads.size() == 2);
  CHECK(told == 1);
}

TEST_CASE("no try begins that would not be done in time, or when nobody wants it any more") {
  const StepGraph graph = toy_graph();
  int tries = 0;
  double now = 7;
  const auto slow = [&](auto&, const PlanRequest& r) {
    ++tries;
    CHECK(r.seconds <= 0.05);
    now += 0.04;
    return plan_of(r.seed, 1);
  };
  static_cast<void>(
      plan_best_of(graph, {.seconds = 0.05, .clock = [&] { return now; }}, {50, 1}, slow));
  CHECK(tries == 1);

  std::stop_source stop;
  tries = 0;
  static_cast<void>(
      plan_best_of(graph, {.cancel = stop.get_token()}, {50, 1}, [&](auto&, const PlanRequest& r) {
        if (++tries == 3) stop.request_stop();
        return plan_of(r.seed, 1);
      }));
  CHECK(tries == 3);
}

TEST_CASE("what a try throws comes out when all are done") {
  const StepGraph graph = toy_graph();
  std::atomic<int> done{0};
  CHECK_THROWS_WITH(plan_best_of(graph, {.seed = 0}, {4, 2},
                                 [&](auto&, const PlanRequest& r) {
                                   ++done;
                                   if (r.seed == 2000) throw std::runtime_error("the third");
                                   return plan_of(r.seed, 1);
                                 }),
                    "the third");
  CHECK(done == 4);
}

TEST_CASE("times differ where they add up to a quarter more or less, op by op") {
  const StepGraph graph = toy_graph();
  std::vector<Microseconds> times;
  double sum = 0;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    times.push_back(graph.node(NodeId{i}).time);
    sum += times.back().count;
  }
  REQUIRE(sum > 0);
  CHECK_FALSE(times_differ(graph, times));
  auto longer = times;
  longer[0].count += 0.3 * sum;  // 0.3 of 1.3: less than a quarter
  CHECK_FALSE(times_differ(graph, longer));
  longer[0].count += 0.1 * sum;  // 0.4 of 1.4
  CHECK(times_differ(graph, longer));
}

TEST_CASE(
    "several seeds are for a strategy that draws lots, and for no less than the usual effort") {
  CHECK(tries_of("anneal", {}, {8, 2}).count == 8);
  CHECK(tries_of("anneal", {}, {8, 2}).side_by_side == 2);
  CHECK(tries_of("anneal", {.effort = 0.5}, {8, 2}).count == 1);
  CHECK(tries_of("min-cut", {}, {8, 2}).count == 1);
  CHECK(tries_of("", {}, {8, 2}).count == 1);
}
