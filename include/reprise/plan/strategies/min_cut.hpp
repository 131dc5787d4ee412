#pragma once
// MinCut chooses by maximum flow what to keep between forward and backward. PyTorch compiles with
// this partitioner (min-cut rematerialisation in AOTAutograd's functorch partitioners). MinCut uses
// measured times instead of a list of expensive ops.
//
//   x ─▶ conv ─▶ norm ─▶ relu          each storage is an edge as wide as its bytes; the backward pass is the sink; what must
//         8 MB    8 MB    8 MB         not be recomputed (expensive ops) is the source. The storages on the narrowest cut are kept.
//
// Ops are ranked by time per byte made, and the k most expensive may not be recomputed. A bisection
// finds the largest k whose schedule fits the budget, which recomputes the least. MinCut is weak if
// the peak is not at the turn from forward to backward, and if recomputation would have to nest.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/plan/concepts.hpp>
#include <reprise/plan/search/lazy_recompute.hpp>
#include <reprise/plan/search/max_flow.hpp>

namespace reprise::planning {

class MinCut {
 public:
  [[nodiscard]] std::string_view name() const { return "min-cut"; }

  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    const ScheduleFacts facts{graph};
    const std::uint32_t backward = backward_start(graph);
    const StopSignal stop{request};
    std::vector<std::uint32_t> dear = by_density(facts, backward);
    std::vector<bool> fixed(graph.node_count(), false);
    for (NodeId n : request.keep) fixed[n.index] = true;
    Schedule best = own_order(graph);
    Simulation best_cost = simulate(graph, best);
    const auto attempt = [&](std::size_t k) {
      std::vector<bool> banned = fixed;
      for (std::size_t i = 0; i < k; ++i) banned[dear[i]] = true;
      const std::vector<bool> dropped = cut(facts, backward, banned, [&stop] { return stop(); });
      if (dropped.empty()) return false;
      Schedule s = drop_for_backward(facts, backward, dropped);
      Simulation cost = simulate(graph, s);
      const bool fits = cost.peak <= request.budget, best_fits = best_cost.peak <= request.budget;
      if (fits != best_fits ? fits
          : fits            ? cost.time < best_cost.time
                            : cost.peak < best_cost.peak) {
        best = std::move(s);
        best_cost = std::move(cost);
      }
      return fits;
    };
    std::size_t low = 0, high = dear.size();
    if (!attempt(0)) {  // peaks need not fall with every evictable op: tries others
      for (std::size_t part = 1; part < 8 && !stop(); ++part) (void)attempt(dear.size() * part / 8);
      return best;
    }
    while (low + 1 < high && !stop()) {
      const std::size_t middle = low + (high - low) / 2;
      (attempt(middle) ? low : high) = middle;
    }
    return best;
  }

  /// Storages of the forward pass that the narrowest cut does not keep, by storage; empty if the
  /// search was stopped.
  [[nodiscard]] static std::vector<bool> cut(const ScheduleFacts& facts, std::uint32_t backward,
                                             const std::vector<bool>& banned,
                                             const std::function<bool()>& stop = {}) {
    constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max() / 4;
    const StepGraph& graph = facts.graph();
    const std::size_t storages = graph.storage_count();
    FlowNetwork net{2 * storages + 2};
    const std::size_t source = 2 * storages, sink = source + 1;
    const auto storage_of = [&](std::uint32_t v) { return graph.values()[v].storage.index; };
    const auto counts = [&](std::uint32_t s) { return !graph.storages()[s].persistent; };
    std::vector<bool> forward(storages, false), used(storages, false), rooted(storages, false);
    for (std::uint32_t n = 0; n < graph.node_count(); ++n) {
      for (std::uint32_t v : facts.reads(n)) {
        const std::uint32_t from = storage_of(v);
        if (!counts(from)) continue;
        if (n >= backward) used[from] = true;
        else
          for (const auto& o : facts.outputs(n))
            if (storage_of(o.value) != from && counts(storage_of(o.value)))
              net.join(std::size_t{2} * from + 1, std::size_t{2} * storage_of(o.value), unbounded);
      }
      if (n >= backward) continue;
      for (const auto& o : facts.outputs(n)) {
        forward[storage_of(o.value)] = true;
        if (banned[n] || !graph.nodes()[n].recomputable) rooted[storage_of(o.value)] = true;
      }
    }
    for (const Value& v : graph.values())
      if (v.initial) rooted[v.storage.index] = true;
    for (std::size_t s = 0; s < storages; ++s) {
      if (!counts(static_cast<std::uint32_t>(s))) continue;
      net.join(2 * s, 2 * s + 1, std::max<std::int64_t>(1, graph.storages()[s].bytes.count));
      if (rooted[s]) net.join(source, 2 * s, unbounded);
      if (used[s] && (forward[s] || rooted[s])) net.join(2 * s + 1, sink, unbounded);
    }
    if (!net.send(source, sink, stop)) return {};
    // The storages whose own edge crosses the cut are kept.
    const std::vector<bool> reached = net.reached_from(source);
    std::vector<bool> dropped(storages, false);
    for (std::size_t s = 0; s < storages; ++s)
      dropped[s] = forward[s] && counts(static_cast<std::uint32_t>(s)) &&
                   !(reached[2 * s] && !reached[2 * s + 1]);
    return dropped;
  }

 private:
  static std::vector<std::uint32_t> by_density(const ScheduleFacts& facts, std::uint32_t backward) {
    std::vector<std::pair<double, std::uint32_t>> list;
    for (std::uint32_t n = 0; n < backward; ++n) {
      std::int64_t bytes = 1;
      for (const auto& o : facts.outputs(n)) bytes += facts.graph().values()[o.value].bytes.count;
      list.push_back({-static_cast<double>(facts.ticks(n)) / static_cast<double>(bytes), n});
    }
    std::sort(list.begin(), list.end());
    std::vector<std::uint32_t> nodes;
    nodes.reserve(list.size());
    for (const auto& item : list) nodes.push_back(item.second);
    return nodes;
  }
};

static_assert(Strategy<MinCut>);

}  // namespace reprise::planning

namespace reprise {
using planning::MinCut;
}  // namespace reprise
