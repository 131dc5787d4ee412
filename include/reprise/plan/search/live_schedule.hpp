#pragma once
// A schedule that can be edited while its peak stays known: insert or remove an occurrence, read the peak.
//
//   LiveSchedule s{graph, own_order(graph)};
//   s.peak();                                  28740 for the toy graph of the plan format
//   auto relu = s.insert(NodeId{1}, grad);     run relu again right before grad: ...
//   auto norm = s.insert(NodeId{0}, relu);     ... which needs norm again, since relu works in place
//   s.valid(), s.peak();                       true, 20548
//   s.remove(norm);                            and back
//
// Occurrences stand on numbered places with gaps between them; a PeakTree over the places holds the live bytes. An edit touches
// the storages whose lifetimes change, each in O(log n). Where a gap is used up, the surroundings are spread anew.
//
// For each value two lists are kept in running order: the instances that were made and the occurrences that read it. Which
// instance a read means, how long a storage lives and what was overwritten under a reader all follow from the two. An edit may
// leave the schedule invalid on the way to another valid one: `valid()` counts what is broken instead of forbidding it.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/search/overload_sum.hpp>
#include <reprise/plan/search/peak_tree.hpp>
#include <reprise/plan/search/schedule_facts.hpp>

namespace reprise {

class LiveSchedule {
 public:
  using Occurrence = std::uint32_t;  ///< stays the same while other occurrences come and go
  using Instance = std::uint32_t;    ///< one output of one occurrence; a storage is named by the instance that owns its bytes
  static constexpr std::uint32_t none = ScheduleFacts::none;

  LiveSchedule(const ScheduleFacts& facts, std::span<const NodeId> schedule) : facts_(&facts) {
    const StepGraph& g = graph();
    makes_.resize(g.value_count());
    reads_.resize(g.value_count());
    missing_.assign(g.value_count(), 0);
    occurrences_of_.resize(g.node_count());
    spare_.resize(g.node_count());
    update_broken_.assign(facts.all_updates().size(), 0);
    never_run_ = g.node_count();
    build(schedule);
  }

  [[nodiscard]] const StepGraph& graph() const { return facts_->graph(); }
  [[nodiscard]] const ScheduleFacts& facts() const { return *facts_; }

  /// Runs `n` once more, right before `before`. Occurrences that were removed may be handed out again.
  Occurrence insert(NodeId n, Occurrence before) {
    const std::uint32_t slot = free_slot(before);
    const Occurrence x = take(n.index);
    link(x, before, slot);
    activate(slot, workspace(x));
    attach(x);
    refresh_dirty();
    return x;
  }

  void remove(Occurrence x) {
    detach(x);
    refresh_dirty();
    deactivate(occurrences_[x].slot, workspace(x));
    unlink(x);
    spare_[occurrences_[x].node].push_back(x);
  }

  [[nodiscard]] bool valid() const { return broken_ == 0 && never_run_ == 0 && runs_again_ == 0; }
  /// Exact where valid.
  [[nodiscard]] Bytes peak() const { return {base() + std::max<std::int64_t>(tree_.max(), 0)}; }
  [[nodiscard]] Occurrence peak_at() const { return at_slot_[tree_.argmax()]; }
  /// From now on overload() is kept: bytes above the limit, summed over all occurrences.
  void watch(std::int64_t limit) {
    watching_ = true;
    limit_ = limit - base();
    spread();
  }
  [[nodiscard]] std::int64_t overload() const { return overload_.sum(); }
  /// Time in ticks: whole numbers, see ScheduleFacts::ticks_per_us().
  [[nodiscard]] std::int64_t ticks() const { return ticks_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Lifetimes changed so far: what edits have cost, in a unit that does not depend on the machine.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  [[nodiscard]] Occurrence start() const { return 0; }
  [[nodiscard]] Occurrence end() const { return 1; }
  [[nodiscard]] Occurrence next(Occurrence x) const { return occurrences_[x].next; }
  [[nodiscard]] Occurrence previous(Occurrence x) const { return occurrences_[x].previous; }
  [[nodiscard]] std::uint32_t slot(Occurrence x) const { return occurrences_[x].slot; }
  [[nodiscard]] std::uint32_t node(Occurrence x) const { return occurrences_[x].node; }
  [[nodiscard]] bool alive(Occurrence x) const { return occurrences_[x].alive; }
  [[nodiscard]] bool comes_before(Occurrence a, Occurrence b) const { return slot(a) < slot(b); }
  [[nodiscard]] std::span<const Occurrence> occurrences(std::uint32_t n) const { return occurrences_of_[n]; }
  [[nodiscard]] bool is_first(Occurrence x) const { return occurrences_of_[node(x)].front() == x; }
  [[nodiscard]] std::size_t pool_size() const { return occurrences_.size(); }

  [[nodiscard]] std::int64_t base() const { return graph().persistent_bytes().count; }
  /// Bytes live while the occurrence runs, persistent ones included.
  [[nodiscard]] std::int64_t live_during(Occurrence x) const { return base() + tree_.at(slot(x)); }
  /// The most that is live while any occurrence in first .. last (slots) runs.
  [[nodiscard]] std::int64_t most_live(std::uint32_t first, std::uint32_t last) const { return base() + tree_.max(first, last); }

  /// Slots of the first and the last occurrence that need more than `limit`; the peak must be above it.
  [[nodiscard]] std::uint32_t first_above(std::int64_t limit) const {
    return static_cast<std::uint32_t>(tree_.first_above(limit - base()));
  }
  [[nodiscard]] std::uint32_t last_above(std::int64_t limit) const {
    return static_cast<std::uint32_t>(tree_.last_above(limit - base()));
  }

  // Storages and instances, for strategies that reason about what to drop.
  [[nodiscard]] std::size_t instance_count() const { return instances_.size(); }
  [[nodiscard]] bool owns_storage(Instance i) const { return instances_[i].storage == i && instances_[i].alive; }
  [[nodiscard]] std::uint32_t first_slot(Instance storage) const { return instances_[storage].first; }
  [[nodiscard]] std::uint32_t last_slot(Instance storage) const { return instances_[storage].last; }
  [[nodiscard]] std::int64_t bytes(Instance storage) const { return instances_[storage].bytes; }
  [[nodiscard]] Instance storage_of(Instance i) const { return instances_[i].storage; }
  [[nodiscard]] std::uint32_t value_of(Instance i) const { return instances_[i].value; }
  [[nodiscard]] Occurrence maker(Instance i) const { return instances_[i].occurrence; }
  [[nodiscard]] Instance first_in_storage(Instance storage) const { return instances_[storage].head; }
  [[nodiscard]] Instance next_in_storage(Instance i) const { return instances_[i].next; }
  /// The instance k of an occurrence's outputs, in the order of ScheduleFacts::outputs.
  [[nodiscard]] Instance made_by(Occurrence x, std::size_t k) const { return occurrences_[x].instances + static_cast<std::uint32_t>(k); }
  [[nodiscard]] std::span<const Occurrence> readers(std::uint32_t v) const { return reads_[v]; }
  [[nodiscard]] std::span<const Instance> makes(std::uint32_t v) const { return makes_[v]; }

  /// The newest instance of the value that a read at `slot` would see, whether or not it has been overwritten; none where
  /// there is none.
  [[nodiscard]] Instance newest(std::uint32_t v, std::uint32_t at) const {
    const auto& list = makes_[v];
    const auto it = std::partition_point(list.begin(), list.end(), [&](Instance i) { return instances_[i].slot < at; });
    return it == list.begin() ? none : *(it - 1);
  }

  /// Whether the value could be read at `slot`.
  [[nodiscard]] bool exists(std::uint32_t v, std::uint32_t at) const {
    const Instance i = newest(v, at);
    return i != none && instances_[i].storage != none && kill_slot(i) >= at;
  }

  /// The slot of the first read of this instance at or after `from`; none where there is none.
  [[nodiscard]] std::uint32_t next_read(Instance i, std::uint32_t from) const {
    const std::uint32_t until = next_make(i);
    const auto& list = reads_[instances_[i].value];
    const auto it = lower(list, std::max(from, instances_[i].slot + 1));
    return it != list.end() && slot(*it) < until ? slot(*it) : none;
  }
  /// The slot of the last read of this instance before `until`; none where there is none.
  [[nodiscard]] std::uint32_t last_read(Instance i, std::uint32_t until = none) const {
    until = std::min(until, next_make(i));
    const auto& list = reads_[instances_[i].value];
    const auto it = lower(list, until);
    return it != list.begin() && slot(*(it - 1)) > instances_[i].slot ? slot(*(it - 1)) : none;
  }
  /// The occurrence that stands on a slot; none where it is free.
  [[nodiscard]] Occurrence at(std::uint32_t slot_number) const { return at_slot_[slot_number]; }

  [[nodiscard]] Schedule schedule() const {
    Schedule result;
    result.reserve(size_);
    for (Occurrence x = next(start()); x != end(); x = next(x)) result.push_back(NodeId{node(x)});
    return result;
  }

 private:
  struct Occ {
    std::uint32_t node = none;
    std::uint32_t slot = 0;
    Occurrence previous = none, next = none;
    Instance instances = none;  // of its outputs, one after the other
    bool alive = false;
  };
  struct Inst {
    std::uint32_t value = none;
    Occurrence occurrence = none;
    std::uint32_t slot = 0;       // of the occurrence, close at hand
    Instance storage = none;
    Instance previous = none, next = none;  // in the same storage
    bool alive = false;
    bool overwrites = false;
    bool published = true;
    bool persistent = false;
    // Of a storage, kept with the instance that owns it:
    bool dirty = false;
    bool counted = false;         // its lifetime is in the tree
    Instance head = none;
    std::uint32_t first = 0, last = 0;
    std::uint32_t overwriters = 0;
    std::uint32_t broken = 0;
    std::int64_t bytes = 0;
  };

  static constexpr std::uint32_t gap = 4;  // places for each occurrence: at least so many, up to twice as many

  [[nodiscard]] std::int64_t workspace(Occurrence x) const {
    return graph().nodes()[occurrences_[x].node].workspace.count;
  }

  // The first in the list at or after a place.
  [[nodiscard]] std::vector<Occurrence>::const_iterator lower(const std::vector<Occurrence>& list, std::uint32_t place) const {
    return std::lower_bound(list.begin(), list.end(), place, [&](Occurrence x, std::uint32_t s) { return occurrences_[x].slot < s; });
  }

  // ---- places -------------------------------------------------------------------------------------------------------------

  void build(std::span<const NodeId> schedule) {
    occurrences_.resize(2);
    occurrences_[0] = {none, 0, none, 1, none, true};
    occurrences_[1] = {none, 0, 0, none, none, true};
    place_what_is_there();
    bulk_ = true;
    slots_ = 2;
    occurrences_[1].slot = static_cast<std::uint32_t>(schedule.size() + 1);
    for (NodeId n : schedule) {
      const Occurrence x = take(n.index);
      link(x, 1, static_cast<std::uint32_t>(size_ + 1));
      attach(x);
    }
    attach_end();
    refresh_dirty();
    bulk_ = false;
    spread();
  }

  void add_live(std::size_t first, std::size_t last, std::int64_t bytes) {
    ++changes_;
    tree_.add(first, last, bytes);
    if (watching_) overload_.add(first, last, bytes);
  }
  void activate(std::uint32_t place, std::int64_t own) {
    ++changes_;
    tree_.activate(place, own);
    if (watching_) overload_.activate(place, tree_.at(place));
  }
  void deactivate(std::uint32_t place, std::int64_t own) {
    tree_.deactivate(place, own);
    if (watching_) overload_.deactivate(place);
  }

  // Gives every occurrence a place with the same gap to the next one, and fills the tree anew.
  void spread() {
    slots_ = std::bit_ceil(static_cast<std::uint32_t>(size_ + 2) * gap);
    const std::uint64_t step = (std::uint64_t{slots_ - 1} << 16) / (size_ + 1);
    std::uint64_t place = 0;
    at_slot_.assign(slots_, none);
    for (Occurrence x = start(); x != none; x = next(x), place += step) {
      occurrences_[x].slot = x == end() ? slots_ - 1 : static_cast<std::uint32_t>(place >> 16);
      at_slot_[occurrences_[x].slot] = x;
    }
    for (Inst& i : instances_)
      if (i.alive) i.slot = occurrences_[i.occurrence].slot;
    tree_.reset(slots_);
    std::vector<std::int64_t> change(slots_ + 1, 0);
    for (Instance s = 0; s < instances_.size(); ++s) {
      Inst& i = instances_[s];
      if (!i.alive || i.storage != s || i.persistent) continue;
      measure(s);
      change[i.first] += i.bytes;
      change[i.last + 1] -= i.bytes;
    }
    std::int64_t live = 0;
    for (std::uint32_t p = 0; p < slots_; ++p) {
      live += change[p];
      const Occurrence x = at_slot_[p];
      const bool active = x != none && x > end();
      change[p] = live + (active ? workspace(x) : PeakTree::inactive);
    }
    change.pop_back();
    tree_.assign(change);
    if (watching_) overload_.assign(change, limit_);
    if (next(start()) != end()) add_live(slot(next(start())), slot(next(start())), facts_->unused_initial_bytes());
  }

  std::uint32_t free_slot(Occurrence before) {
    for (;;) {
      const std::uint32_t low = slot(previous(before)), high = slot(before);
      if (high - low > 1) return low + (high - low) / 2;
      make_room(low);
    }
  }

  // Spreads the smallest surroundings of a place that are not crowded; all, with more places, where everything is.
  void make_room(std::uint32_t around) {
    std::uint32_t width = 32;
    for (double crowded = 0.35; width < slots_; width *= 2, crowded *= 0.96) {
      const std::uint32_t low = around / width * width;
      std::uint32_t count = 0;
      for (std::uint32_t p = low; p < low + width; ++p) count += at_slot_[p] != none ? 1u : 0u;
      if (count <= static_cast<std::uint32_t>(crowded * width)) return spread(std::max(low, 1u), std::min(low + width, slots_ - 1));
    }
    spread();
  }

  // The same for the places first .. last - 1 alone: storages that begin or end there are taken out of the tree and put back.
  void spread(std::uint32_t first, std::uint32_t last) {
    moved_.clear();
    moved_storages_.clear();
    for (std::uint32_t p = first; p < last; ++p)
      if (at_slot_[p] != none) moved_.push_back(at_slot_[p]);
    for (Occurrence x : moved_) collect_storages(x);
    for (Instance s : moved_storages_)
      if (instances_[s].counted) add_live(instances_[s].first, instances_[s].last, -instances_[s].bytes);
    for (Occurrence x : moved_) {
      deactivate(slot(x), own_bytes(x));
      at_slot_[slot(x)] = none;
    }
    const std::uint64_t step = (std::uint64_t{last - first} << 16) / (moved_.size() + 1);
    std::uint64_t place = (std::uint64_t{first} << 16) + step;
    for (Occurrence x : moved_) {
      set_slot(x, static_cast<std::uint32_t>(place >> 16));
      at_slot_[slot(x)] = x;
      activate(slot(x), own_bytes(x));
      place += step;
    }
    for (Instance s : moved_storages_) {
      measure(s);
      instances_[s].dirty = false;
      if (instances_[s].counted) add_live(instances_[s].first, instances_[s].last, instances_[s].bytes);
    }
  }

  void collect_storages(Occurrence x) {
    const auto collect = [&](Instance i) {
      const Instance s = i == none ? none : instances_[i].storage;
      if (s == none || instances_[s].persistent || instances_[s].dirty) return;
      instances_[s].dirty = true;
      moved_storages_.push_back(s);
    };
    for (std::uint32_t v : facts_->reads(node(x))) collect(newest(v, slot(x)));
    for (std::size_t k = 0; k < facts_->outputs(node(x)).size(); ++k) collect(made_by(x, k));
  }

  void set_slot(Occurrence x, std::uint32_t place) {
    occurrences_[x].slot = place;
    for (std::size_t k = 0; k < facts_->outputs(node(x)).size(); ++k) instances_[made_by(x, k)].slot = place;
  }

  // What counts while the occurrence runs and is no storage's.
  [[nodiscard]] std::int64_t own_bytes(Occurrence x) const {
    return workspace(x) + (previous(x) == start() ? facts_->unused_initial_bytes() : 0);
  }

  Occurrence take(std::uint32_t n) {
    auto& spare = spare_[n];
    if (!spare.empty()) {
      const Occurrence x = spare.back();
      spare.pop_back();
      return x;
    }
    const auto x = static_cast<Occurrence>(occurrences_.size());
    const auto outputs = facts_->outputs(n);
    occurrences_.push_back({n, 0, none, none, static_cast<Instance>(instances_.size()), false});
    for (const auto& o : outputs) {
      Inst i;
      i.value = o.value;
      i.occurrence = x;
      i.overwrites = o.overwrites;
      i.published = o.published;
      i.bytes = graph().values()[o.value].bytes.count;
      instances_.push_back(i);
    }
    return x;
  }

  void link(Occurrence x, Occurrence before, std::uint32_t place) {
    Occ& o = occurrences_[x];
    o.alive = true;
    o.next = before;
    o.previous = occurrences_[before].previous;
    occurrences_[o.previous].next = x;
    occurrences_[before].previous = x;
    ++size_;
    ticks_ += facts_->ticks(o.node);
    set_slot(x, place);
    if (bulk_) return;
    at_slot_[place] = x;
    if (o.previous == start()) move_unused_initial(before, x);
  }

  void unlink(Occurrence x) {
    Occ& o = occurrences_[x];
    if (o.previous == start()) move_unused_initial(x, o.next);
    occurrences_[o.previous].next = o.next;
    occurrences_[o.next].previous = o.previous;
    at_slot_[o.slot] = none;
    o.alive = false;
    --size_;
    ticks_ -= facts_->ticks(o.node);
  }

  // What is there at the start and never used counts while the first occurrence runs, whichever that is.
  void move_unused_initial(Occurrence from, Occurrence to) {
    const std::int64_t bytes = facts_->unused_initial_bytes();
    if (bytes == 0) return;
    if (from != end()) add_live(slot(from), slot(from), -bytes);
    if (to != end()) add_live(slot(to), slot(to), bytes);
  }

  // ---- instances ----------------------------------------------------------------------------------------------------------

  void place_what_is_there() {
    const StepGraph& g = graph();
    std::vector<Instance> owner(g.storage_count(), none);
    for (std::size_t s = 0; s < g.storage_count(); ++s) {
      const Storage& storage = g.storages()[s];
      if (storage.persistent || g.value(storage.owner).initial) owner[s] = there(storage.owner, none);
    }
    there_ = owner;
    for (std::size_t v = 0; v < g.value_count(); ++v) {
      const Value& value = g.values()[v];
      if (value.persistent && !value.owns()) there(ValueId{v}, owner[value.storage.index]);
    }
  }

  Instance there(ValueId v, Instance storage) {
    const auto i = static_cast<Instance>(instances_.size());
    const Value& value = graph().value(v);
    Inst inst;
    inst.value = v.index;
    inst.occurrence = start();
    inst.alive = true;
    inst.persistent = value.persistent;
    inst.bytes = value.persistent ? 0 : value.bytes.count;
    instances_.push_back(inst);
    if (storage == none) own(i);
    else join(i, storage);
    if (facts_->tracked(v)) makes_[v.index].push_back(i);
    return i;
  }

  void own(Instance i) {
    Inst& x = instances_[i];
    x.head = none;
    x.overwriters = 0;
    x.broken = 0;
    x.counted = false;
    x.first = x.last = x.slot;
    join(i, i);
  }

  // A persistent storage that nobody overwrites has nothing to keep track of, however many views it has.
  [[nodiscard]] bool light(const Inst& s) const {
    return s.persistent && !facts_->is_overwritten(graph().values()[s.value].storage.index);
  }

  void join(Instance i, Instance storage) {
    Inst& x = instances_[i];
    Inst& s = instances_[storage];
    x.storage = storage;
    if (light(s)) return;
    x.previous = none;
    x.next = s.head;
    if (s.head != none) instances_[s.head].previous = i;
    s.head = i;
    if (x.overwrites) ++s.overwriters;
    touch(storage);
  }

  void leave(Instance i) {
    Inst& x = instances_[i];
    if (x.storage == none) return;
    Inst& s = instances_[x.storage];
    if (light(s)) {
      x.storage = none;
      return;
    }
    if (x.previous != none) instances_[x.previous].next = x.next;
    else s.head = x.next;
    if (x.next != none) instances_[x.next].previous = x.previous;
    if (x.overwrites) --s.overwriters;
    touch(x.storage);
    x.storage = none;
  }

  void touch(Instance storage) {
    Inst& s = instances_[storage];
    if (s.dirty || light(s)) return;
    s.dirty = true;
    dirty_.push_back(storage);
  }

  void touch_storage_of(Instance i) {
    if (i != none && instances_[i].storage != none) touch(instances_[i].storage);
  }

  void attach(Occurrence x) {
    const std::uint32_t n = occurrences_[x].node, place = slot(x);
    for (std::uint32_t v : facts_->reads(n)) {
      auto& list = reads_[v];
      list.insert(lower(list, place), x);
      note_missing(v);
      touch_storage_of(newest(v, place));
    }
    Instance i = occurrences_[x].instances;
    for (const auto& o : facts_->outputs(n)) {
      instances_[i].alive = true;
      if (o.target == none) own(i);
      else settle(i, o.target_here ? sibling(x, o.target) : target_instance(o.target, place));
      if (o.published) publish(i);
      ++i;
    }
    count_run(x, true);
  }

  void detach(Occurrence x) {
    const std::uint32_t n = occurrences_[x].node;
    count_run(x, false);
    const auto outputs = facts_->outputs(n);
    for (std::size_t k = outputs.size(); k > 0; --k) {
      const Instance i = occurrences_[x].instances + static_cast<Instance>(k - 1);
      if (outputs[k - 1].published) unpublish(i);
      if (outputs[k - 1].target != none && instances_[i].storage == none) --broken_;
      if (instances_[i].storage == i) touch(i);
      else leave(i);
      instances_[i].alive = false;
    }
    for (std::uint32_t v : facts_->reads(n)) {
      auto& list = reads_[v];
      list.erase(lower(list, slot(x)));
      note_missing(v);
      touch_storage_of(newest(v, slot(x)));
    }
  }

  // What is made out of nothing is broken, and lives nowhere.
  void settle(Instance i, Instance target) {
    const Instance storage = target == none ? none : instances_[target].storage;
    instances_[i].storage = none;
    if (storage == none) ++broken_;
    else join(i, storage);
  }

  [[nodiscard]] Instance target_instance(std::uint32_t v, std::uint32_t place) const {
    const Value& value = graph().values()[v];
    return value.persistent ? there_[value.storage.index] : newest(v, place);
  }

  [[nodiscard]] Instance sibling(Occurrence x, std::uint32_t value) const {
    Instance i = occurrences_[x].instances;
    while (instances_[i].value != value) ++i;
    return i;
  }

  // The instance becomes what later reads of its value mean.
  void publish(Instance i) {
    const std::uint32_t v = instances_[i].value;
    auto& list = makes_[v];
    auto it = list.end();
    while (it != list.begin() && instances_[*(it - 1)].slot > instances_[i].slot) --it;
    if (it != list.begin()) touch_storage_of(*(it - 1));
    list.insert(it, i);
    note_missing(v);
    touch_storage_of(i);
    if (facts_->is_viewed(v)) rehome_readers(v, instances_[i].slot, next_make(i));
  }

  void unpublish(Instance i) {
    const std::uint32_t v = instances_[i].value;
    const std::uint32_t until = next_make(i);
    auto& list = makes_[v];
    const auto it = std::find(list.begin(), list.end(), i);
    if (it != list.begin()) touch_storage_of(*(it - 1));
    list.erase(it);
    note_missing(v);
    touch_storage_of(i);
    if (facts_->is_viewed(v)) rehome_readers(v, instances_[i].slot, until);
  }

  // What was made out of v between two places may now live in another storage, and so may what was made out of that.
  void rehome_readers(std::uint32_t v, std::uint32_t after, std::uint32_t until) {
    const std::size_t count = reads_[v].size();
    for (std::size_t r = static_cast<std::size_t>(lower(reads_[v], after + 1) - reads_[v].begin()); r < count; ++r) {
      const Occurrence y = reads_[v][r];
      if (slot(y) >= until) return;
      if (y == end()) return;
      Instance j = occurrences_[y].instances;
      for (const auto& o : facts_->outputs(occurrences_[y].node)) {
        if (o.target == v && !o.target_here && instances_[j].alive) rehome(j, target_instance(v, slot(y)));
        ++j;
      }
    }
  }

  void rehome(Instance j, Instance target) {
    const Instance storage = target == none ? none : instances_[target].storage;
    if (instances_[j].storage == storage) return;
    if (instances_[j].storage == none) --broken_;
    leave(j);
    settle(j, target);
    const std::uint32_t v = instances_[j].value;
    const Occurrence y = instances_[j].occurrence;
    Instance k = occurrences_[y].instances;
    for (const auto& o : facts_->outputs(occurrences_[y].node)) {
      if (o.target == v && o.target_here && instances_[k].alive) rehome(k, j);
      ++k;
    }
    if (instances_[j].published && facts_->is_viewed(v)) rehome_readers(v, instances_[j].slot, next_make(j));
  }

  [[nodiscard]] std::uint32_t next_make(Instance i) const {
    const auto& list = makes_[instances_[i].value];
    if (list.empty() || list.back() == i) return none;
    const std::uint32_t place = instances_[i].slot;
    const auto it = std::partition_point(list.begin(), list.end(), [&](Instance j) { return instances_[j].slot <= place; });
    return it == list.end() ? none : instances_[*it].slot;
  }

  // Where the storage is overwritten under the instance; none where it is not.
  [[nodiscard]] std::uint32_t kill_slot(Instance i) const {
    const Inst& x = instances_[i];
    const Inst& s = instances_[x.storage];
    std::uint32_t first = none;
    if (s.overwriters == 0) return first;
    for (Instance j = s.head; j != none; j = instances_[j].next) {
      const Inst& y = instances_[j];
      if (!y.overwrites || y.slot >= first) continue;
      if (x.persistent ? !writes_again(y.occurrence, x.value) : y.slot > x.slot) first = y.slot;
    }
    return first;
  }

  // A node that overwrites a persistent storage and has the persistent value among its outputs leaves it in existence, unless
  // that value is the very one that it overwrites.
  [[nodiscard]] bool writes_again(Occurrence y, std::uint32_t v) const {
    bool written = false;
    for (ValueId w : graph().outputs(NodeId{occurrences_[y].node})) {
      if (graph().value(w).overwrites == ValueId{v}) return false;
      written = written || w == ValueId{v};
    }
    return written;
  }

  // ---- what follows from the lists ----------------------------------------------------------------------------------------

  // Where a storage's life ends, and how many reads come too late.
  void measure(Instance storage) {
    Inst& s = instances_[storage];
    s.first = s.slot;
    std::uint32_t last = s.slot, broken = 0;
    if (s.overwriters != 0) collect_kills(s);
    for (Instance i = s.head; i != none; i = instances_[i].next) {
      const Inst& x = instances_[i];
      last = std::max(last, x.slot);
      if (!x.published) continue;
      const std::uint32_t read = last_read(i);
      if (read == none) continue;
      last = std::max(last, read);
      if (s.overwriters == 0) continue;
      const auto kill = std::upper_bound(kills_.begin(), kills_.end(), x.slot);
      broken += reads_after(i, x.persistent ? kill_slot(i) : kill == kills_.end() ? none : *kill);
    }
    broken_ += broken;
    broken_ -= s.broken;
    s.broken = broken;
    s.last = last;
  }

  void collect_kills(const Inst& s) {
    kills_.clear();
    for (Instance i = s.head; i != none; i = instances_[i].next)
      if (instances_[i].overwrites) kills_.push_back(instances_[i].slot);
    std::sort(kills_.begin(), kills_.end());
  }

  [[nodiscard]] std::uint32_t reads_after(Instance i, std::uint32_t place) const {
    if (place == none) return 0;
    const auto& list = reads_[instances_[i].value];
    const std::uint32_t until = next_make(i);
    const auto low = lower(list, std::max(place, instances_[i].slot) + 1);
    const auto high = until == none ? list.end() : lower(list, until);
    return low < high ? static_cast<std::uint32_t>(high - low) : 0;
  }

  void refresh_dirty() {
    for (Instance storage : dirty_) {
      Inst& s = instances_[storage];
      s.dirty = false;
      const std::uint32_t first = s.first, last = s.last;
      if (!s.alive) {
        broken_ -= s.broken;
        s.broken = 0;
        s.storage = none;
        if (s.counted && !bulk_) add_live(first, last, -s.bytes);
        s.counted = false;
        continue;
      }
      measure(storage);
      if (s.persistent || s.bytes == 0) continue;
      if (!bulk_) {
        if (!s.counted) add_live(s.first, s.last, s.bytes);
        else if (s.last > last) add_live(last + 1, s.last, s.bytes);
        else if (s.last < last) add_live(s.last + 1, last, -s.bytes);
      }
      s.counted = true;
    }
    dirty_.clear();
  }

  void note_missing(std::uint32_t v) {
    const auto& list = reads_[v];
    std::uint32_t missing = 0;
    if (makes_[v].empty()) missing = static_cast<std::uint32_t>(list.size());
    else if (const std::uint32_t first = instances_[makes_[v].front()].slot; !list.empty() && slot(list.front()) <= first)
      missing = static_cast<std::uint32_t>(lower(list, first + 1) - list.begin());
    broken_ += missing;
    broken_ -= missing_[v];
    missing_[v] = missing;
  }

  void attach_end() {
    for (ValueId v : graph().outputs()) {
      if (!facts_->tracked(v)) continue;
      auto& list = reads_[v.index];
      if (!list.empty() && list.back() == end()) continue;
      list.push_back(end());
      note_missing(v.index);
      touch_storage_of(newest(v.index, slot(end())));
    }
  }

  // ---- runs and updates ---------------------------------------------------------------------------------------------------

  void count_run(Occurrence x, bool comes) {
    const std::uint32_t n = occurrences_[x].node;
    auto& list = occurrences_of_[n];
    const Occurrence first = list.empty() ? none : list.front();
    if (comes) list.insert(lower(list, slot(x)), x);
    else list.erase(lower(list, slot(x)));
    const std::size_t now = list.size(), before = comes ? now - 1 : now + 1;
    if (now == 0) ++never_run_;
    if (before == 0) --never_run_;
    if (!graph().nodes()[n].recomputable) {
      const auto more = [](std::size_t count) { return count > 1 ? count - 1 : 0; };
      runs_again_ += more(now);
      runs_again_ -= more(before);
    }
    if (bulk_ && !comes) return;
    for (const auto& b : facts_->read_bounds(n)) recount_updates(b.update);
    if (first != (list.empty() ? none : list.front()))
      for (std::uint32_t u : facts_->updates_by(n)) recount_updates(u);
  }

  // Which occurrences stand after another number of updates than in the graph's own order.
  void recount_updates(std::uint32_t u) {
    const auto& update = facts_->all_updates()[u];
    const auto first_slot_of = [&](std::uint32_t n) { return occurrences_of_[n].empty() ? none : slot(occurrences_of_[n].front()); };
    std::uint32_t broken = 0;
    for (std::size_t i = 1; i < update.updaters.size(); ++i)
      if (first_slot_of(update.updaters[i - 1]) > first_slot_of(update.updaters[i])) ++broken;
    for (std::uint32_t n : update.readers) {
      std::uint32_t before = 0;
      for (const auto& b : facts_->read_bounds(n))
        if (b.update == u) before = b.before;
      const std::uint32_t low = before == 0 ? 0 : first_slot_of(update.updaters[before - 1]);
      const std::uint32_t high = before == update.updaters.size() ? none : first_slot_of(update.updaters[before]);
      for (Occurrence x : occurrences_of_[n])
        if (slot(x) < low || slot(x) > high) ++broken;
    }
    broken_ += broken;
    broken_ -= update_broken_[u];
    update_broken_[u] = broken;
  }

  const ScheduleFacts* facts_;
  std::vector<Occ> occurrences_;
  std::vector<Inst> instances_;
  std::vector<std::vector<Instance>> makes_;    // by value, in running order
  std::vector<std::vector<Occurrence>> reads_;  // by value, in running order
  std::vector<std::vector<Occurrence>> occurrences_of_;  // by node, in running order
  std::vector<std::vector<Occurrence>> spare_;  // by node: removed ones, to be used again
  std::vector<std::uint32_t> missing_;          // by value: reads before anything was made
  std::vector<std::uint32_t> update_broken_;
  std::vector<Instance> there_;                 // by storage: the one that is there at the start
  std::vector<Instance> dirty_;
  std::vector<std::uint32_t> kills_;
  std::vector<Occurrence> moved_;
  std::vector<Instance> moved_storages_;
  std::vector<Occurrence> at_slot_;
  PeakTree tree_;
  OverloadSum overload_;
  bool watching_ = false;
  std::int64_t limit_ = 0;
  std::uint32_t slots_ = 0;
  std::size_t size_ = 0;
  std::size_t broken_ = 0, never_run_ = 0, runs_again_ = 0;
  std::int64_t ticks_ = 0;
  std::uint64_t changes_ = 0;
  bool bulk_ = false;
};

}  // namespace reprise
