#pragma once
// least_extra_time() computes a lower bound on the extra time of every plan inside the budget.
//
//   order kept, 100 bytes over the budget while node p runs; idle then:
//     a   80 bytes   made in 10 us          Whichever is evicted at p must be recomputed later: its producer runs twice.
//     b   40 bytes   made in 20 us          Cheapest share of producers that frees 100 bytes: all of a, half of b: 10 + 10 = 20 us
//
// The bound is a fractional knapsack at each moment that exceeds the budget, and the largest of
// these bounds. Small graphs get the optimum of the exhaustive search instead. If nodes may be
// reordered, the moments are not known beforehand, and only the exact search gives a bound.

#include <algorithm>
#include <cstdint>
#include <vector>

#include <reprise/graph/simulate.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>

namespace reprise::planning {

// The cheapest share of producers whose storages, idle during occurrence p, have `excess` bytes.
[[nodiscard]] inline double knapsack_at(const StepGraph& graph, const Resolution& r, std::int64_t p,
                                        std::int64_t excess) {
  std::vector<std::int64_t> idle_bytes(graph.node_count(), 0);  // by producer
  for (std::size_t k = 0; k < r.storages.size(); ++k) {
    const StorageInstance& s = r.storages[k];
    if (s.persistent || s.made_by == no_index || s.first >= p || s.last <= p || s.bytes <= Bytes{0})
      continue;
    if (graph.node(NodeId{s.made_by}).recomputable) idle_bytes[s.made_by] += s.bytes.count;
  }
  std::vector<std::pair<double, std::int64_t>> makers;  // time, bytes
  for (std::size_t n = 0; n < idle_bytes.size(); ++n)
    if (idle_bytes[n] > 0) makers.push_back({graph.nodes()[n].time.count, idle_bytes[n]});
  std::sort(makers.begin(), makers.end(), [](const auto& a, const auto& b) {
    return a.first * static_cast<double>(b.second) < b.first * static_cast<double>(a.second);
  });
  double time = 0;
  for (const auto& [cost, bytes] : makers) {
    if (excess <= 0) break;
    time += cost * std::min(1.0, static_cast<double>(excess) / static_cast<double>(bytes));
    excess -= bytes;
  }
  return time;
}

struct ExtraTimeBound {
  Microseconds least{};
  bool exact = false;  ///< some schedule inside the budget needs no more extra time
};

[[nodiscard]] inline ExtraTimeBound least_extra_time(const StepGraph& graph,
                                                     const PlanRequest& request,
                                                     const Simulation& baseline,
                                                     std::size_t exact_nodes = 12,
                                                     std::size_t exact_states = 60'000) {
  if (baseline.peak <= request.budget) return {{}, true};
  if (graph.node_count() <= exact_nodes) {
    const auto best = Exhaustive{exact_states}.search(graph, request);
    if (best.verdict == Exhaustive::Verdict::optimal)
      return {total_time(graph, best.schedule) - baseline.time, true};
  }
  if (!request.keep_order) return {};
  const Schedule own = own_order(graph);
  const Resolution r = resolve(graph, own);
  const std::vector<Bytes>& live = baseline.live_during;
  std::vector<std::int64_t> over;
  for (std::size_t p = 0; p < live.size(); ++p)
    if (live[p] > request.budget) over.push_back(static_cast<std::int64_t>(p));
  // All moments of a small graph. For a large graph, the peak and a sample of the others, which
  // keeps the time nearly linear.
  const std::size_t step = over.size() / 64 + 1;
  const auto at = [&](std::size_t p) {
    return knapsack_at(graph, r, static_cast<std::int64_t>(p), (live[p] - request.budget).count);
  };
  double most = at(baseline.peak_step);
  for (std::size_t k = 0; k < over.size(); k += step)
    most = std::max(most, at(static_cast<std::size_t>(over[k])));
  return {{most}, false};
}

}  // namespace reprise::planning
