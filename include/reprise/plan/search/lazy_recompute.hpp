#pragma once
// LazyRecompute turns a set of storages that are not kept for the backward pass into a schedule: a
// missing value is recomputed right before its first use.
//
//   forward  f1 f2 f3 | backward b3 b2 b1       evicted: results of f1 and f2
//   schedule f1 f2 f3 b3 f1 f2 b2 b1            b2 reads f2's result, which needs f1's: both are recomputed, once
//
// Strategies that decide per storage (MuTwo, MinCut) evict everything at the begin of the backward
// pass, and nothing twice: recomputation never nests. ChainDp evicts with forget(), and runs nodes
// with run() and make(), block by block. Boost.Graph's search against the data edges finds the
// recompute cone (graph/dependency.hpp).

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <range/v3/view/drop.hpp>

#include <reprise/graph/dependency.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/plan/search/live_schedule.hpp>

namespace reprise::planning {

/// The first node of the backward pass: the first one labelled so, else the node after the peak of
/// the graph's own order.
[[nodiscard]] inline std::uint32_t backward_start(const StepGraph& graph) {
  for (NodeId n : graph.node_ids() | ranges::views::drop(1))
    if (graph.node(n).phase == Phase::backward) return n.index;
  return static_cast<std::uint32_t>(
      std::min<std::size_t>(simulate(graph, own_order(graph)).peak_step + 1, graph.node_count()));
}

class LazyRecompute {
 public:
  LazyRecompute(const ScheduleFacts& facts, std::uint32_t backward)
      : facts_(facts),
        graph_(facts.graph()),
        backward_(backward),
        gone_(graph_.value_count(), false),
        cones_(facts.adapter()) {}

  /// `dropped` is by storage. The schedule may be invalid if an evicted value cannot be recomputed:
  /// simulate() tells.
  [[nodiscard]] Schedule schedule(const std::vector<bool>& dropped) {
    for (std::uint32_t n = 0; n < graph_.node_count(); ++n) {
      if (n == backward_)
        for (std::uint32_t s = 0; s < dropped.size(); ++s)
          if (dropped[s]) forget(s);
      run(n);
    }
    return finish();
  }

  /// The storage's result of the forward pass is not kept.
  void forget(std::uint32_t storage) {
    for (std::uint32_t v : members(storage)) {
      const Value& value = graph_.values()[v];
      if (!value.initial && value.producer.index < backward_) gone_[v] = true;
    }
  }

  /// Runs a node, after recomputing those of its inputs that are not kept.
  void run(std::uint32_t n) {
    make(facts_.reads(n));
    append(n);
  }

  /// Recomputes those of the values that are not kept.
  void make(std::span<const std::uint32_t> values) {
    missing_.clear();
    for (std::uint32_t v : values)
      if (const NodeId maker = graph_.values()[v].producer; gone_[v] && maker.valid())
        missing_.push_back(maker);
    if (missing_.empty()) return;
    // An in-place recomputation must not destroy a value that is still read: a destroyed value is
    // recomputed afterwards.
    const auto kept = [this](ValueId v) { return !gone_[v.index]; };
    cone_ = cones_.leading_to(missing_, through_missing_data(facts_.adapter(), kept));
    std::sort(cone_.begin(), cone_.end());
    for (NodeId n : cone_) append(n.index);
  }

  /// Recomputes missing outputs, and returns the schedule.
  [[nodiscard]] Schedule finish() {
    std::vector<std::uint32_t> outputs;
    for (ValueId v : graph_.outputs()) outputs.push_back(v.index);
    make(outputs);
    return std::move(result_);
  }

 private:
  void append(std::uint32_t n) {
    result_.push_back(NodeId{n});
    for (const auto& o : facts_.outputs(n)) {
      if (o.overwrites)
        for (std::uint32_t v : members(graph_.values()[o.value].storage.index)) gone_[v] = true;
    }
    for (const auto& o : facts_.outputs(n)) gone_[o.value] = !o.published;
  }

  // The values of a storage.
  [[nodiscard]] const std::vector<std::uint32_t>& members(std::uint32_t storage) {
    if (members_.empty()) {
      members_.resize(graph_.storage_count());
      for (std::uint32_t w = 0; w < graph_.value_count(); ++w)
        if (!graph_.values()[w].persistent) members_[graph_.values()[w].storage.index].push_back(w);
    }
    return members_[storage];
  }

  const ScheduleFacts& facts_;
  const StepGraph& graph_;
  std::uint32_t backward_;
  std::vector<bool> gone_;  // by value
  ConeSearch<StepGraph> cones_;
  std::vector<NodeId> missing_, cone_;  // in make()
  Schedule result_;
  std::vector<std::vector<std::uint32_t>> members_;
};

/// The schedule that evicts these storages, or the graph's own order if that schedule cannot be
/// run.
[[nodiscard]] inline Schedule drop_for_backward(const ScheduleFacts& facts, std::uint32_t backward,
                                                const std::vector<bool>& dropped) {
  Schedule schedule = LazyRecompute{facts, backward}.schedule(dropped);
  return simulate(facts.graph(), schedule).valid ? schedule : own_order(facts.graph());
}

}  // namespace reprise::planning
