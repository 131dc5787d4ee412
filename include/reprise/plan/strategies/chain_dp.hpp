#pragma once
// Optimal checkpointing of a chain of blocks by dynamic programming (Beaumont et al., "Optimal checkpointing for heterogeneous
// chains", the algorithm behind Rotor), where the graph is one.
//
//   A block ends where one storage alone is handed on. For blocks i … j, with the input of i in memory and m bytes free:
//     keep what block i's backward needs, go on with i+1 … j, then i's backward; or
//     run i … k-1 keeping only what is handed to k, do k … j, then i … k-1 anew.
//
//   chain of 4, room for 2:   F1 F2 F3 F4 B4   F1 F2 F3 B3   F1 F2 B2 B1      (one of several)
//
// Memory is counted in slots, so the schedules of a few smaller rooms are tried as well, and the fastest that fits by the exact
// simulator is taken. It falls short where much crosses block borders (long skips) and inside blocks, which are run as they are.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <reprise/concepts.hpp>
#include <reprise/plan/lazy_recompute.hpp>

namespace reprise {

class ChainDp {
 public:
  struct Options {
    std::size_t slots = 120;
    std::size_t most_blocks = 80;
  };
  ChainDp() = default;
  explicit ChainDp(Options options) : options_(options) {}

  [[nodiscard]] std::string_view name() const { return "chain-dp"; }

  /// The graph's own order where it is no chain of at least three blocks.
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    const ScheduleFacts facts{graph};
    return Run{facts, request, options_}.best();
  }

 private:
  struct Block {
    std::vector<std::uint32_t> forward{}, backward{};
    double forward_time = 0, backward_time = 0;
    std::int64_t kept = 0;       // bytes that its backward needs, what it hands on included
    std::int64_t handed_on = 0;  // bytes
    std::int64_t room = 0;       // beside that, for its largest node
  };

  class Run {
   public:
    Run(const ScheduleFacts& facts, const PlanRequest& request, const Options& options)
        : facts_(facts), graph_(facts.graph()), request_(request), options_(options), backward_(backward_start(graph_)) {
      find_blocks();
    }

    Schedule best() {
      Schedule chosen = own_order(graph_);
      Simulation cost = simulate(graph_, chosen);
      if (blocks_.size() < 3) return chosen;
      const std::int64_t free = request_.budget.count - graph_.persistent_bytes().count;
      if (free <= 0) return chosen;
      unit_ = std::max<std::int64_t>(1, free / static_cast<std::int64_t>(options_.slots));
      fill();
      for (std::size_t m = options_.slots; m > options_.slots / 4; m -= std::max<std::size_t>(1, options_.slots / 24)) {
        if (at(0, blocks_.size() - 1, m).time == unreachable) break;
        Schedule s;
        emit(0, blocks_.size() - 1, m, s);
        Simulation c = simulate(graph_, s);
        if (!c.valid) continue;
        const bool fits = c.peak <= request_.budget, chosen_fits = cost.peak <= request_.budget;
        if (fits != chosen_fits ? !fits : fits ? c.time >= cost.time : c.peak >= cost.peak) continue;
        chosen = std::move(s);
        cost = std::move(c);
      }
      return chosen;
    }

   private:
    static constexpr float unreachable = std::numeric_limits<float>::max();
    struct Cell {
      float time = unreachable;
      std::int32_t split = 0;  // 0: keep all of the first block; k: hand on to block first + k
    };

    void find_blocks() {
      const std::size_t storages = graph_.storage_count();
      std::vector<std::uint32_t> made(storages, ScheduleFacts::none), last(storages, 0);
      const auto counts = [&](std::uint32_t s) { return !graph_.storages()[s].persistent && graph_.storages()[s].bytes.count > 0; };
      for (std::uint32_t n = 0; n < backward_; ++n)
        for (auto list : {graph_.inputs(NodeId{n}), graph_.outputs(NodeId{n})})
          for (ValueId v : list) {
            const std::uint32_t s = graph_.value(v).storage.index;
            if (made[s] == ScheduleFacts::none) made[s] = n;
            last[s] = n;
          }
      std::vector<int> crossing(backward_ + 1, 0);
      for (std::uint32_t s = 0; s < storages; ++s)
        if (made[s] != ScheduleFacts::none && counts(s)) {
          ++crossing[made[s] + 1];
          --crossing[last[s] + 1];
        }
      std::vector<std::uint32_t> ends;
      int now = 0;
      for (std::uint32_t p = 1; p < backward_; ++p) {
        now += crossing[p];
        if (now == 1) ends.push_back(p);
      }
      ends.push_back(backward_);
      const std::size_t stride = (ends.size() + options_.most_blocks - 1) / options_.most_blocks;
      std::uint32_t begin = 0;
      block_of_.assign(backward_, 0);
      for (std::size_t i = stride - 1; i < ends.size() || begin < backward_; i += stride) {
        const std::uint32_t end = i < ends.size() ? ends[i] : backward_;
        Block b;
        for (std::uint32_t n = begin; n < end; ++n) {
          b.forward.push_back(n);
          block_of_[n] = static_cast<std::uint32_t>(blocks_.size());
          b.forward_time += graph_.nodes()[n].time.count;
        }
        blocks_.push_back(std::move(b));
        begin = end;
      }
      give_backward();
      measure(made, last);
    }

    void give_backward() {
      if (blocks_.empty()) return;
      auto current = static_cast<std::uint32_t>(blocks_.size() - 1);
      for (std::uint32_t n = backward_; n < graph_.node_count(); ++n) {
        std::uint32_t highest = 0;
        bool reads_forward = false;
        for (std::uint32_t v : facts_.reads(n)) {
          const NodeId producer = graph_.values()[v].producer;
          if (!producer.valid() || producer.index >= backward_) continue;
          reads_forward = true;
          highest = std::max(highest, block_of_[producer.index]);
        }
        if (reads_forward) current = std::min(current, highest);
        blocks_[current].backward.push_back(n);
        blocks_[current].backward_time += graph_.nodes()[n].time.count;
      }
    }

    void measure(const std::vector<std::uint32_t>& made, const std::vector<std::uint32_t>& last) {
      std::vector<bool> needed(graph_.storage_count(), false);
      for (std::uint32_t n = backward_; n < graph_.node_count(); ++n)
        for (std::uint32_t v : facts_.reads(n)) needed[graph_.values()[v].storage.index] = true;
      for (std::uint32_t s = 0; s < graph_.storage_count(); ++s) {
        if (made[s] == ScheduleFacts::none || graph_.storages()[s].persistent) continue;
        Block& b = blocks_[block_of_[made[s]]];
        const bool leaves = last[s] > b.forward.back();
        if (leaves) b.handed_on += graph_.storages()[s].bytes.count;
        if (needed[s] || leaves) b.kept += graph_.storages()[s].bytes.count;
      }
      for (Block& b : blocks_)
        for (const auto* list : {&b.forward, &b.backward})
          for (std::uint32_t n : *list) {
            std::int64_t made_here = graph_.nodes()[n].workspace.count;
            for (ValueId v : graph_.outputs(NodeId{n})) made_here += graph_.value(v).bytes.count;
            b.room = std::max(b.room, made_here);
          }
    }

    [[nodiscard]] std::size_t slots_of(std::int64_t bytes) const { return static_cast<std::size_t>((bytes + unit_ - 1) / unit_); }
    [[nodiscard]] Cell& at(std::size_t i, std::size_t j, std::size_t m) { return table_[(i * blocks_.size() + j) * (options_.slots + 1) +
        m]; }

    void fill() {
      const std::size_t count = blocks_.size();
      table_.assign(count * count * (options_.slots + 1), {});
      for (std::size_t length = 1; length <= count; ++length)
        for (std::size_t i = 0; i + length <= count; ++i)
          for (std::size_t m = 0; m <= options_.slots; ++m) at(i, i + length - 1, m) = solve(i, i + length - 1, m);
    }

    Cell solve(std::size_t i, std::size_t j, std::size_t m) {
      const Block& b = blocks_[i];
      Cell best;
      const std::size_t kept = slots_of(b.kept), needs = slots_of(b.kept + b.room);
      if (needs <= m && i == j) best.time = static_cast<float>(b.forward_time + b.backward_time);
      if (needs <= m && i < j && at(i + 1, j, m - kept).time < unreachable)
        best.time = static_cast<float>(b.forward_time + b.backward_time) + at(i + 1, j, m - kept).time;
      float run = 0;
      for (std::size_t k = i + 1; k <= j; ++k) {
        run += static_cast<float>(blocks_[k - 1].forward_time);
        const std::size_t handed = slots_of(blocks_[k - 1].handed_on);
        if (handed > m) continue;
        const float right = at(k, j, m - handed).time, left = at(i, k - 1, m).time;
        if (right == unreachable || left == unreachable || run + right + left >= best.time) continue;
        best = {run + right + left, static_cast<std::int32_t>(k - i)};
      }
      return best;
    }

    void emit(std::size_t i, std::size_t j, std::size_t m, Schedule& out) {
      const Cell cell = at(i, j, m);
      const auto run = [&](const std::vector<std::uint32_t>& nodes) {
        for (std::uint32_t n : nodes) out.push_back(NodeId{n});
      };
      if (cell.split == 0) {
        run(blocks_[i].forward);
        if (i < j) emit(i + 1, j, m - slots_of(blocks_[i].kept), out);
        run(blocks_[i].backward);
        return;
      }
      const std::size_t k = i + static_cast<std::size_t>(cell.split);
      for (std::size_t b = i; b < k; ++b) run(blocks_[b].forward);
      emit(k, j, m - slots_of(blocks_[k - 1].handed_on), out);
      emit(i, k - 1, m, out);
    }

    const ScheduleFacts& facts_;
    const StepGraph& graph_;
    const PlanRequest& request_;
    const Options& options_;
    std::uint32_t backward_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> block_of_;
    std::vector<Cell> table_;
    std::int64_t unit_ = 1;
  };

  Options options_{};
};

static_assert(Strategy<ChainDp>);

}  // namespace reprise
