#pragma once
// ChainBlocks divides a training step into a chain of blocks: a block ends where the forward pass
// hands on one storage alone.
//
//   x ─ conv ─ relu ─ conv ─(+)─ conv ─ relu ─ conv ─(+)─ …        a block from one sum to the next
//    └───────────────────────┘└──────────────────────┘
//
// Each block has its share of the backward pass. It also has several ways to keep less than the
// backward pass needs, each with the time to recompute the rest: what frees most bytes per
// microsecond is evicted first. Small storages with many readers (an attention mask) do not count
// as handed on, and are never evicted.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include <reprise/graph/analysis.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/plan/search/lazy_recompute.hpp>

namespace reprise::planning {

struct ChainBlock {
  struct Storage {
    std::uint32_t id = 0;
    std::int64_t bytes = 0;
    bool handed_on = false;
    /// its values that a node outside of the block's forward part reads
    std::vector<std::uint32_t> wanted{};
  };
  struct Keep {
    std::vector<bool> storages{};  ///< by index in `made`; what is handed on is always kept
    std::int64_t bytes = 0;
    double again = 0;  ///< us to recompute the rest
  };
  std::vector<std::uint32_t> forward{}, backward{};
  double forward_time = 0, backward_time = 0;
  std::vector<Storage> made{};  ///< storages that a node outside of its forward part reads
  std::vector<std::uint32_t> temporary{};  ///< other storages of its forward part
  std::vector<Keep> ways{};                ///< everything is kept, …, only what is handed on
  std::int64_t handed_on = 0;              ///< bytes
  /// bytes while it runs and keeps everything, in addition to what earlier blocks keep; including
  /// what later blocks hand back, and the outputs that exist by then
  std::int64_t needs = 0;
};

class ChainBlocks {
 public:
  /// If `stop` returns true, blocks have fewer ways.
  ChainBlocks(const ScheduleFacts& facts, std::size_t most_blocks, std::size_t most_ways,
              const std::function<bool()>& stop = {})
      : graph_(facts.graph()),
        adapter_(facts.adapter()),
        backward_(backward_start(graph_)),
        cones_(adapter_) {
    cut(most_blocks);
    give_backward();
    find_made();
    find_needs();
    for (ChainBlock& b : blocks_) find_ways(b, most_ways, stop);
  }

  [[nodiscard]] const std::vector<ChainBlock>& blocks() const { return blocks_; }
  [[nodiscard]] std::uint32_t backward() const { return backward_; }

 private:
  static constexpr std::uint32_t none = ScheduleFacts::none;

  void cut(std::size_t most_blocks) {
    const std::vector<std::uint32_t> ends = borders();
    const std::size_t stride = (ends.size() + most_blocks - 1) / most_blocks;
    block_of_.assign(backward_, 0);
    std::uint32_t begin = 0;
    for (std::size_t i = stride - 1; begin < backward_; i += stride) {
      const std::uint32_t end = i < ends.size() ? ends[i] : backward_;
      ChainBlock b;
      for (std::uint32_t n = begin; n < end; ++n) {
        b.forward.push_back(n);
        block_of_[n] = static_cast<std::uint32_t>(blocks_.size());
        b.forward_time += graph_.nodes()[n].time.count;
      }
      blocks_.push_back(std::move(b));
      begin = end;
    }
  }

  // Nodes before which one storage alone is handed on, and the end of the forward pass.
  [[nodiscard]] std::vector<std::uint32_t> borders() {
    const std::size_t storages = graph_.storage_count();
    const auto phase = [this](NodeId n) {
      return n.index < backward_ ? Phase::forward : Phase::backward;
    };
    for (const StorageUse& use : storage_uses(adapter_, phase)) {
      made_.push_back(use.first_forward.index);
      last_.push_back(use.last_forward.index);
    }
    std::int64_t largest = 0;
    for (std::uint32_t s = 0; s < storages; ++s)
      if (made_[s] != none && !graph_.storages()[s].persistent)
        largest = std::max(largest, graph_.storages()[s].bytes.count);
    least_ = largest / 256 + 1;
    std::vector<int> crossing(backward_ + 1, 0);
    for (std::uint32_t s = 0; s < storages; ++s)
      if (counts(s)) {
        ++crossing[made_[s] + 1];
        --crossing[last_[s] + 1];
      }
    std::vector<std::uint32_t> ends;
    int now = 0;
    for (std::uint32_t p = 1; p < backward_; ++p) {
      now += crossing[p];
      if (now == 1) ends.push_back(p);
    }
    ends.push_back(backward_);
    return ends;
  }

  [[nodiscard]] bool counts(std::uint32_t s) const {
    return made_[s] != none && !graph_.storages()[s].persistent &&
           graph_.storages()[s].bytes.count >= least_;
  }

  // A backward node belongs to the latest block whose results it reads, but to no later block than
  // the nodes before it.
  void give_backward() {
    auto current = static_cast<std::uint32_t>(blocks_.size() - 1);
    for (std::uint32_t n = backward_; n < graph_.node_count(); ++n) {
      std::uint32_t highest = 0;
      bool reads_forward = false;
      for (auto [e, end] = in_edges(NodeId{n}, adapter_); e != end; ++e) {
        const Dependency& d = adapter_.dependency(*e);
        if (d.from.index >= backward_ || !counts(graph_.value(d.value).storage.index)) continue;
        reads_forward = true;
        highest = std::max(highest, block_of_[d.from.index]);
      }
      if (reads_forward) current = std::min(current, highest);
      blocks_[current].backward.push_back(n);
      blocks_[current].backward_time += graph_.nodes()[n].time.count;
    }
  }

  void find_made() {
    std::vector<std::uint32_t> place(graph_.storage_count(), none);
    for (std::uint32_t v = 0; v < graph_.value_count(); ++v) {
      const Value& value = graph_.values()[v];
      const std::uint32_t s = value.storage.index;
      if (!value.producer.valid() || value.producer.index >= backward_ || !counts(s)) continue;
      ChainBlock& b = blocks_[block_of_[made_[s]]];
      const std::uint32_t end = b.forward.back();
      bool backward = false, later = false;
      for (NodeId r : graph_.readers(ValueId{v}))
        (r.index >= backward_ ? backward : later) |= r.index > end;
      if (!backward && !later) continue;
      if (place[s] == none) {
        place[s] = static_cast<std::uint32_t>(b.made.size());
        b.made.push_back({.id = s, .bytes = graph_.storages()[s].bytes.count});
      }
      b.made[place[s]].wanted.push_back(v);
      b.made[place[s]].handed_on = b.made[place[s]].handed_on || later;
    }
    for (std::uint32_t s = 0; s < graph_.storage_count(); ++s)
      if (counts(s) && place[s] == none) blocks_[block_of_[made_[s]]].temporary.push_back(s);
    for (ChainBlock& b : blocks_)
      for (const ChainBlock::Storage& s : b.made) b.handed_on += s.handed_on ? s.bytes : 0;
  }

  // The live bytes in the graph's own order, without what earlier blocks keep.
  void find_needs() {
    const Schedule own = own_order(graph_);
    const std::vector<Bytes> live = simulate(graph_, own).live_during;
    // by block: the begin of the backward part of this block or an earlier one
    std::vector<std::size_t> turn;
    for (const ChainBlock& b : blocks_)
      turn.push_back(!b.backward.empty() ? b.backward.front()
                     : turn.empty()      ? graph_.node_count()
                                         : turn.back());
    std::vector<std::int64_t> earlier(graph_.node_count() + 1, 0);
    for (const StorageInstance& s : resolve(graph_, own).storages) {
      if (s.persistent || s.made_by == no_index || s.made_by >= backward_) continue;
      const std::size_t block = block_of_[s.made_by], begin = blocks_[block].forward.back() + 1;
      const std::size_t end = std::min<std::size_t>(s.last + 1, turn[block]);
      if (end <= begin) continue;
      earlier[begin] += s.bytes.count;
      earlier[end] -= s.bytes.count;
    }
    for (std::size_t n = 1; n < earlier.size(); ++n) earlier[n] += earlier[n - 1];
    for (ChainBlock& b : blocks_)
      for (const auto* list : {&b.forward, &b.backward})
        for (std::uint32_t n : *list)
          b.needs = std::max(b.needs, (live[n] - graph_.persistent_bytes()).count - earlier[n]);
  }

  // Everything kept, then less and less, then nothing: each step evicts the storages that free most
  // bytes for the time that they add.
  void find_ways(ChainBlock& b, std::size_t most, const std::function<bool()>& stop) {
    ChainBlock::Keep keep{.storages = std::vector<bool>(b.made.size(), true)};
    for (const ChainBlock::Storage& s : b.made) keep.bytes += s.bytes;
    b.ways.push_back(keep);
    const std::int64_t step = (keep.bytes - b.handed_on) / static_cast<std::int64_t>(most);
    while (!(stop && stop()) && drop_next(b, keep))
      if (b.ways.back().bytes - keep.bytes >= step) b.ways.push_back(keep);
    if (b.ways.back().bytes != keep.bytes) b.ways.push_back(keep);
  }

  bool drop_next(const ChainBlock& b, ChainBlock::Keep& keep) {
    // by the bytes of their results; the best of the first ones is taken
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t k = 0; k < b.made.size(); ++k)
      if (!b.made[k].handed_on && keep.storages[k])
        order.push_back({-static_cast<double>(b.made[k].bytes) / (own_time(b.made[k]) + 1e-3), k});
    if (order.empty()) return false;
    const std::size_t looked_at = std::min<std::size_t>(order.size(), b.made.size() > 64 ? 1 : 16);
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(looked_at),
                      order.end());
    double best = -1, best_again = 0;
    std::size_t chosen = 0;
    for (std::size_t c = 0; c < looked_at; ++c) {
      const std::size_t k = order[c].second;
      keep.storages[k] = false;
      const double again = time_again(b, keep), ratio = static_cast<double>(b.made[k].bytes) /
                                                        (std::max(0.0, again - keep.again) + 1e-3);
      keep.storages[k] = true;
      if (ratio > best) best = ratio, best_again = again, chosen = k;
    }
    keep.storages[chosen] = false;
    keep.bytes -= b.made[chosen].bytes;
    keep.again = best_again;
    return true;
  }

  [[nodiscard]] double own_time(const ChainBlock::Storage& s) const {
    double time = 0;
    std::uint32_t before = none;
    for (std::uint32_t v : s.wanted)
      if (const std::uint32_t n = graph_.values()[v].producer.index; n != before)
        time += graph_.nodes()[before = n].time.count;
    return time;
  }

  // The time of the nodes in the block's forward part that recompute what is not kept.
  [[nodiscard]] double time_again(const ChainBlock& b, const ChainBlock::Keep& keep) {
    kept_.resize(graph_.storage_count(), 0);
    ++stamp_;
    for (std::size_t k = 0; k < b.made.size(); ++k)
      if (keep.storages[k]) kept_[b.made[k].id] = stamp_;
    const auto inside = [&b](NodeId n) {
      return n.valid() && n.index >= b.forward.front() && n.index <= b.forward.back();
    };
    std::vector<NodeId> missing;
    for (std::size_t k = 0; k < b.made.size(); ++k)
      if (!keep.storages[k])
        for (std::uint32_t v : b.made[k].wanted)
          if (const NodeId n = graph_.values()[v].producer; inside(n)) missing.push_back(n);
    double time = 0;
    for (NodeId n : cones_.leading_to(missing, [&](EdgeId e) {
           const Dependency& d = adapter_.dependency(e);
           return inside(d.from) && kept_[graph_.value(d.value).storage.index] != stamp_;
         }))
      time += graph_.node(n).time.count;
    return time;
  }

  const StepGraph& graph_;
  const GraphAdapter<StepGraph>& adapter_;
  std::uint32_t backward_;
  ConeSearch<StepGraph> cones_;
  std::vector<ChainBlock> blocks_;
  std::vector<std::uint32_t> block_of_, made_, last_, kept_;
  std::int64_t least_ = 1;
  std::uint32_t stamp_ = 0;
};

}  // namespace reprise::planning
