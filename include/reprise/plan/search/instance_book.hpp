#pragma once
// An InstanceBook records what a schedule makes and reads, value by value: the instance that each
// read sees, the lifetime of each storage, and which reads are broken.
//
//   value h.relu     makes  norm·relu ──────────── norm·relu (recomputed)    an instance for each occurrence of relu
//                    reads            flat                     grad          flat reads the first, grad the second
//
// Each value has two lists in running order: its instances, and the occurrences that read it. They
// determine which instance a read sees, how long a storage lives, and what was overwritten before a
// read. Edits mark storages; refresh_dirty() measures these anew and updates LiveBytes.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <reprise/graph/step_graph.hpp>
#include <reprise/plan/search/live_bytes.hpp>
#include <reprise/plan/search/occurrence_order.hpp>
#include <reprise/plan/search/schedule_facts.hpp>

namespace reprise::planning {

class InstanceBook {
 public:
  using Occurrence = OccurrenceOrder::Occurrence;
  /// one output of one occurrence; a storage is named by the instance that owns its bytes
  using Instance = std::uint32_t;
  static constexpr std::uint32_t none = ScheduleFacts::none;

  InstanceBook(const ScheduleFacts& facts, const OccurrenceOrder& order, LiveBytes& live)
      : facts_(facts),
        order_(order),
        live_(live),
        instances_of_value_(facts.graph().value_count()),
        reads_(facts.graph().value_count()),
        missing_(facts.graph().value_count(), 0) {
    place_what_is_there();
  }

  /// Reads of a value that does not exist, and results that are made from one.
  [[nodiscard]] std::size_t broken() const { return broken_; }

  // Storages and instances, for strategies that choose what to evict.
  [[nodiscard]] std::size_t instance_count() const { return instances_.size(); }
  [[nodiscard]] bool owns_storage(Instance i) const {
    return instances_[i].storage == i && instances_[i].alive;
  }
  [[nodiscard]] std::uint32_t first_slot(Instance storage) const {
    return instances_[storage].first;
  }
  [[nodiscard]] std::uint32_t last_slot(Instance storage) const { return instances_[storage].last; }
  [[nodiscard]] std::int64_t bytes(Instance storage) const { return instances_[storage].bytes; }
  [[nodiscard]] Instance storage_of(Instance i) const { return instances_[i].storage; }
  [[nodiscard]] std::uint32_t value_of(Instance i) const { return instances_[i].value; }
  [[nodiscard]] Occurrence maker(Instance i) const { return instances_[i].occurrence; }
  [[nodiscard]] Instance first_in_storage(Instance storage) const {
    return instances_[storage].head;
  }
  [[nodiscard]] Instance next_in_storage(Instance i) const { return instances_[i].next; }
  /// The instance k of an occurrence's outputs, in the order of ScheduleFacts::outputs.
  [[nodiscard]] Instance made_by(Occurrence x, std::size_t k) const {
    return order_.instances(x) + static_cast<std::uint32_t>(k);
  }
  [[nodiscard]] std::span<const Occurrence> readers(std::uint32_t v) const { return reads_[v]; }
  [[nodiscard]] std::span<const Instance> makes(std::uint32_t v) const {
    return instances_of_value_[v];
  }

  /// The newest instance of the value that a read at `slot` would see, overwritten or not; none
  /// without one.
  [[nodiscard]] Instance newest(std::uint32_t v, std::uint32_t at) const {
    const auto& list = instances_of_value_[v];
    const auto it = std::partition_point(list.begin(), list.end(),
                                         [&](Instance i) { return instances_[i].slot < at; });
    return it == list.begin() ? none : *(it - 1);
  }

  /// Whether the value could be read at `slot`.
  [[nodiscard]] bool exists(std::uint32_t v, std::uint32_t at) const {
    const Instance i = newest(v, at);
    return i != none && instances_[i].storage != none && kill_slot(i) >= at;
  }

  /// The slot of the first read of this instance at or after `from`; none without a read.
  [[nodiscard]] std::uint32_t next_read(Instance i, std::uint32_t from) const {
    const std::uint32_t until = next_make(i);
    const auto& list = reads_[instances_[i].value];
    const auto it = order_.lower(list, std::max(from, instances_[i].slot + 1));
    return it != list.end() && order_.slot(*it) < until ? order_.slot(*it) : none;
  }
  /// The slot of the last read of this instance before `until`; none without a read.
  [[nodiscard]] std::uint32_t last_read(Instance i, std::uint32_t until = none) const {
    until = std::min(until, next_make(i));
    const auto& list = reads_[instances_[i].value];
    const auto it = order_.lower(list, until);
    return it != list.begin() && order_.slot(*(it - 1)) > instances_[i].slot
               ? order_.slot(*(it - 1))
               : none;
  }
  // ---- edits ------------------------------------------------------------------------------------

  /// Makes space for the results of an occurrence of n with handle x; returns their first index.
  Instance add(std::uint32_t n, Occurrence x) {
    const auto begin = static_cast<Instance>(instances_.size());
    for (const auto& o : facts_.outputs(n)) {
      Inst i;
      i.value = o.value;
      i.occurrence = x;
      i.overwrites = o.overwrites;
      i.published = o.published;
      i.bytes = graph().values()[o.value].bytes.count;
      instances_.push_back(i);
    }
    return begin;
  }

  /// The occurrence's results get its slot.
  void set_slot(Occurrence x, std::uint32_t place) {
    for (std::size_t k = 0; k < facts_.outputs(order_.node(x)).size(); ++k)
      instances_[made_by(x, k)].slot = place;
  }

  void attach(Occurrence x) {
    const std::uint32_t n = order_.node(x), place = order_.slot(x);
    for (std::uint32_t v : facts_.reads(n)) {
      auto& list = reads_[v];
      list.insert(order_.lower(list, place), x);
      note_missing(v);
      touch_storage_of(newest(v, place));
    }
    Instance i = order_.instances(x);
    for (const auto& o : facts_.outputs(n)) {
      instances_[i].alive = true;
      if (o.target == none) own(i);
      else settle(i, o.target_here ? sibling(x, o.target) : target_instance(o.target, place));
      if (o.published) publish(i);
      ++i;
    }
  }

  void detach(Occurrence x) {
    const std::uint32_t n = order_.node(x);
    const auto outputs = facts_.outputs(n);
    for (std::size_t k = outputs.size(); k > 0; --k) {
      const Instance i = order_.instances(x) + static_cast<Instance>(k - 1);
      if (outputs[k - 1].published) unpublish(i);
      if (outputs[k - 1].target != none && instances_[i].storage == none) --broken_;
      if (instances_[i].storage == i) touch(i);
      else leave(i);
      instances_[i].alive = false;
    }
    for (std::uint32_t v : facts_.reads(n)) {
      auto& list = reads_[v];
      list.erase(order_.lower(list, order_.slot(x)));
      note_missing(v);
      touch_storage_of(newest(v, order_.slot(x)));
    }
  }

  void attach_end() {
    for (ValueId v : graph().outputs()) {
      if (!facts_.tracked(v)) continue;
      auto& list = reads_[v.index];
      if (!list.empty() && list.back() == order_.end()) continue;
      list.push_back(order_.end());
      note_missing(v.index);
      touch_storage_of(newest(v.index, order_.slot(order_.end())));
    }
  }

  /// Measures the lifetimes anew that edits have changed.
  void refresh_dirty() {
    for (Instance storage : dirty_) {
      Inst& s = instances_[storage];
      s.dirty = false;
      const std::uint32_t first = s.first, last = s.last;
      if (!s.alive) {
        broken_ -= s.broken;
        s.broken = 0;
        s.storage = none;
        if (s.counted && counting_) live_.add(first, last, -s.bytes);
        s.counted = false;
        continue;
      }
      measure(storage);
      if (s.persistent || s.bytes == 0) continue;
      if (counting_) {
        if (!s.counted) live_.add(s.first, s.last, s.bytes);
        else if (s.last > last) live_.add(last + 1, s.last, s.bytes);
        else if (s.last < last) live_.add(s.last + 1, last, -s.bytes);
      }
      s.counted = true;
    }
    dirty_.clear();
  }

  /// true: changed lifetimes go to LiveBytes at once; false: add_all() adds all of them later.
  void count(bool on) { counting_ = on; }

  // ---- other places -----------------------------------------------------------------------------

  /// After all occurrences got other places: adds all lifetimes, as changes of live bytes by place.
  void add_all(std::vector<std::int64_t>& change) {
    for (Inst& i : instances_)
      if (i.alive) i.slot = order_.slot(i.occurrence);
    for (Instance s = 0; s < instances_.size(); ++s) {
      Inst& i = instances_[s];
      if (!i.alive || i.storage != s || i.persistent) continue;
      measure(s);
      change[i.first] += i.bytes;
      change[i.last + 1] -= i.bytes;
    }
  }

  /// Before some occurrences get other places: removes their storages from LiveBytes.
  void lift(std::span<const Occurrence> moved) {
    lifted_.clear();
    for (Occurrence x : moved) collect_storages(x);
    for (Instance s : lifted_)
      if (instances_[s].counted)
        live_.add(instances_[s].first, instances_[s].last, -instances_[s].bytes);
  }
  /// Afterwards: adds them again.
  void settle_lifted() {
    for (Instance s : lifted_) {
      measure(s);
      instances_[s].dirty = false;
      if (instances_[s].counted)
        live_.add(instances_[s].first, instances_[s].last, instances_[s].bytes);
    }
  }

 private:
  struct Inst {
    std::uint32_t value = none;
    Occurrence occurrence = none;
    std::uint32_t slot = 0;  // of the occurrence, cached here
    Instance storage = none;
    Instance previous = none, next = none;  // in the same storage
    bool alive = false;
    bool overwrites = false;
    bool published = true;
    bool persistent = false;
    // For a storage, kept with the instance that owns it:
    bool dirty = false;
    bool counted = false;  // its lifetime is in the tree
    Instance head = none;
    std::uint32_t first = 0, last = 0;
    std::uint32_t overwriters = 0;
    std::uint32_t broken = 0;
    std::int64_t bytes = 0;
  };

  [[nodiscard]] const StepGraph& graph() const { return facts_.graph(); }

  void collect_storages(Occurrence x) {
    const auto collect = [&](Instance i) {
      const Instance s = i == none ? none : instances_[i].storage;
      if (s == none || instances_[s].persistent || instances_[s].dirty) return;
      instances_[s].dirty = true;
      lifted_.push_back(s);
    };
    for (std::uint32_t v : facts_.reads(order_.node(x))) collect(newest(v, order_.slot(x)));
    for (std::size_t k = 0; k < facts_.outputs(order_.node(x)).size(); ++k) collect(made_by(x, k));
  }

  // ---- instances --------------------------------------------------------------------------------

  void place_what_is_there() {
    const StepGraph& g = graph();
    std::vector<Instance> owner(g.storage_count(), none);
    for (StorageId s : g.storage_ids()) {
      const Storage& storage = g.storage(s);
      if (storage.persistent || g.value(storage.owner).initial)
        owner[s.index] = there(storage.owner, none);
    }
    there_ = owner;
    for (ValueId v : g.value_ids()) {
      const Value& value = g.value(v);
      if (value.persistent && !value.owns()) there(v, owner[value.storage.index]);
    }
  }

  Instance there(ValueId v, Instance storage) {
    const auto i = static_cast<Instance>(instances_.size());
    const Value& value = graph().value(v);
    Inst inst;
    inst.value = v.index;
    inst.occurrence = order_.start();
    inst.alive = true;
    inst.persistent = value.persistent;
    inst.bytes = value.persistent ? 0 : value.bytes.count;
    instances_.push_back(inst);
    if (storage == none) own(i);
    else join(i, storage);
    if (facts_.tracked(v)) instances_of_value_[v.index].push_back(i);
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

  // A persistent storage that no node overwrites needs no bookkeeping, however many views it has.
  [[nodiscard]] bool light(const Inst& s) const {
    return s.persistent && !facts_.is_overwritten(graph().values()[s.value].storage.index);
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

  // A result without its source is broken, and has no storage.
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
    Instance i = order_.instances(x);
    while (instances_[i].value != value) ++i;
    return i;
  }

  // Later reads of the value see this instance.
  void publish(Instance i) {
    const std::uint32_t v = instances_[i].value;
    auto& list = instances_of_value_[v];
    auto it = list.end();
    while (it != list.begin() && instances_[*(it - 1)].slot > instances_[i].slot) --it;
    if (it != list.begin()) touch_storage_of(*(it - 1));
    list.insert(it, i);
    note_missing(v);
    touch_storage_of(i);
    if (facts_.is_viewed(v)) rehome_readers(v, instances_[i].slot, next_make(i));
  }

  void unpublish(Instance i) {
    const std::uint32_t v = instances_[i].value;
    const std::uint32_t until = next_make(i);
    auto& list = instances_of_value_[v];
    const auto it = std::find(list.begin(), list.end(), i);
    if (it != list.begin()) touch_storage_of(*(it - 1));
    list.erase(it);
    note_missing(v);
    touch_storage_of(i);
    if (facts_.is_viewed(v)) rehome_readers(v, instances_[i].slot, until);
  }

  // Values that were made from v between two places may now be in another storage, and so may
  // values that were made from these.
  void rehome_readers(std::uint32_t v, std::uint32_t after, std::uint32_t until) {
    const std::size_t count = reads_[v].size();
    for (std::size_t r =
             static_cast<std::size_t>(order_.lower(reads_[v], after + 1) - reads_[v].begin());
         r < count; ++r) {
      const Occurrence y = reads_[v][r];
      if (order_.slot(y) >= until) return;
      if (y == order_.end()) return;
      Instance j = order_.instances(y);
      for (const auto& o : facts_.outputs(order_.node(y))) {
        if (o.target == v && !o.target_here && instances_[j].alive)
          rehome(j, target_instance(v, order_.slot(y)));
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
    Instance k = order_.instances(y);
    for (const auto& o : facts_.outputs(order_.node(y))) {
      if (o.target == v && o.target_here && instances_[k].alive) rehome(k, j);
      ++k;
    }
    if (instances_[j].published && facts_.is_viewed(v))
      rehome_readers(v, instances_[j].slot, next_make(j));
  }

  [[nodiscard]] std::uint32_t next_make(Instance i) const {
    const auto& list = instances_of_value_[instances_[i].value];
    if (list.empty() || list.back() == i) return none;
    const std::uint32_t place = instances_[i].slot;
    const auto it = std::partition_point(list.begin(), list.end(),
                                         [&](Instance j) { return instances_[j].slot <= place; });
    return it == list.end() ? none : instances_[*it].slot;
  }

  // The slot at which the storage is overwritten; none if it is not.
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

  // A node may overwrite a persistent storage and have the persistent value among its outputs. The
  // value then still exists, unless the node overwrites exactly this value.
  [[nodiscard]] bool writes_again(Occurrence y, std::uint32_t v) const {
    bool written = false;
    for (ValueId w : graph().outputs(NodeId{order_.node(y)})) {
      if (graph().value(w).overwrites == ValueId{v}) return false;
      written = written || w == ValueId{v};
    }
    return written;
  }

  // ---- what follows from the lists --------------------------------------------------------------

  // The end of a storage's lifetime, and the number of reads after it.
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
    const auto low = order_.lower(list, std::max(place, instances_[i].slot) + 1);
    const auto high = until == none ? list.end() : order_.lower(list, until);
    return low < high ? static_cast<std::uint32_t>(high - low) : 0;
  }

  void note_missing(std::uint32_t v) {
    const auto& list = reads_[v];
    std::uint32_t missing = 0;
    if (instances_of_value_[v].empty()) missing = static_cast<std::uint32_t>(list.size());
    else if (const std::uint32_t first = instances_[instances_of_value_[v].front()].slot;
             !list.empty() && order_.slot(list.front()) <= first)
      missing = static_cast<std::uint32_t>(order_.lower(list, first + 1) - list.begin());
    broken_ += missing;
    broken_ -= missing_[v];
    missing_[v] = missing;
  }

  const ScheduleFacts& facts_;
  const OccurrenceOrder& order_;
  LiveBytes& live_;
  std::vector<Inst> instances_;
  std::vector<std::vector<Instance>> instances_of_value_;  // by value, in running order
  std::vector<std::vector<Occurrence>> reads_;             // by value, in running order
  std::vector<std::uint32_t> missing_;  // by value: reads before its first instance
  std::vector<Instance> there_;         // by storage: the initial instance
  std::vector<Instance> dirty_, lifted_;
  std::vector<std::uint32_t> kills_;  // in measure()
  std::size_t broken_ = 0;
  bool counting_ = false;
};

}  // namespace reprise::planning
