#pragma once
// PenalisedSearch anneals through schedules that do not fit: bytes above the budget have a price,
// which rises until the schedule fits.
//
//   cost = time + price × overload            overload: bytes above the budget, summed over all occurrences (OverloadSum)
//
// Four kinds of moves, each a handful of edits on a LiveSchedule:
//   drop     recomputes a value that is idle at an overloaded place before its next use; its inputs are kept until then, or are
//            recomputed as well
//   take out a recomputation; its readers read the instance before it, which lives longer
//   twins    a drop or a removal in all repetitions of a block at once (RepeatedBlocks)
//   shift    an occurrence to another place between its inputs and its readers (first ones too, if the order is free)
//
// A cone that is too expensive as one move is built and removed in several moves, through states
// that do not fit. The price falls while the schedule fits and rises while it does not. The search
// therefore crosses the border repeatedly, and remembers the best schedule that fits.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <reprise/plan/search/repeated_blocks.hpp>
#include <reprise/plan/search/schedule_search.hpp>

namespace reprise::planning {

class PenalisedSearch final : public ScheduleSearch {
 public:
  PenalisedSearch(const ScheduleFacts& facts, std::span<const NodeId> schedule, SearchRules rules,
                  std::uint64_t seed)
      : ScheduleSearch(facts, schedule, std::move(rules), seed, most_cone), blocks_(facts.graph()) {
    s_.watch(rules_.budget);
    for (std::uint32_t n = 0; n < facts.graph().node_count(); ++n)
      total_ += static_cast<double>(facts.ticks(n));
  }

  [[nodiscard]] bool found() const { return !best_.empty(); }
  [[nodiscard]] const Schedule& best() const { return best_; }
  [[nodiscard]] std::uint64_t work() const { return (work_ + cone_.work()) / 4 + s_.edits(); }

  /// The price at which the overload of the graph's own order costs a tenth of the step's time: a
  /// low price, because it rises by itself.
  [[nodiscard]] static double first_price(const ScheduleFacts& facts, std::int64_t budget) {
    LiveSchedule own{facts, own_order(facts.graph())};
    own.watch(budget);
    return 0.1 * static_cast<double>(own.ticks()) /
           static_cast<double>(std::max<std::int64_t>(1, own.overload()));
  }

  /// Searches for this much work. `heat`: the first temperature, in mean node times; the last
  /// temperature is a hundredth of it.
  void run(std::uint64_t work_limit, double heat, double first_price) {
    const std::uint64_t begin = work();
    const double mean = total_ / static_cast<double>(facts_.graph().node_count());
    price_ = first_price;
    remember();
    while (work() < work_limit && !stopped()) {
      const double done =
          static_cast<double>(work() - begin) / static_cast<double>(work_limit - begin);
      temperature_ = heat * mean * std::pow(0.01, done);
      for (int k = 0; k < 32 && !stopped(); ++k) move();
      adapt_price();
    }
  }

 private:
  // Asked about once per millisecond, however much work a move is.
  bool stopped() {
    if (stopped_ || !rules_.stop || work() < ask_at_) return stopped_;
    ask_at_ = work() + 512;
    return stopped_ = rules_.stop();
  }

  void adapt_price() {
    if (live().overload() == 0) price_ /= 1.05;
    else price_ *= 1.05;
  }

  void remember() {
    if (live().overload() != 0 || !live().valid() || (found() && live().ticks() >= best_ticks_))
      return;
    best_ticks_ = live().ticks();
    best_ = live().schedule();
    work_ += best_.size() / 16;
  }

  [[nodiscard]] double cost() const {
    return static_cast<double>(live().ticks()) + price_ * static_cast<double>(live().overload());
  }

  void move() {
    const double before = cost();
    const std::size_t mark = s_.mark();
    ++work_;
    threshold_ = -temperature_ * std::log(random_.uniform() + 1e-300);
    const bool over = live().overload() > 0;
    const std::uint32_t kind = random_.below(16);
    const bool together = random_.below(64) == 0;
    bool done = false;
    if (together) done = kind < 8 ? drop_twins() : take_out_twins();
    else if (kind < (over ? 9u : 3u)) done = drop_somewhere();
    else if (kind < 13 && !s_.repeated().empty()) done = take_out_one();
    else done = shift_one();
    if (done && live().valid() && cost() - before <= threshold_) {
      s_.commit();
      remember();
      return;
    }
    s_.undo_to(mark);
  }

  // ---- drop -------------------------------------------------------------------------------------

  bool drop_somewhere() {
    const Occurrence at = live().overload() > 0 ? overloaded_place() : any_occurrence();
    if (at == none || at <= live().end()) return false;
    const std::uint32_t p = live().slot(at);
    for (int tries = 0; tries < 24; ++tries) {
      const Instance i =
          random_.below(2) != 0 ? random_.below(live().instance_count()) : read_after(at);
      if (i == none || !live().owns_storage(i)) continue;
      if (live().bytes(i) == 0 || live().first_slot(i) >= p || live().last_slot(i) <= p) continue;
      return drop(i, p);
    }
    return false;
  }

  // A storage with a read a little later.
  Instance read_after(Occurrence at) {
    std::uint64_t steps = random_() >> (32 + random_.below(31));
    steps %= 200;
    Occurrence y = at;
    for (; steps > 0 && y != live().end(); --steps) y = live().next(y);
    if (y == live().end()) return none;
    const auto reads = facts_.reads(live().node(y));
    if (reads.empty()) return none;
    const Instance i = live().newest(reads[random_.below(reads.size())], live().slot(y));
    return i == none ? none : live().storage_of(i);
  }

  Occurrence overloaded_place() {
    switch (random_.below(4)) {
      case 0: return live().at(live().first_above(rules_.budget));
      case 1: return live().at(live().last_above(rules_.budget));
      case 2: return live().peak_at();
      default: break;
    }
    const std::uint32_t low = live().first_above(rules_.budget),
                        high = live().last_above(rules_.budget);
    for (int tries = 0; tries < 16; ++tries) {
      const Occurrence x = live().at(low + random_.below(high - low + 1));
      if (x != none && live().live_during(x) > rules_.budget) return x;
    }
    return live().peak_at();
  }

  Occurrence any_occurrence() {
    for (int tries = 0; tries < 32; ++tries) {
      const Occurrence x = live().end() + 1 + random_.below(live().pool_size() - 2);
      if (live().alive(x)) return x;
    }
    return none;
  }

  bool drop(Instance storage, std::uint32_t p) {
    const LiveSchedule& l = live();
    constexpr double shares[] = {0, 0, 0, 0.1, 0.1, 0.3, 0.3, 1};
    again_ = shares[random_.below(8)];
    if (!cone_.start(l, storage, p, [](Instance, std::uint32_t) {})) return false;
    if (cone_.at != none && random_.below(4) == 0) cone_.at = earlier_place(p, cone_.at);
    if (!cone_.close(rules_, [&](std::uint32_t t, std::uint32_t reader) {
          return serve(t, reader, storage);
        }))
      return false;
    const double dear =
        static_cast<double>(cone_.ticks) - price_ * static_cast<double>(l.overload());
    if (rules_.keep_order && dear > threshold_) return false;
    s_.run_again(cone_.nodes, l.at(cone_.at), rules_.keep_order);
    return true;
  }

  // A place between p and the use where the recomputation has more headroom than right before the
  // use.
  std::uint32_t earlier_place(std::uint32_t p, std::uint32_t at) {
    std::uint32_t best = at;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int tries = 0; tries < 4 && at > p + 1; ++tries) {
      const Occurrence x = live().at(p + 1 + random_.below(at - p - 1));
      if (x == none || x <= live().end() || live().live_during(x) >= least) continue;
      least = live().live_during(x);
      best = live().slot(x);
    }
    return best;
  }

  // An input exists, is kept for the recomputation, or is recomputed as well.
  bool serve(std::uint32_t t, std::uint32_t reader, Instance dropped) {
    const LiveSchedule& l = live();
    const std::uint32_t at = cone_.at;
    const Instance i = l.newest(t, at);
    const bool gone =
        i == none || l.storage_of(i) == dropped || !l.exists(t, at) || facts_.overwrites(reader, t);
    if (gone) return cone_.need(t), true;
    const Instance s = l.storage_of(i);
    if (l.bytes(s) == 0 || l.last_slot(s) >= at) return true;
    const NodeId producer = facts_.graph().values()[t].producer;
    if (!producer.valid() || !may_repeat(producer.index)) return true;
    if (l.most_live(l.last_slot(s) + 1, at) + l.bytes(s) <= rules_.budget) return true;
    if (random_.uniform() < again_) cone_.need(t);
    return true;
  }

  // ---- take out ---------------------------------------------------------------------------------

  bool take_out_one() {
    const auto runs = live().occurrences(s_.repeated()[random_.below(s_.repeated().size())]);
    const std::size_t first = rules_.keep_order ? 1 : 0;
    s_.take_out(runs[first + random_.below(runs.size() - first)], rules_.keep_order);
    return true;
  }

  // ---- twins ------------------------------------------------------------------------------------

  // Takes a read far from its value's producer, and the same read in every repetition of the block.
  // Each read gets a recomputation of its own.
  bool drop_twins() {
    const Occurrence y = any_occurrence();
    if (y == none || facts_.reads(live().node(y)).empty()) return false;
    const auto reads = facts_.reads(live().node(y));
    const std::uint32_t v = reads[random_.below(reads.size())];
    const NodeId maker = facts_.graph().values()[v].producer;
    if (!maker.valid() || blocks_.twins(maker.index).size() < 2) return false;
    bool done = false;
    for (std::uint32_t t = 0; t < blocks_.twins(maker.index).size(); ++t) {
      const std::uint32_t reader = blocks_.counterpart(maker.index, live().node(y), t);
      if (reader != none) done = run_before(blocks_.twins(maker.index)[t], reader) || done;
    }
    return done;
  }

  // Recomputes n before the first occurrence of its reader, if other nodes ran between them.
  bool run_before(std::uint32_t n, std::uint32_t reader) {
    const Occurrence y =
        live().occurrences(reader).empty() ? none : live().occurrences(reader).front();
    if (y == none || !may_repeat(n)) return false;
    for (std::uint32_t v : facts_.reads(reader)) {
      const Instance i = live().newest(v, live().slot(y));
      if (i == none || facts_.graph().values()[v].producer != NodeId{n}) continue;
      const std::uint32_t used = live().last_read(i, live().slot(y)),
                          made = live().slot(live().maker(i));
      if (live().at(used == none ? made : used) == live().previous(y)) return false;
      s_.insert(n, y);
      return true;
    }
    return false;
  }

  bool take_out_twins() {
    if (s_.repeated().empty()) return false;
    const std::uint32_t n = s_.repeated()[random_.below(s_.repeated().size())];
    if (blocks_.twins(n).size() < 2) return false;
    for (std::uint32_t twin : blocks_.twins(n))
      if (const auto runs = live().occurrences(twin); runs.size() > 1)
        s_.take_out(runs.back(), rules_.keep_order);
    return true;
  }

  // ---- shift ------------------------------------------------------------------------------------

  bool shift_one() {
    Occurrence x = none;
    if (rules_.keep_order) {
      if (s_.repeated().empty()) return false;
      const auto runs = live().occurrences(s_.repeated()[random_.below(s_.repeated().size())]);
      x = runs[1 + random_.below(runs.size() - 1)];
    } else {
      x = any_occurrence();
      if (x == none) return false;
    }
    std::uint32_t low = 0, high = live().slot(live().end());
    const std::uint32_t n = live().node(x), here = live().slot(x);
    for (std::uint32_t v : facts_.reads(n))
      if (const Instance i = live().newest(v, here); i != none)
        low = std::max(low, live().slot(live().maker(i)));
    if (const auto runs = live().occurrences(n); runs.front() != x)
      low = std::max(low, live().slot(runs.front()));
    for (std::size_t k = 0; k < facts_.outputs(n).size(); ++k) {
      const Instance i = live().made_by(x, k);
      if (const std::uint32_t r = live().next_read(i, 0); r != none) high = std::min(high, r);
    }
    if (high <= low + 1) return false;
    Occurrence before = none;
    switch (random_.below(4)) {
      case 0: before = live().at(high); break;
      case 1: before = live().next(live().at(low)); break;
      default:
        for (int tries = 0; tries < 16 && before == none; ++tries)
          before = live().at(low + 1 + random_.below(high - low));
    }
    if (before == none || before == x || before == live().next(x)) return false;
    s_.remove(x);
    s_.insert(n, before);
    return true;
  }

  static constexpr std::size_t most_cone = 40;

  RepeatedBlocks blocks_;
  double again_ = 0, threshold_ = 0;
  double price_ = 1, total_ = 0, temperature_ = 0;
  Schedule best_;
  std::int64_t best_ticks_ = 0;
};

}  // namespace reprise::planning
