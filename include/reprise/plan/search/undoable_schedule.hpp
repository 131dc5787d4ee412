#pragma once
// An UndoableSchedule is a LiveSchedule whose edits can be undone. The header also has the rules
// and random numbers of the searches.
//
//   const std::size_t mark = s.mark();
//   s.take_out(x, keep_order);                 removes x, and recomputations for x alone
//   if (!s.live().valid()) s.undo_to(mark);    restores the former state, handles included

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <reprise/plan/search/live_schedule.hpp>

namespace reprise::planning {

/// splitmix64: small, fast, and the same on every platform.
class SearchRandom {
 public:
  explicit SearchRandom(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint32_t below(std::size_t n) { return static_cast<std::uint32_t>((*this)() % n); }
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// A LiveSchedule whose edits can be undone.
class UndoableSchedule {
 public:
  using Occurrence = LiveSchedule::Occurrence;

  UndoableSchedule(const ScheduleFacts& facts, std::span<const NodeId> schedule) {
    restart(facts, schedule);
  }

  /// Begins with another schedule.
  void restart(const ScheduleFacts& facts, std::span<const NodeId> schedule) {
    live_.emplace(facts, schedule);
    log_.clear();
    repeated_.clear();
    place_.assign(facts.graph().node_count(), none);
    for (std::uint32_t n = 0; n < place_.size(); ++n) note_repeats(n);
  }

  [[nodiscard]] const LiveSchedule& live() const { return *live_; }
  /// Nodes that run more than once.
  [[nodiscard]] std::span<const std::uint32_t> repeated() const { return repeated_; }

  Occurrence insert(std::uint32_t n, Occurrence before) {
    const Occurrence x = live_->insert(NodeId{n}, before);
    log_.push_back({x, n, before, true});
    note_repeats(n);
    return x;
  }

  void remove(Occurrence x) {
    const std::uint32_t n = live_->node(x);
    log_.push_back({x, n, live_->next(x), false});
    live_->remove(x);
    note_repeats(n);
  }

  /// See LiveSchedule::watch.
  void watch(std::int64_t limit) { live_->watch(limit); }

  /// Whether the node has another occurrence and this occurrence's results have no reader.
  [[nodiscard]] bool is_dead(Occurrence x, bool keep_first) const {
    const std::uint32_t n = live_->node(x);
    if (live_->occurrences(n).size() < 2 || (keep_first && live_->is_first(x))) return false;
    const std::size_t count = live_->facts().outputs(n).size();
    for (std::size_t k = 0; k < count; ++k)
      if (live_->next_read(live_->made_by(x, k), 0) != none) return false;
    return true;
  }

  /// Removes a dead occurrence, and recomputations for it alone.
  void remove_if_dead(Occurrence x, bool keep_first) {
    if (x <= live_->end() || !live_->alive(x) || !is_dead(x, keep_first)) return;
    const std::vector<Occurrence> makers = makers_of(x);
    const std::size_t before = mark();
    const bool was_valid = live_->valid();
    remove(x);
    if (was_valid && !live_->valid()) return undo_to(before);
    for (Occurrence y : makers) remove_if_dead(y, keep_first);
  }

  /// Removes an occurrence with or without readers, and recomputations for it alone.
  void take_out(Occurrence x, bool keep_first) {
    const std::vector<Occurrence> makers = makers_of(x);
    remove(x);
    for (Occurrence y : makers) remove_if_dead(y, keep_first);
  }

  /// Runs the nodes once more, in this order, right before `before`. Removes earlier occurrences
  /// whose results then have no reader. run_again_last() has the new occurrences until the next
  /// call.
  void run_again(std::span<const std::uint32_t> nodes, Occurrence before, bool keep_first) {
    run_again_.clear();
    for (std::uint32_t n : nodes) run_again_.push_back(insert(n, before));
    for (std::size_t k = nodes.size(); k > 0; --k) {
      const auto runs = live_->occurrences(nodes[k - 1]);
      const auto it = std::find(runs.begin(), runs.end(), run_again_[k - 1]);
      if (it != runs.begin() && it != runs.end()) remove_if_dead(*(it - 1), keep_first);
    }
  }
  [[nodiscard]] std::span<const Occurrence> run_again_last() const { return run_again_; }

  /// The cost of all edits so far, undone ones included: the unit of limits. An edit of a node with
  /// few reads and results costs about 1.
  [[nodiscard]] std::uint64_t edits() const { return live_->changes() / 4; }

  [[nodiscard]] std::size_t mark() const { return log_.size(); }
  void commit() { log_.clear(); }

  void undo_to(std::size_t mark) {
    for (; log_.size() > mark; log_.pop_back()) {
      const Edit e = log_.back();
      if (e.inserted) live_->remove(e.occurrence);
      // gets its old handle, because free handles are used last in, first out
      else live_->insert(NodeId{e.node}, e.before);
      note_repeats(e.node);
    }
  }

 private:
  static constexpr std::uint32_t none = LiveSchedule::none;
  struct Edit {
    Occurrence occurrence;
    std::uint32_t node;
    Occurrence before;
    bool inserted;
  };

  [[nodiscard]] std::vector<Occurrence> makers_of(Occurrence x) const {
    std::vector<Occurrence> makers;
    for (std::uint32_t v : live_->facts().reads(live_->node(x)))
      if (const LiveSchedule::Instance i = live_->newest(v, live_->slot(x)); i != none)
        makers.push_back(live_->maker(i));
    return makers;
  }

  void note_repeats(std::uint32_t n) {
    const bool repeats = live_->occurrences(n).size() > 1;
    if (repeats == (place_[n] != none)) return;
    if (repeats) {
      place_[n] = static_cast<std::uint32_t>(repeated_.size());
      repeated_.push_back(n);
      return;
    }
    const std::uint32_t moved = repeated_.back();
    repeated_[place_[n]] = moved;
    place_[moved] = place_[n];
    repeated_.pop_back();
    place_[n] = none;
  }

  std::optional<LiveSchedule> live_;
  std::vector<Edit> log_;
  std::vector<std::uint32_t> repeated_, place_;
  std::vector<Occurrence> run_again_;
};

struct SearchRules {
  std::int64_t budget = 0;
  bool keep_order = false;
  std::vector<bool> keep{};      ///< by node: never recomputed; empty for none
  std::function<bool()> stop{};  ///< called from time to time; empty for never

  [[nodiscard]] bool may_repeat(const StepGraph& graph, std::uint32_t n) const {
    return graph.nodes()[n].recomputable && (keep.empty() || !keep[n]);
  }
};

}  // namespace reprise::planning
