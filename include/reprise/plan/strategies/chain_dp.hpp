#pragma once
// Checkpointing of a chain of blocks (chain_blocks.hpp) by dynamic programming: Beaumont et al.,
// "Optimal checkpointing for heterogeneous chains" (the algorithm behind Rotor), with several ways
// of keeping a block and results that stay where they are.
//
//   For blocks i … j, with what is handed to i in memory and m bytes free, the least time of
//     run i, keeping some of what its backward part needs; do i+1 … j; make the rest of i again; i's backward part; or
//     run i … k-1, keeping only what is handed to k; do k … j; then i … k-1 anew, with or without what was handed to k.
//
//   chain of 4, room for 2:   F1 F2 F3 F4 B4   F1 F2 F3 B3   F1 F2 B2 B1      (one of several)
//
// On chains of single nodes this is optimal among schedules that keep what they keep until it is
// used. Memory is counted in slots, so the schedules of a few smaller rooms are tried as well, and
// the fastest that fits by the exact simulator is taken. It falls short where much crosses block
// borders (long skips).

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <reprise/plan/concepts.hpp>
#include <reprise/plan/search/chain_blocks.hpp>

namespace reprise::planning {

class ChainDp {
 public:
  struct Options {
    /// that memory is counted in, for chains of most_blocks; more for shorter ones
    std::size_t slots = 120;
    std::size_t most_blocks = 60;
    std::size_t ways = 8;  ///< of keeping a block, at most about so many
  };
  ChainDp() = default;
  explicit ChainDp(Options options) : options_(options) {}

  [[nodiscard]] std::string_view name() const { return "chain-dp"; }

  /// The graph's own order where it is no chain of at least three blocks.
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    if (graph.node_count() == 0) return {};
    const ScheduleFacts facts{graph};
    return Run{facts, request, options_}.best();
  }

 private:
  class Run {
   public:
    Run(const ScheduleFacts& facts, const PlanRequest& request, const Options& options)
        : facts_(facts),
          graph_(facts.graph()),
          request_(request),
          options_(options),
          stop_(request),
          chain_(facts, options.most_blocks, options.ways, [this] { return stop_(); }) {}

    Schedule best() {
      Schedule chosen = own_order(graph_);
      if (blocks().size() < 3) return chosen;
      Simulation cost = simulate(graph_, chosen);
      const std::int64_t free = request_.budget.count - graph_.persistent_bytes().count;
      if (free <= 0) return chosen;
      const std::size_t shorter = options_.most_blocks / blocks().size();
      const std::size_t wanted =
          options_.slots * std::clamp<std::size_t>(shorter * shorter * shorter, 1, 30);
      unit_ = std::max<std::int64_t>(1, free / static_cast<std::int64_t>(wanted));
      const auto slots = static_cast<std::size_t>(free / unit_);
      most_ = slots + slots / 4;
      if (!fill()) return chosen;
      const std::size_t last = blocks().size() - 1;
      float tried = 0;
      for (std::size_t m = most_; m > slots / 4 && time_of(0, last, m, 0) < unreachable; --m) {
        if (stop_()) break;
        if (time_of(0, last, m, 0) == tried) continue;  // the same schedule as with more room
        tried = time_of(0, last, m, 0);
        Schedule s = schedule_in(m);
        Simulation c = simulate(graph_, s);
        if (!c.valid) continue;
        const bool fits = c.peak <= request_.budget, chosen_fits = cost.peak <= request_.budget;
        if (fits != chosen_fits ? !fits : fits ? c.time >= cost.time : c.peak >= cost.peak)
          continue;
        chosen = std::move(s);
        cost = std::move(c);
        if (fits) break;
      }
      return chosen;
    }

   private:
    static constexpr float unreachable = std::numeric_limits<float>::max();
    struct Choice {
      float time = unreachable;
      std::int16_t split = 0;  // k: hand on to block first + k; 0: keep some of the first block
      // which way of keeping; with a split, whether what was handed on stays for the blocks before
      // it
      std::int16_t way = 0;
    };

    [[nodiscard]] const std::vector<ChainBlock>& blocks() const { return chain_.blocks(); }
    [[nodiscard]] std::size_t slots_of(std::int64_t bytes) const {
      return static_cast<std::size_t>((bytes + unit_ / 2) / unit_);
    }

    // The least time. there: 1 where what the last block hands on is in memory already, within the
    // m slots, until that block's backward part has run. Which choice gives it is not kept but
    // found again where the schedule is written down: the table would be twice as large.
    [[nodiscard]] float& time_of(std::size_t i, std::size_t j, std::size_t m, std::size_t there) {
      const std::size_t before = i * (2 * blocks().size() + 1 - i) / 2;  // pairs that begin earlier
      return table_[((before + j - i) * (most_ + 1) + m) * 2 + there];
    }

    // False where there was no time for it.
    [[nodiscard]] bool fill() {
      const std::size_t count = blocks().size();
      table_.assign(count * (count + 1) / 2 * (most_ + 1) * 2, unreachable);
      for (std::size_t length = 1; length <= count; ++length)
        for (std::size_t i = 0; i + length <= count; ++i) {
          if (stop_()) return false;
          for (std::size_t m = 0; m <= most_; ++m)
            for (std::size_t there : {0u, 1u})
              time_of(i, i + length - 1, m, there) = solve(i, i + length - 1, m, there).time;
        }
      return true;
    }

    Choice solve(std::size_t i, std::size_t j, std::size_t m, std::size_t there) {
      const ChainBlock& b = blocks()[i];
      const bool reached = slots_of(b.needs) <= m;
      Choice best;
      if (i == j) {
        if (reached)
          best.time = static_cast<float>(b.backward_time +
                                         (there != 0 ? b.ways.back().again : b.forward_time));
        return best;
      }
      const auto better = [&](float time, std::size_t split, std::size_t way) {
        if (time < best.time)
          best = {time, static_cast<std::int16_t>(split), static_cast<std::int16_t>(way)};
      };
      for (std::size_t w = 0; w < b.ways.size() && reached; ++w) {
        const std::size_t kept = slots_of(b.ways[w].bytes);
        if (kept > m || time_of(i + 1, j, m - kept, there) == unreachable) continue;
        better(static_cast<float>(b.forward_time + b.backward_time + b.ways[w].again) +
                   time_of(i + 1, j, m - kept, there),
               0, w);
      }
      float run = 0;
      for (std::size_t k = i + 1; k <= j; ++k) {
        run += static_cast<float>(blocks()[k - 1].forward_time);
        const std::size_t handed = slots_of(blocks()[k - 1].handed_on);
        if (handed > m || time_of(k, j, m - handed, there) == unreachable) continue;
        const float right = run + time_of(k, j, m - handed, there);
        if (time_of(i, k - 1, m, 0) < unreachable)
          better(right + time_of(i, k - 1, m, 0), k - i, 0);
        if (time_of(i, k - 1, m, 1) < unreachable)
          better(right + time_of(i, k - 1, m, 1), k - i, 1);
      }
      return best;
    }

    [[nodiscard]] Schedule schedule_in(std::size_t m) {
      LazyRecompute out{facts_, chain_.backward()};
      ran_.assign(blocks().size(), false);
      emit(0, blocks().size() - 1, m, 0, out);
      return out.finish();
    }

    void emit(std::size_t i, std::size_t j, std::size_t m, std::size_t there, LazyRecompute& out) {
      const Choice cell = solve(i, j, m, there);
      const ChainBlock& b = blocks()[i];
      if (cell.split == 0) {
        const auto& way = b.ways[static_cast<std::size_t>(cell.way)];
        if (i < j || there == 0) forward(i, way, out);
        if (i < j) emit(i + 1, j, m - slots_of(way.bytes), there, out);
        for (std::uint32_t n : b.backward) out.run(n);
        return;
      }
      const std::size_t k = i + static_cast<std::size_t>(cell.split),
                        handed = slots_of(blocks()[k - 1].handed_on);
      for (std::size_t x = i; x < k; ++x) {
        forward(x, blocks()[x].ways.back(), out);
        if (x > i) forget_handed_on(x - 1, out);
      }
      emit(k, j, m - handed, there, out);
      if (cell.way == 0) forget_handed_on(k - 1, out);
      emit(i, k - 1, m, static_cast<std::size_t>(cell.way), out);
    }

    // The first time all of it runs; later what leads to what is kept.
    void forward(std::size_t i, const ChainBlock::Keep& keep, LazyRecompute& out) {
      const ChainBlock& b = blocks()[i];
      if (!ran_[i])
        for (std::uint32_t n : b.forward) out.run(n);
      else out.make(wanted(b, keep));
      ran_[i] = true;
      for (std::uint32_t s : b.temporary) out.forget(s);
      for (std::size_t s = 0; s < b.made.size(); ++s)
        if (!keep.storages[s]) out.forget(b.made[s].id);
    }

    [[nodiscard]] static std::vector<std::uint32_t> wanted(const ChainBlock& b,
                                                           const ChainBlock::Keep& keep) {
      std::vector<std::uint32_t> values;
      for (std::size_t s = 0; s < b.made.size(); ++s)
        if (keep.storages[s])
          values.insert(values.end(), b.made[s].wanted.begin(), b.made[s].wanted.end());
      return values;
    }

    void forget_handed_on(std::size_t i, LazyRecompute& out) const {
      for (const ChainBlock::Storage& s : blocks()[i].made)
        if (s.handed_on) out.forget(s.id);
    }

    const ScheduleFacts& facts_;
    const StepGraph& graph_;
    const PlanRequest& request_;
    const Options& options_;
    StopSignal stop_;
    ChainBlocks chain_;
    std::vector<float> table_;  // by first and last block, slots, there
    std::vector<bool> ran_;
    std::int64_t unit_ = 1;
    // slots: some more than fit, since blocks need less than the sum of their parts
    std::size_t most_ = 0;
  };

  Options options_{};
};

static_assert(Strategy<ChainDp>);

}  // namespace reprise::planning

namespace reprise {
using planning::ChainDp;
}  // namespace reprise
