#pragma once
// MuTwo is Algorithms B to G of μ-TWO's scheduler (Purandare et al., MLSys 2023). It recomputes the
// storages that free most bytes per microsecond, or swaps those that are inactive longest, until
// its own simulator says that the peak fits.
//
//   candidate   bytes   inactive    recompute   ratio
//   h1          8 MB    900 us      40 us       0.2 MB/us
//   h2          8 MB    100 us      10 us       0.8 MB/us     recomputed first; h1, if it is h2's source, becomes more expensive by 10 us
//
// Its simulator (G) subtracts an evicted activation's bytes between the activation's last forward
// use and first backward use, and models nothing else. It does not see workspaces, the memory of
// the recomputation itself, sources that are kept longer, and in-place chains. `Report` gives both
// peaks. `MuTwoExact` is the repaired variant: the exact simulator, and candidates only from the
// storages that are live at the peak.

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <reprise/graph/analysis.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/plan/concepts.hpp>
#include <reprise/plan/decisions.hpp>
#include <reprise/plan/search/lazy_recompute.hpp>
#include <reprise/plan/search/recompute_search.hpp>

namespace reprise::planning {

struct MuTwoOptions {
  /// also consider swapping; schedules only recompute, but decisions list swaps
  bool swap = false;
  double gigabytes_per_second = 12;  ///< of the link to host memory, in each direction
};

struct MuTwoReport {
  struct Choice {
    StorageId storage{};
    Decision decision = Decision::keep;
    Microseconds inactive{};
    Microseconds cost{};  ///< of recomputation, or of the part of the transfer that nothing hides
  };
  std::vector<Choice> choices{};  ///< in the order of the decisions
  Bytes published_peak{};         ///< the peak by Algorithm G
  Bytes exact_peak{};             ///< of the recompute-only schedule, by the exact rule
  Schedule schedule{};
};

class MuTwo {
 public:
  explicit MuTwo(MuTwoOptions options = {}) : options_(options) {}

  [[nodiscard]] std::string_view name() const { return "mu-two"; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    return report(graph, request).schedule;
  }

  [[nodiscard]] MuTwoReport report(const StepGraph& graph, const PlanRequest& request) const {
    const ScheduleFacts facts{graph};
    return Run{facts, request, options_}.run();
  }

 private:
  struct Candidate {
    std::uint32_t storage = 0;
    DeadRange dead{};
    std::int64_t bytes = 0;
    double inactive = 0;
    double recompute = 0;               // time from its sources
    std::uint32_t repeats = 1;          // recomputations that start from it, itself included
    std::set<std::uint32_t> sources{};  // storages from which it is recomputed
    bool possible = true;
  };

  class Run {
   public:
    Run(const ScheduleFacts& facts, const PlanRequest& request, const MuTwoOptions& options)
        : facts_(facts),
          graph_(facts.graph()),
          request_(request),
          options_(options),
          stop_(request),
          backward_(backward_start(graph_)) {
      live_ = simulate(graph_, own_order(graph_)).live_during;
      elapsed_.push_back(0);
      for (const Node& n : graph_.nodes()) elapsed_.push_back(elapsed_.back() + n.time.count);
      collect();
    }

    MuTwoReport run() {
      MuTwoReport report;
      std::vector<bool> dropped(graph_.storage_count(), false);
      while (peak() > request_.budget && !open_.empty() && !stop_()) {
        const auto by_ratio = std::max_element(open_.begin(), open_.end(),
                                               [&](auto a, auto b) { return ratio(a) < ratio(b); });
        const auto by_inactive = std::max_element(open_.begin(), open_.end(), [&](auto a, auto b) {
          return all_[a].inactive < all_[b].inactive;
        });
        const double swap_cost = options_.swap ? swap_overhead(all_[*by_inactive]) : 0;
        const bool swap =
            options_.swap && (!all_[*by_ratio].possible || swap_cost < total(all_[*by_ratio]));
        const auto chosen = swap ? by_inactive : by_ratio;
        const std::uint32_t c = *chosen;
        if (!swap && !all_[c].possible) break;
        open_.erase(chosen);
        take_off(all_[c]);
        const StorageId storage{all_[c].storage};
        report.choices.push_back({storage,
                                  swap ? Decision::offload : Decision::recompute,
                                  {all_[c].inactive},
                                  {swap ? swap_cost : total(all_[c])}});
        if (swap) continue;
        dropped[all_[c].storage] = true;
        settle(c);
      }
      report.published_peak = peak();
      report.schedule = drop_for_backward(facts_, backward_, dropped);
      report.exact_peak = simulate(graph_, report.schedule).peak;
      return report;
    }

   private:
    // Activations are made in the forward pass and used in both passes. Sources are other
    // candidates; everything else on the way is recomputed as well.
    void collect() {
      index_.assign(graph_.storage_count(), ScheduleFacts::none);
      const auto phase = [this](NodeId n) {
        return n.index < backward_ ? Phase::forward : Phase::backward;
      };
      for (const StorageUse& use : storage_uses(facts_.adapter(), phase)) {
        const std::uint32_t s = use.storage.index;
        const Storage& storage = graph_.storage(use.storage);
        if (storage.persistent || graph_.value(use.value).initial || use.bytes.count == 0 ||
            !use.created.valid())
          continue;
        if (use.created.index >= backward_ || !use.first_backward.valid()) continue;
        Candidate c;
        c.storage = s;
        c.dead = dead_range(use);
        c.bytes = use.bytes.count;
        c.inactive = elapsed_[c.dead.before.index] - elapsed_[c.dead.after.index + 1];
        index_[s] = static_cast<std::uint32_t>(all_.size());
        open_.push_back(index_[s]);
        all_.push_back(std::move(c));
      }
      std::vector<std::vector<NodeId>> makers(graph_.storage_count());
      for (const Value& v : graph_.values())
        if (v.producer.valid() && v.producer.index < backward_)
          makers[v.storage.index].push_back(v.producer);
      ConeSearch<StepGraph> cones{facts_.adapter()};
      for (Candidate& c : all_) {
        if (stop_()) open_.clear();  // without their sources they cannot be compared
        if (open_.empty()) return;
        find_sources(c, cones, makers[c.storage]);
      }
    }

    void find_sources(Candidate& c, ConeSearch<StepGraph>& cones, std::span<const NodeId> makers) {
      const auto& adapter = facts_.adapter();
      const auto storage = [&](EdgeId e) {
        return graph_.value(adapter.dependency(e).value).storage.index;
      };
      const auto is_source = [&](std::uint32_t s) {
        return s != c.storage && index_[s] != ScheduleFacts::none;
      };
      const auto& cone = cones.leading_to(
          makers, [&](EdgeId e) { return storage(e) != c.storage && !is_source(storage(e)); });
      for (NodeId n : cone) {
        if (!graph_.node(n).recomputable) c.possible = false;
        c.recompute += graph_.node(n).time.count;
        for (auto [e, end] = in_edges(n, adapter); e != end; ++e)
          if (is_source(storage(*e))) c.sources.insert(storage(*e));
      }
      for (NodeId n : request_.keep)
        if (std::find(cone.begin(), cone.end(), n) != cone.end()) c.possible = false;
    }

    [[nodiscard]] static double total(const Candidate& c) { return c.recompute * c.repeats; }
    [[nodiscard]] double ratio(std::uint32_t i) const {
      return all_[i].possible ? static_cast<double>(all_[i].bytes) / (total(all_[i]) + 1e-3) : -1;
    }

    // C: the part of both transfers that is longer than the inactive time.
    [[nodiscard]] double swap_overhead(const Candidate& c) const {
      return std::max(
          0.0,
          2 * static_cast<double>(c.bytes) / (options_.gigabytes_per_second * 1e3) - c.inactive);
    }

    // E and F: a candidate that starts from an evicted activation now starts from its sources, and
    // pays for that.
    void settle(std::uint32_t chosen) {
      const Candidate& c = all_[chosen];
      std::uint32_t users = 0;
      for (Candidate& other : all_) {
        if ((++asked_ & 63) == 0 && stop_()) return open_.clear();
        if (other.sources.erase(c.storage) == 0) continue;
        other.sources.insert(c.sources.begin(), c.sources.end());
        other.recompute += c.recompute;
        other.possible = other.possible && c.possible;
        ++users;
      }
      for (std::uint32_t s : c.sources) all_[index_[s]].repeats += std::max(1u, users);
    }

    // G, as published: a step function minus the inactive bytes.
    void take_off(const Candidate& c) {
      for (std::uint32_t i = c.dead.after.index + 1; i < c.dead.before.index; ++i)
        live_[i] -= Bytes{c.bytes};
    }
    [[nodiscard]] Bytes peak() const {
      return live_.empty() ? Bytes{} : *std::max_element(live_.begin(), live_.end());
    }

    const ScheduleFacts& facts_;
    const StepGraph& graph_;
    const PlanRequest& request_;
    const MuTwoOptions& options_;
    StopSignal stop_;
    std::uint32_t backward_;
    std::uint32_t asked_ = 0;
    std::vector<Bytes> live_;
    std::vector<double> elapsed_;
    std::vector<Candidate> all_;
    std::vector<std::uint32_t> index_, open_;
  };

  MuTwoOptions options_;
};

/// The repaired variant: the exact simulator decides when to stop, and only storages that are live
/// at its peak are candidates.
class MuTwoExact {
 public:
  /// `work`: the limit, as a multiple of a planner's usual work, whether the peak fits or not.
  explicit MuTwoExact(double work = 4) : work_(work) {}

  [[nodiscard]] std::string_view name() const { return "mu-two-exact"; }
  [[nodiscard]] Schedule schedule(const StepGraph& graph, const PlanRequest& request) const {
    const ScheduleFacts facts{graph};
    const StopSignal stop{request};
    SearchRules rules;
    rules.budget = request.budget.count;
    rules.keep_order = true;
    rules.stop = [&stop] { return stop(); };
    if (!request.keep.empty()) {
      rules.keep.assign(graph.node_count(), false);
      for (NodeId n : request.keep) rules.keep[n.index] = true;
    }
    RecomputeSearch search{facts, own_order(graph), rules, request.seed};
    search.reach_budget(static_cast<std::uint64_t>(
        work_ * static_cast<double>(default_search_work(graph.node_count()))));
    return search.live().schedule();
  }

 private:
  double work_;
};

static_assert(Strategy<MuTwo> && Strategy<MuTwoExact>);

}  // namespace reprise::planning

namespace reprise {
using planning::MuTwo;
using planning::MuTwoExact;
using planning::MuTwoOptions;
}  // namespace reprise
