#pragma once
// ScheduleFacts has what a schedule needs to know about each node, looked up once: its reads, its
// outputs with their sources, its updates.
//
// ```cpp
// ScheduleFacts facts{graph};   // of the toy graph of the plan format:
// facts.reads(2);               // flat reads 3
// facts.outputs(1);             // relu makes 3, which overwrites 2
// facts.reads(3);               // nothing: wide reads x alone, which exists to the end
// facts.updates_by(0);          // norm updates 1; no node reads it
// facts.ticks(1);               // relu's 10 µs as a whole number: an edit and its inverse cancel
// ```
//
//   facts.adapter()                         the same as a graph for Boost.Graph's algorithms, with data edges alone
//
// Persistent values that no node overwrites are left out, because nothing about them can change.
// The annealer reads these lists a million times per second; other code searches the adapter.

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::planning {

class ScheduleFacts {
 public:
  struct Output {
    std::uint32_t value = 0;
    std::uint32_t target = none;  ///< the value of which it is a view or which it overwrites
    bool target_here = false;     ///< the target is another output of the same node
    bool overwrites = false;
    bool published = true;  ///< false if another output of the same node overwrites it
  };
  static constexpr std::uint32_t none = 0xffffffffu;

  explicit ScheduleFacts(const StepGraph& graph) : graph_(&graph), adapter_(graph, Edges::data) {
    find_overwritten_storages();
    for (NodeId n : graph.node_ids()) add_node(n);
    find_viewed();
    find_updates();
    set_ticks();
  }

  [[nodiscard]] const StepGraph& graph() const { return *graph_; }
  [[nodiscard]] const GraphAdapter<StepGraph>& adapter() const { return adapter_; }
  /// Values that the node reads, each once, targets included. Persistent values that no node
  /// overwrites are left out.
  [[nodiscard]] std::span<const std::uint32_t> reads(std::uint32_t n) const { return reads_[n]; }
  /// Targets come before the values that are made from them. Persistent outputs are left out.
  [[nodiscard]] std::span<const Output> outputs(std::uint32_t n) const { return outputs_[n]; }
  /// Whether the node overwrites this value's storage.
  [[nodiscard]] bool overwrites(std::uint32_t n, std::uint32_t v) const {
    const auto made = outputs_[n];
    return std::any_of(made.begin(), made.end(),
                       [&](const Output& o) { return o.overwrites && o.target == v; });
  }
  [[nodiscard]] bool is_viewed(std::uint32_t v) const { return viewed_[v]; }
  [[nodiscard]] bool is_overwritten(std::uint32_t storage) const { return overwritten_[storage]; }
  /// Persistent values in storages that a node overwrites.
  [[nodiscard]] bool tracked(ValueId v) const {
    const Value& value = graph_->value(v);
    return !value.persistent || overwritten_[value.storage.index];
  }
  [[nodiscard]] std::int64_t ticks(std::uint32_t n) const { return ticks_[n]; }
  [[nodiscard]] double ticks_per_us() const { return scale_; }
  [[nodiscard]] std::int64_t unused_initial_bytes() const { return unused_initial_; }

  /// An updated value, the nodes that update it in the graph's order, and the nodes that read it.
  struct Update {
    std::uint32_t value = 0;
    std::vector<std::uint32_t> updaters;
    std::vector<std::uint32_t> readers;
  };
  struct Bound {
    std::uint32_t update = 0;  ///< index into all_updates()
    std::uint32_t before = 0;  ///< number of updaters before the node
  };
  [[nodiscard]] std::span<const Update> all_updates() const { return updates_; }
  [[nodiscard]] std::span<const Bound> read_bounds(std::uint32_t n) const {
    return read_bounds_[n];
  }
  [[nodiscard]] std::span<const std::uint32_t> updates_by(std::uint32_t n) const {
    return updates_by_[n];
  }

 private:
  void find_overwritten_storages() {
    overwritten_.assign(graph_->storage_count(), false);
    for (const Value& v : graph_->values())
      if (v.overwrites.valid()) overwritten_[v.storage.index] = true;
  }

  void add_node(NodeId n) {
    std::vector<std::uint32_t> reads;
    const auto read = [&](ValueId v) {
      if (tracked(v) && std::find(reads.begin(), reads.end(), v.index) == reads.end())
        reads.push_back(v.index);
    };
    for (ValueId v : graph_->inputs(n)) read(v);
    std::vector<Output> outputs;
    for (ValueId v : graph_->outputs(n)) {
      const Value& value = graph_->value(v);
      if (value.persistent) continue;
      Output o{v.index, none, false, value.overwrites.valid(), true};
      if (const ValueId t = value.target(); t.valid()) {
        o.target = t.index;
        o.target_here = !graph_->value(t).persistent && graph_->value(t).producer == n;
        if (!o.target_here) read(t);
      }
      outputs.push_back(o);
    }
    for (const Output& o : outputs)
      if (o.overwrites && o.target_here)
        for (Output& p : outputs)
          if (p.value == o.target) p.published = false;
    sort_by_target(outputs);
    reads_.push_back(reads);
    outputs_.push_back(outputs);
  }

  static void sort_by_target(std::vector<Output>& outputs) {
    std::vector<Output> sorted;
    const auto has = [&](std::uint32_t v) {
      return std::any_of(sorted.begin(), sorted.end(),
                         [&](const Output& o) { return o.value == v; });
    };
    while (sorted.size() < outputs.size())
      for (const Output& o : outputs)
        if (!has(o.value) && (!o.target_here || has(o.target))) sorted.push_back(o);
    outputs = std::move(sorted);
  }

  void find_viewed() {
    viewed_.assign(graph_->value_count(), false);
    std::vector<bool> used(graph_->storage_count(), false);
    for (const Value& v : graph_->values())
      if (v.target().valid()) viewed_[v.target().index] = used[v.storage.index] = true;
    for (NodeId n : graph_->node_ids())
      for (ValueId v : graph_->inputs(n)) used[graph_->value(v).storage.index] = true;
    for (ValueId v : graph_->outputs()) used[graph_->value(v).storage.index] = true;
    for (const Value& v : graph_->values())
      if (v.initial && !used[v.storage.index]) unused_initial_ += v.bytes.count;
  }

  void find_updates() {
    std::vector<std::uint32_t> index(graph_->value_count(), none);
    const auto nodes = graph_->node_count();
    for (std::size_t i = 0; i < nodes; ++i) {
      std::vector<std::uint32_t> list;
      for (ValueId v : graph_->updates(NodeId{i})) {
        std::uint32_t& u = index[v.index];
        if (u == none) {
          u = static_cast<std::uint32_t>(updates_.size());
          updates_.push_back({v.index, {}, {}});
        }
        if (std::find(list.begin(), list.end(), u) != list.end()) continue;
        list.push_back(u);
        updates_[u].updaters.push_back(static_cast<std::uint32_t>(i));
      }
      updates_by_.push_back(list);
    }
    std::vector<std::uint32_t> done(updates_.size(), 0);
    for (std::size_t i = 0; i < nodes; ++i) {
      std::vector<Bound> bounds;
      for (ValueId v : graph_->inputs(NodeId{i})) {
        const std::uint32_t u = index[v.index];
        if (u == none || (!bounds.empty() && bounds.back().update == u)) continue;
        bounds.push_back({u, done[u]});
        updates_[u].readers.push_back(static_cast<std::uint32_t>(i));
      }
      read_bounds_.push_back(bounds);
      for (std::uint32_t u : updates_by_[i]) ++done[u];
    }
  }

  // Times as whole numbers, so that an edit and its inverse cancel exactly.
  void set_ticks() {
    double total = 0;
    for (const Node& n : graph_->nodes()) total += n.time.count;
    scale_ = total > 0 ? 0x1p46 / total : 1;
    for (const Node& n : graph_->nodes())
      // NOLINTNEXTLINE(bugprone-incorrect-roundings): times are not negative
      ticks_.push_back(static_cast<std::int64_t>(n.time.count * scale_ + 0.5));
  }

  const StepGraph* graph_;
  GraphAdapter<StepGraph> adapter_;
  FlatLists<std::uint32_t> reads_;
  FlatLists<Output> outputs_;
  std::vector<bool> overwritten_, viewed_;
  std::vector<Update> updates_;
  FlatLists<Bound> read_bounds_;
  FlatLists<std::uint32_t> updates_by_;
  std::vector<std::int64_t> ticks_;
  double scale_ = 1;
  std::int64_t unused_initial_ = 0;
};

}  // namespace reprise::planning

namespace reprise {
using planning::ScheduleFacts;
}  // namespace reprise
