// How many moves a second the incremental evaluator takes: a recomputation inserted somewhere, the
// peak read, taken out again.
//
//   plan_moves            a training graph of about 10,000 nodes, one core

#include <chrono>
#include <cstdio>

#include <reprise/plan/search/live_schedule.hpp>
#include <reprise_test/random_graphs.hpp>

int main() {
  using namespace reprise;
  using namespace reprise::planning;
  const StepGraph graph = testing::resnet_step({.blocks = 475});
  const ScheduleFacts facts{graph};
  LiveSchedule live{facts, own_order(graph)};
  testing::Rng rng{1};
  std::vector<LiveSchedule::Occurrence> all;
  for (auto x = live.next(live.start()); x != live.end(); x = live.next(x)) all.push_back(x);
  std::int64_t sum = 0;
  std::size_t moves = 0, valid = 0;
  const auto begin = std::chrono::steady_clock::now();
  double seconds = 0;
  while (seconds < 2) {
    for (int k = 0; k < 1000; ++k) {
      const std::size_t n = rng.below(graph.node_count() / 2);
      const auto x = live.insert(NodeId{n}, all[n + 1 + rng.below(graph.node_count() - n - 1)]);
      sum += live.peak().count;
      valid += live.valid() ? 1u : 0u;
      live.remove(x);
      sum -= live.peak().count;
      moves += 2;
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::printf("nodes %zu  moves %zu (%zu valid)  %.0f moves/s  (checksum %lld)\n",
              graph.node_count(), moves, valid, static_cast<double>(moves) / seconds,
              static_cast<long long>(sum));
}
