#pragma once
// From "these storages are not kept for the backward pass" to a schedule: what is missing runs again right before its first use.
//
//   forward  f1 f2 f3 | backward b3 b2 b1       dropped: what f1 and f2 make
//   schedule f1 f2 f3 b3 f1 f2 b2 b1            b2 reads f2's result, which needs f1's: both run again, once
//
// Strategies that decide per storage (MuTwo, MinCut) share this; nothing is dropped a second time, so recomputation never nests.

#include <cstdint>
#include <vector>

#include <reprise/plan/live_schedule.hpp>
#include <reprise/plan/simulate.hpp>

namespace reprise {

/// Where the backward pass starts: the first node labelled so, else what follows the peak of the graph's own order.
[[nodiscard]] inline std::uint32_t backward_start(const StepGraph& graph) {
  for (std::uint32_t i = 1; i < graph.node_count(); ++i)
    if (graph.nodes()[i].phase == Phase::backward) return i;
  return static_cast<std::uint32_t>(simulate(graph, own_order(graph)).peak_step + 1);
}

class LazyRecompute {
 public:
  LazyRecompute(const ScheduleFacts& facts, std::uint32_t backward)
      : facts_(facts), graph_(facts.graph()), backward_(backward), gone_(graph_.value_count(), false), wanted_(graph_.node_count(),
          false) {}

  /// `dropped` is by storage. The schedule may be invalid where something dropped cannot be made again: simulate() tells.
  [[nodiscard]] Schedule schedule(const std::vector<bool>& dropped) {
    Schedule result;
    for (std::uint32_t n = 0; n < graph_.node_count(); ++n) {
      if (n == backward_) forget(dropped);
      if (n >= backward_) {
        cone_.clear();
        for (std::uint32_t v : facts_.reads(n)) want(v);
        std::sort(cone_.begin(), cone_.end());
        for (std::uint32_t u : cone_) run(u, result);
      }
      run(n, result);
    }
    cone_.clear();
    for (ValueId v : graph_.outputs()) want(v.index);
    std::sort(cone_.begin(), cone_.end());
    for (std::uint32_t u : cone_) run(u, result);
    return result;
  }

 private:
  void forget(const std::vector<bool>& dropped) {
    for (std::size_t v = 0; v < graph_.value_count(); ++v) {
      const Value& value = graph_.values()[v];
      if (!value.persistent && !value.initial && value.producer.index < backward_ && dropped[value.storage.index]) gone_[v] = true;
    }
  }

  void want(std::uint32_t v) {
    std::vector<std::uint32_t> stack{v};
    while (!stack.empty()) {
      const std::uint32_t t = stack.back();
      stack.pop_back();
      const NodeId producer = graph_.values()[t].producer;
      if (!gone_[t] || !producer.valid() || wanted_[producer.index]) continue;
      wanted_[producer.index] = true;
      cone_.push_back(producer.index);
      for (std::uint32_t read : facts_.reads(producer.index)) {
        // What runs again in place must not spoil what others still read.
        if (overwrites(producer.index, read)) gone_[read] = true;
        stack.push_back(read);
      }
    }
  }

  [[nodiscard]] bool overwrites(std::uint32_t n, std::uint32_t v) const {
    for (const auto& o : facts_.outputs(n))
      if (o.overwrites && o.target == v) return true;
    return false;
  }

  void run(std::uint32_t n, Schedule& result) {
    result.push_back(NodeId{n});
    wanted_[n] = false;
    for (const auto& o : facts_.outputs(n)) {
      if (o.overwrites)
        for (std::size_t v = 0; v < members(o.value).size(); ++v) gone_[members(o.value)[v]] = true;
    }
    for (const auto& o : facts_.outputs(n)) gone_[o.value] = !o.published;
  }

  [[nodiscard]] const std::vector<std::uint32_t>& members(std::uint32_t v) {
    if (members_.empty()) {
      members_.resize(graph_.storage_count());
      for (std::uint32_t w = 0; w < graph_.value_count(); ++w)
        if (!graph_.values()[w].persistent) members_[graph_.values()[w].storage.index].push_back(w);
    }
    return members_[graph_.values()[v].storage.index];
  }

  const ScheduleFacts& facts_;
  const StepGraph& graph_;
  std::uint32_t backward_;
  std::vector<bool> gone_, wanted_;
  std::vector<std::uint32_t> cone_;
  std::vector<std::vector<std::uint32_t>> members_;
};

/// The schedule that drops these storages, or the graph's own order where that cannot be run.
[[nodiscard]] inline Schedule drop_for_backward(const ScheduleFacts& facts, std::uint32_t backward, const std::vector<bool>& dropped) {
  Schedule schedule = LazyRecompute{facts, backward}.schedule(dropped);
  return simulate(facts.graph(), schedule).valid ? schedule : own_order(facts.graph());
}

}  // namespace reprise
