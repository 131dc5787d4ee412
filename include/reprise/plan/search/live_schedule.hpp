#pragma once
// A LiveSchedule can be edited while its peak stays known: insert or remove an occurrence, read the
// peak.
//
// ```cpp
// ScheduleFacts facts{graph};                // the toy graph of the plan format
// LiveSchedule s{facts, own_order(graph)};
// s.peak();                                  // 28740
// auto second_relu = s.insert(relu, s.occurrences(grad.index).front());  // relu again before grad
// auto second_norm = s.insert(norm, second_relu);        // … which needs norm recomputed
// s.peak();                                  // 20548, and s.valid()
// s.remove(second_norm);                     // and back
// ```
//
// It has four parts, each in a header of its own. OccurrenceOrder has the occurrences and their
// places. InstanceBook has what they make and read, UpdateOrder whether updates come in order, and
// LiveBytes the peak. An edit changes the storages whose lifetimes change, each in O(log n). The
// schedule may be invalid between two valid states: `valid()` counts broken rules instead of
// forbidding them.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/search/instance_book.hpp>
#include <reprise/plan/search/live_bytes.hpp>
#include <reprise/plan/search/occurrence_order.hpp>
#include <reprise/plan/search/schedule_facts.hpp>
#include <reprise/plan/search/update_order.hpp>

namespace reprise::planning {

class LiveSchedule {
 public:
  /// stays the same while other occurrences are inserted and removed
  using Occurrence = OccurrenceOrder::Occurrence;
  using Instance = InstanceBook::Instance;
  static constexpr std::uint32_t none = ScheduleFacts::none;

  LiveSchedule(const ScheduleFacts& facts, std::span<const NodeId> schedule)
      : facts_(facts),
        order_(facts.graph().node_count()),
        book_(facts, order_, live_),
        updates_(facts, order_),
        never_run_(facts.graph().node_count()) {
    build(schedule);
  }
  LiveSchedule(const LiveSchedule&) = delete;  // its parts refer to each other
  LiveSchedule& operator=(const LiveSchedule&) = delete;

  [[nodiscard]] const StepGraph& graph() const { return facts_.graph(); }
  [[nodiscard]] const ScheduleFacts& facts() const { return facts_; }

  /// Adds an occurrence of `n` right before `before`. Handles of removed occurrences may be used
  /// again.
  Occurrence insert(NodeId n, Occurrence before) {
    const std::uint32_t place = free_place(before);
    const Occurrence x = take(n.index);
    link(x, before, place);
    order_.settle(x);
    if (previous(x) == start()) move_unused_initial(before, x);
    live_.activate(place, workspace(x));
    book_.attach(x);
    count_run(x, true);
    book_.refresh_dirty();
    return x;
  }

  void remove(Occurrence x) {
    count_run(x, false);
    book_.detach(x);
    book_.refresh_dirty();
    live_.deactivate(slot(x), workspace(x));
    if (previous(x) == start()) move_unused_initial(x, next(x));
    ticks_ -= facts_.ticks(node(x));
    order_.unlink(x);
    order_.give_back(x);
  }

  [[nodiscard]] bool valid() const {
    return book_.broken() + updates_.broken() + never_run_ + runs_again_ == 0;
  }
  /// Exact if the schedule is valid.
  [[nodiscard]] Bytes peak() const { return {base() + std::max<std::int64_t>(tree().max(), 0)}; }
  [[nodiscard]] Occurrence peak_at() const {
    return at(static_cast<std::uint32_t>(tree().argmax()));
  }
  /// From now on, overload() is maintained: bytes above the limit, summed over all occurrences.
  void watch(std::int64_t limit) {
    live_.watch(limit - base());
    spread();
  }
  [[nodiscard]] std::int64_t overload() const { return live_.overload(); }
  /// Time in ticks: whole numbers, see ScheduleFacts::ticks_per_us().
  [[nodiscard]] std::int64_t ticks() const { return ticks_; }
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  /// Lifetimes changed so far: the cost of edits, in a unit that does not depend on the machine.
  [[nodiscard]] std::uint64_t changes() const { return live_.changes(); }

  [[nodiscard]] Occurrence start() const { return order_.start(); }
  [[nodiscard]] Occurrence end() const { return order_.end(); }
  [[nodiscard]] Occurrence next(Occurrence x) const { return order_.next(x); }
  [[nodiscard]] Occurrence previous(Occurrence x) const { return order_.previous(x); }
  [[nodiscard]] std::uint32_t slot(Occurrence x) const { return order_.slot(x); }
  [[nodiscard]] std::uint32_t node(Occurrence x) const { return order_.node(x); }
  [[nodiscard]] bool alive(Occurrence x) const { return order_.alive(x); }
  [[nodiscard]] std::span<const Occurrence> occurrences(std::uint32_t n) const {
    return order_.runs(n);
  }
  [[nodiscard]] bool is_first(Occurrence x) const { return occurrences(node(x)).front() == x; }
  [[nodiscard]] std::size_t pool_size() const { return order_.pool_size(); }
  /// The occurrence on a slot; none if the slot is free.
  [[nodiscard]] Occurrence at(std::uint32_t slot_number) const { return order_.at(slot_number); }

  [[nodiscard]] std::int64_t base() const { return graph().persistent_bytes().count; }
  /// Live bytes while the occurrence runs, persistent bytes included.
  [[nodiscard]] std::int64_t live_during(Occurrence x) const { return base() + tree().at(slot(x)); }
  /// The largest number of live bytes during the occurrences first .. last (slots).
  [[nodiscard]] std::int64_t most_live(std::uint32_t first, std::uint32_t last) const {
    return base() + tree().max(first, last);
  }

  /// Slots of the first and the last occurrence that exceed `limit`; the peak must exceed it.
  [[nodiscard]] std::uint32_t first_above(std::int64_t limit) const {
    return static_cast<std::uint32_t>(tree().first_above(limit - base()));
  }
  [[nodiscard]] std::uint32_t last_above(std::int64_t limit) const {
    return static_cast<std::uint32_t>(tree().last_above(limit - base()));
  }

  // Storages and instances, for strategies that choose what to evict: see InstanceBook.
  [[nodiscard]] std::size_t instance_count() const { return book_.instance_count(); }
  [[nodiscard]] bool owns_storage(Instance i) const { return book_.owns_storage(i); }
  [[nodiscard]] std::uint32_t first_slot(Instance storage) const {
    return book_.first_slot(storage);
  }
  [[nodiscard]] std::uint32_t last_slot(Instance storage) const { return book_.last_slot(storage); }
  [[nodiscard]] std::int64_t bytes(Instance storage) const { return book_.bytes(storage); }
  [[nodiscard]] Instance storage_of(Instance i) const { return book_.storage_of(i); }
  [[nodiscard]] std::uint32_t value_of(Instance i) const { return book_.value_of(i); }
  [[nodiscard]] Occurrence maker(Instance i) const { return book_.maker(i); }
  [[nodiscard]] Instance first_in_storage(Instance storage) const {
    return book_.first_in_storage(storage);
  }
  [[nodiscard]] Instance next_in_storage(Instance i) const { return book_.next_in_storage(i); }
  [[nodiscard]] Instance made_by(Occurrence x, std::size_t k) const { return book_.made_by(x, k); }
  [[nodiscard]] std::span<const Occurrence> readers(std::uint32_t v) const {
    return book_.readers(v);
  }
  [[nodiscard]] std::span<const Instance> makes(std::uint32_t v) const { return book_.makes(v); }
  [[nodiscard]] Instance newest(std::uint32_t v, std::uint32_t place) const {
    return book_.newest(v, place);
  }
  [[nodiscard]] bool exists(std::uint32_t v, std::uint32_t place) const {
    return book_.exists(v, place);
  }
  [[nodiscard]] std::uint32_t next_read(Instance i, std::uint32_t from) const {
    return book_.next_read(i, from);
  }
  [[nodiscard]] std::uint32_t last_read(Instance i, std::uint32_t until = none) const {
    return book_.last_read(i, until);
  }

  [[nodiscard]] Schedule schedule() const {
    Schedule result;
    result.reserve(size());
    for (Occurrence x = next(start()); x != end(); x = next(x)) result.push_back(NodeId{node(x)});
    return result;
  }

 private:
  [[nodiscard]] const PeakTree& tree() const { return live_.tree(); }
  [[nodiscard]] std::int64_t workspace(Occurrence x) const {
    return graph().nodes()[node(x)].workspace.count;
  }
  // Bytes that count while the occurrence runs and belong to no storage.
  [[nodiscard]] std::int64_t own_bytes(Occurrence x) const {
    return workspace(x) + (previous(x) == start() ? facts_.unused_initial_bytes() : 0);
  }

  // Occurrences are placed one after the other, and nothing is counted, until all are placed.
  void build(std::span<const NodeId> schedule) {
    order_.set_slot(end(), static_cast<std::uint32_t>(schedule.size() + 1));
    for (NodeId n : schedule) {
      const Occurrence x = take(n.index);
      link(x, end(), static_cast<std::uint32_t>(size() + 1));
      book_.attach(x);
      count_run(x, true);
    }
    book_.attach_end();
    book_.refresh_dirty();
    book_.count(true);
    spread();
  }

  Occurrence take(std::uint32_t n) {
    if (const Occurrence x = order_.take_spare(n); x != none) return x;
    return order_.make(n, book_.add(n, static_cast<Occurrence>(order_.pool_size())));
  }

  void link(Occurrence x, Occurrence before, std::uint32_t place) {
    order_.link(x, before);
    ticks_ += facts_.ticks(node(x));
    set_slot(x, place);
  }

  void set_slot(Occurrence x, std::uint32_t place) {
    order_.set_slot(x, place);
    book_.set_slot(x, place);
  }

  // ---- places -----------------------------------------------------------------------------------

  std::uint32_t free_place(Occurrence before) {
    for (;;) {
      if (const std::uint32_t place = order_.place_before(before); place != none) return place;
      const auto [first, last] = order_.roomy_around(slot(previous(before)));
      if (last == 0) spread();
      else spread(first, last);
    }
  }

  // Gives all occurrences new places, and computes the live bytes anew.
  void spread() {
    order_.spread();
    std::vector<std::int64_t> change(order_.places() + 1, 0);
    book_.add_all(change);
    std::int64_t live = 0;
    for (std::uint32_t p = 0; p < order_.places(); ++p) {
      live += change[p];
      const Occurrence x = at(p);
      const bool active = x != none && x > end();
      change[p] = live + (active ? workspace(x) : PeakTree::inactive);
    }
    change.pop_back();
    live_.assign(change);
    if (next(start()) != end())
      live_.add(slot(next(start())), slot(next(start())), facts_.unused_initial_bytes());
  }

  // The same for the places first .. last - 1 alone: storages that begin or end there are removed
  // from the tree and added again.
  void spread(std::uint32_t first, std::uint32_t last) {
    moved_.clear();
    for (std::uint32_t p = first; p < last; ++p)
      if (at(p) != none) moved_.push_back(at(p));
    book_.lift(moved_);
    for (Occurrence x : moved_) {
      live_.deactivate(slot(x), own_bytes(x));
      order_.lift(x);
    }
    const std::uint64_t step = (std::uint64_t{last - first} << 16) / (moved_.size() + 1);
    std::uint64_t place = (std::uint64_t{first} << 16) + step;
    for (Occurrence x : moved_) {
      set_slot(x, static_cast<std::uint32_t>(place >> 16));
      order_.settle(x);
      live_.activate(slot(x), own_bytes(x));
      place += step;
    }
    book_.settle_lifted();
  }

  // Initial values that are never used count during the first occurrence, whichever it is.
  void move_unused_initial(Occurrence from, Occurrence to) {
    const std::int64_t bytes = facts_.unused_initial_bytes();
    if (bytes == 0) return;
    if (from != end()) live_.add(slot(from), slot(from), -bytes);
    if (to != end()) live_.add(slot(to), slot(to), bytes);
  }

  // ---- runs -------------------------------------------------------------------------------------

  void count_run(Occurrence x, bool comes) {
    const std::uint32_t n = node(x);
    const auto first_of = [&] { return occurrences(n).empty() ? none : occurrences(n).front(); };
    const Occurrence first = first_of();
    if (comes) order_.add_run(x);
    else order_.remove_run(x);
    const std::size_t now = occurrences(n).size(), before = comes ? now - 1 : now + 1;
    if (now == 0) ++never_run_;
    if (before == 0) --never_run_;
    if (!graph().nodes()[n].recomputable) {
      const auto more = [](std::size_t count) { return count > 1 ? count - 1 : 0; };
      runs_again_ += more(now);
      runs_again_ -= more(before);
    }
    updates_.recount(n, first != first_of());
  }

  const ScheduleFacts& facts_;
  OccurrenceOrder order_;
  LiveBytes live_;
  InstanceBook book_;
  UpdateOrder updates_;
  std::vector<Occurrence> moved_;  // in spread()
  std::size_t never_run_ = 0, runs_again_ = 0;
  std::int64_t ticks_ = 0;
};

}  // namespace reprise::planning

namespace reprise {
using planning::LiveSchedule;
}  // namespace reprise
