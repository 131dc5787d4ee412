#pragma once
// RecomputeSearch searches over whole schedules: it evicts a value at the peak and recomputes it
// before its next use, until the peak fits.
//
//   peak at P        a ────────── P ────────── b          x is made at a, idle at P, read at b
//   evict x          a ─┤         P         u ├─ b        u, which makes x, runs a second time right before b; if u's inputs do not
//                                                         exist then, they are recomputed too (the cone of x), or kept until b
//
// The cost of an eviction is the time of its cone; its gain is the bytes that it frees above the
// budget. Evictions inside a cone lower the peaks of the cone, so recomputation nests as deep as
// the budget requires. Occurrences without readers are removed, which makes an eviction a move if
// that is possible.
//
// improve() then removes recomputations at random and repairs the schedule, and keeps changes that
// save time (large neighbourhood search under an annealing rule). All limits are in units of work,
// so the same seed gives the same plan under any load.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <reprise/plan/search/schedule_search.hpp>

namespace reprise::planning {

/// Default work of a search: fits the promised times for this many nodes.
[[nodiscard]] inline std::uint64_t default_search_work(std::size_t nodes) {
  const double thousands = static_cast<double>(nodes) / 1000;
  return static_cast<std::uint64_t>(1.3e6 * std::pow(std::max(thousands, 1.0), 0.4));
}

class RecomputeSearch final : public ScheduleSearch {
 public:
  RecomputeSearch(const ScheduleFacts& facts, std::span<const NodeId> schedule, SearchRules rules,
                  std::uint64_t seed)
      : ScheduleSearch(facts, schedule, std::move(rules), seed, most_cone),
        movable_(facts.graph().node_count(), 0) {
    std::int64_t total = 0;
    for (std::uint32_t n = 0; n < movable_.size(); ++n) total += facts.ticks(n);
    if (movable_.size() > 3000) batch_share_ = 8;
    free_ticks_ =
        std::max<std::int64_t>(1, total / static_cast<std::int64_t>(movable_.size() + 1) / 1000);
  }

  [[nodiscard]] bool fits() const { return live().peak().count <= rules_.budget; }
  [[nodiscard]] std::uint64_t work() const { return work_ + cone_.work() + 4 * s_.edits(); }
  void commit() { s_.commit(); }

  /// Evicts until the peak fits or nothing helps. False if the schedule does not fit in the end; it
  /// keeps what was reached.
  bool reach_budget(std::uint64_t work_limit) {
    work_limit_ = work_limit;
    // One visit of the whole peak is long enough to ask each time.
    while (!fits() && work() <= work_limit && !(rules_.stop && rules_.stop()) && lower_peak(all))
      s_.commit();
    work_limit_ = ~std::uint64_t{0};
    return fits();
  }

  /// Removes recomputations and repairs the schedule, for this much work. The schedule must fit,
  /// and fits afterwards.
  void improve(std::uint64_t work_limit, double heat) {
    prune();
    const std::uint64_t begin = work();
    std::int64_t now = live().ticks(), best = now;
    Schedule best_schedule = live().schedule();
    bool best_is_now = true;
    while (work() < work_limit && !stopped()) {
      if (s_.repeated().empty()) break;
      const double left =
          1 - static_cast<double>(work() - begin) / static_cast<double>(work_limit - begin);
      const double temperature = heat * left * left * static_cast<double>(best);
      if (!ruin_and_repair(now, temperature)) continue;
      now = live().ticks();
      best_is_now = false;
      if (now < best) {
        best = now;
        best_schedule = live().schedule();
        best_is_now = true;
        work_ += best_schedule.size() / 16;
      }
    }
    if (!best_is_now) restart_from(best_schedule);
    prune();
  }

  /// Removes every recomputation that the budget does not need, the most expensive first.
  void prune() {
    for (bool again = true; again;) {
      again = false;
      std::vector<Occurrence> list;
      for (std::uint32_t n : s_.repeated())
        for (Occurrence x : live().occurrences(n).subspan(1)) list.push_back(x);
      std::sort(list.begin(), list.end(), [&](Occurrence a, Occurrence b) {
        const auto ta = facts_.ticks(live().node(a)), tb = facts_.ticks(live().node(b));
        return ta != tb ? ta > tb : live().slot(a) < live().slot(b);
      });
      for (Occurrence x : list) {
        if (!live().alive(x) || live().is_first(x)) continue;
        const std::size_t mark = s_.mark();
        s_.take_out(x, rules_.keep_order);
        if (live().valid() && fits()) again = true;
        else s_.undo_to(mark);
        s_.commit();
        if (stopped()) return;
      }
    }
  }

  void restart_from(const Schedule& schedule) {
    work_ += 4 * s_.edits() + schedule.size();
    s_.restart(facts_, schedule);
  }

  static constexpr std::size_t all = ~std::size_t{0};

  /// One eviction at the peak, or several that were found together. False if nothing there can be
  /// evicted.
  bool lower_peak(std::size_t sample) {
    const Occurrence at = live().peak_at();
    const std::uint32_t p = live().slot(at);
    const std::int64_t peak = live().live_during(at);
    for (int attempt = 0; attempt < 3; ++attempt) {
      extend_ratio_ = attempt == 0 ? 8 : attempt == 1 ? 1.5 : 1e18;
      find_candidates(p, sample);
      if (candidates_.empty()) continue;
      std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
        return a.score != b.score ? a.score > b.score : a.storage < b.storage;
      });
      const std::size_t batch =
          sample == all ? std::max<std::size_t>(1, candidates_.size() / batch_share_) : 1;
      std::size_t done = 0;
      for (const Candidate& c : std::vector<Candidate>(candidates_)) {
        if (apply(c, at, peak)) ++done;
        if (work() > work_limit_ || stopped()) return done > 0;
        if (done >= batch ||
            (done > 0 && (!live().alive(at) || live().live_during(at) <= rules_.budget)))
          break;
      }
      if (done > 0) return true;
    }
    return false;
  }

 private:
  struct Candidate {
    Instance storage = none;
    std::int64_t ticks = 0;  ///< of its cone
    double score = 0;
  };
  // Asked about once per millisecond, however much work a move is.
  bool stopped() {
    if (stopped_ || !rules_.stop) return stopped_;
    if ((++asked_ & 63) != 0 && work() < ask_at_) return false;
    ask_at_ = work() + 1024;
    return stopped_ = rules_.stop();
  }

  // ---- candidates -------------------------------------------------------------------------------

  void find_candidates(std::uint32_t p, std::size_t sample) {
    candidates_.clear();
    const std::int64_t excess = live().peak().count - rules_.budget;
    const std::uint32_t low = live().first_above(rules_.budget),
                        high = live().last_above(rules_.budget);
    const std::size_t count = live().instance_count();
    work_ += 8;
    if (sample == all || count <= 2 * sample) {
      work_ += count / 16;
      for (Instance i = 0; i < count && !stopped(); ++i) consider(i, p, excess, low, high);
      return;
    }
    for (std::size_t tries = 0; tries < 12 * sample && candidates_.size() < sample;
         ++tries, work_ += tries % 4 == 0 ? 1u : 0u)
      consider(random_.below(count), p, excess, low, high);
  }

  void consider(Instance i, std::uint32_t p, std::int64_t excess, std::uint32_t low,
                std::uint32_t high) {
    const LiveSchedule& l = live();
    if (!l.owns_storage(i) || l.bytes(i) == 0 || l.first_slot(i) >= p || l.last_slot(i) <= p)
      return;
    if (!find_cone(i, p)) return;
    const auto bytes = static_cast<double>(std::min(gain_, excess));
    const double covered =
        static_cast<double>(std::min(high, cone_.at) - std::max(low, idle_from_) + 1) /
        static_cast<double>(high - low + 1);
    const double noise = 1 + noise_ * (2 * random_.uniform() - 1);
    candidates_.push_back(
        {i, cone_.ticks, bytes * covered * noise / static_cast<double>(cone_.ticks + free_ticks_)});
  }

  // Finds the nodes to recompute right before the storage's next use after p, so that the storage
  // can be evicted before p.
  bool find_cone(Instance storage, std::uint32_t p) {
    const LiveSchedule& l = live();
    gain_ = l.bytes(storage);
    idle_from_ = l.first_slot(storage);
    ++round_;
    ++work_;
    const bool idle = cone_.start(l, storage, p, [&](Instance i, std::uint32_t made) {
      idle_from_ = std::max(idle_from_, made);
      if (const std::uint32_t last = l.last_read(i, p); last != none)
        idle_from_ = std::max(idle_from_, last);
    });
    if (!idle || !cone_.close(rules_, [&](std::uint32_t t, std::uint32_t reader) {
          return serve(t, reader, storage, p);
        }))
      return false;
    if (gain_ <= 0) return false;
    take_off_what_moves();
    return true;
  }

  // An input of the cone exists anyway, is kept until the cone runs, or is recomputed as well.
  bool serve(std::uint32_t t, std::uint32_t reader, Instance dropped, std::uint32_t p) {
    ++work_;
    const LiveSchedule& l = live();
    const StepGraph& g = facts_.graph();
    if (const NodeId producer = g.values()[t].producer;
        producer.valid() && cone_.has(producer.index))
      return true;
    const Instance i = l.newest(t, cone_.at);
    const bool again = i == none || l.storage_of(i) == dropped || !l.exists(t, cone_.at) ||
                       facts_.overwrites(reader, t);
    if (again) {
      cone_.need(t);
      return true;
    }
    const Instance s = l.storage_of(i);
    if (l.bytes(s) == 0 || l.last_slot(s) >= cone_.at) return true;
    const bool over_p = l.last_slot(s) < p;
    const std::int64_t room = rules_.budget - l.most_live(l.last_slot(s) + 1, cone_.at);
    if (l.bytes(s) <= room) return true;
    const bool small =
        static_cast<double>(l.bytes(s)) * extend_ratio_ <= static_cast<double>(l.bytes(dropped));
    const NodeId producer = g.values()[t].producer;
    const bool possible = producer.valid() && may_repeat(producer.index);
    if (!small && possible) {
      cone_.need(t);
      return true;
    }
    if (over_p) gain_ -= l.bytes(s);
    return gain_ > 0;
  }

  // If only the cone reads a node's last run, that run moves instead of repeating, and costs no
  // time.
  void take_off_what_moves() {
    const LiveSchedule& l = live();
    for (std::size_t k = cone_.nodes.size(); k > 0; --k) {
      const std::uint32_t n = cone_.nodes[k - 1];
      const auto runs = l.occurrences(n);
      const auto it = std::partition_point(runs.begin(), runs.end(),
                                           [&](Occurrence x) { return l.slot(x) < cone_.at; });
      if (it == runs.begin()) continue;
      const Occurrence y = *(it - 1);
      if (rules_.keep_order && it - 1 == runs.begin()) continue;
      if (!serves_only_movers(y)) continue;
      movable_[n] = round_;
      cone_.ticks -= facts_.ticks(n);
    }
  }

  bool serves_only_movers(Occurrence y) const {
    const LiveSchedule& l = live();
    const std::size_t count = facts_.outputs(l.node(y)).size();
    if (count == 0) return false;
    for (std::size_t k = 0; k < count; ++k) {
      const Instance i = l.made_by(y, k);
      for (std::uint32_t r = l.next_read(i, 0); r != none && r < cone_.at;
           r = l.next_read(i, r + 1)) {
        const Occurrence reader = l.at(r);
        if (reader == l.end() || movable_[l.node(reader)] != round_) return false;
      }
    }
    return true;
  }

  // ---- edits ------------------------------------------------------------------------------------

  bool apply(const Candidate& c, Occurrence at, std::int64_t peak) {
    const LiveSchedule& l = live();
    if (!l.alive(at)) return false;
    const std::uint32_t p = l.slot(at);
    if (!l.owns_storage(c.storage) || l.first_slot(c.storage) >= p || l.last_slot(c.storage) <= p ||
        !find_cone(c.storage, p))
      return false;
    // earlier evictions of the same batch made it expensive
    if (cone_.ticks > 2 * c.ticks + free_ticks_) return false;
    const std::int64_t here = l.live_during(at);
    const std::size_t mark = s_.mark();
    s_.run_again(cone_.nodes, l.at(cone_.at), rules_.keep_order);
    if (l.valid() && lower_than(peak) && (!l.alive(at) || l.live_during(at) < here)) return true;
    s_.undo_to(mark);
    return false;
  }

  // New occurrences must stay below the peak that is being lowered. Otherwise two evictions could
  // undo each other forever.
  [[nodiscard]] bool lower_than(std::int64_t peak) const {
    for (Occurrence x : s_.run_again_last())
      if (live().alive(x) && live().live_during(x) >= peak) return false;
    return live().peak().count <= peak;
  }

  bool ruin_and_repair(std::int64_t now, double temperature) {
    const std::size_t mark = s_.mark();
    ruin();
    const bool repaired =
        live().valid() && repair(now + static_cast<std::int64_t>(temperature * 4) + 1);
    const auto worse = static_cast<double>(live().ticks() - now);
    if (repaired &&
        (worse <= 0 || (temperature > 0 && random_.uniform() < std::exp(-worse / temperature)))) {
      s_.commit();
      return true;
    }
    s_.undo_to(mark);
    return false;
  }

  // One recomputation, or a few that are close together.
  void ruin() {
    const std::size_t count = random_.below(2) != 0 ? 1 : 2 + random_.below(12);
    Occurrence near = none;
    for (std::size_t k = 0; k < count && !s_.repeated().empty(); ++k) {
      Occurrence x = none;
      if (near != none && live().alive(near)) x = neighbour(near);
      if (x == none) {
        const auto runs = live().occurrences(s_.repeated()[random_.below(s_.repeated().size())]);
        x = runs[1 + random_.below(runs.size() - 1)];
      }
      near = live().next(x);
      s_.take_out(x, rules_.keep_order);
      if (!live().valid()) return;
    }
  }

  // The next recomputation after x, if it is close.
  [[nodiscard]] Occurrence neighbour(Occurrence x) const {
    for (int steps = 0; steps < 24 && x != live().end(); ++steps, x = live().next(x))
      if (x > live().end() && !live().is_first(x)) return x;
    return none;
  }

  bool repair(std::int64_t most_ticks) {
    noise_ = 0.5;
    bool ok = true;
    // Few candidates make repairs differ, many candidates make them good: a mixture with mostly few
    // works best.
    constexpr std::size_t samples[] = {2, 2, 3, 3, 3, 4, 4, 8};
    const std::size_t sample = samples[random_.below(8)];
    for (int steps = 0; ok && !fits(); ++steps)
      ok = steps < 40 && !stopped() && lower_peak(sample) && live().ticks() <= most_ticks;
    noise_ = 0;
    return ok;
  }

  static constexpr std::size_t most_cone = 2000;

  std::int64_t gain_ = 0;        // bytes saved at the peak by the last cone
  std::uint32_t idle_from_ = 0;  // slot of the storage's last use before the peak
  // by node: round_, if its run moves instead of repeating
  std::vector<std::uint32_t> movable_;
  std::vector<Candidate> candidates_;
  std::uint32_t round_ = 0;
  std::uint64_t asked_ = 0, work_limit_ = ~std::uint64_t{0};
  std::int64_t free_ticks_ = 1;
  std::size_t batch_share_ = 32;  // evictions at once: the number of candidates divided by this
  double extend_ratio_ = 8;
  // random deviation of a candidate's score: 0.25 for a quarter up or down
  double noise_ = 0;
};

}  // namespace reprise::planning
