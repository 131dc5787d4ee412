#pragma once
// A ConeFinder finds the nodes that must be recomputed so that a storage can be evicted before a
// slot and exist at its next use. Both searches evict storages with it. Each search decides by
// itself which inputs are kept and which are recomputed as well.
//
//   f1 f2 f3 | b3 b2 b1           cone.start(live, storage of f1's result, slot of f3)     read next at b2: cone.at
//                                 cone.close(serve)                                        cone.nodes: f1, or what serve adds
//
// serve(value, reader) is called for each value that the cone's nodes read. It calls need(value)
// for a value that must be recomputed too, and returns false to stop.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/plan/search/undoable_schedule.hpp>

namespace reprise::planning {

class ConeFinder {
 public:
  using Instance = LiveSchedule::Instance;
  static constexpr std::uint32_t none = LiveSchedule::none;

  std::vector<std::uint32_t> nodes{};  ///< in the graph's order, after close()
  std::uint32_t at = none;             ///< slot of the use for which the cone runs
  std::int64_t ticks = 0;

  /// `most`: larger cones are not searched to the end.
  ConeFinder(const ScheduleFacts& facts, std::size_t most)
      : facts_(facts), most_(most), mark_(facts.graph().node_count(), 0) {}

  /// Begins with the values that are made in the storage before slot p and read after it.
  /// `each(instance, slot)` is called for every instance that is made before p. False if something
  /// uses the storage at p.
  template <class Each>
  bool start(const LiveSchedule& live, Instance storage, std::uint32_t p, Each each) {
    nodes.clear();
    needed_.clear();
    ticks = 0;
    at = none;
    ++stamp_;
    for (Instance i = live.first_in_storage(storage); i != none; i = live.next_in_storage(i)) {
      const std::uint32_t made = live.slot(live.maker(i));
      if (made == p) return false;
      if (made > p) continue;
      const std::uint32_t read = live.next_read(i, p);
      if (read == p) return false;
      each(i, made);
      if (read == none) continue;
      at = std::min(at, read);
      needed_.push_back(live.value_of(i));
    }
    return true;
  }

  /// Adds the producers of the needed values, and of their inputs. False if one of them is not
  /// recomputable, or if the cone is too large.
  template <class Serve>
  bool close(const SearchRules& rules, Serve serve) {
    for (std::size_t k = 0; k < needed_.size(); ++k)
      if (!add_producer(needed_[k], rules, serve)) return false;
    std::sort(nodes.begin(), nodes.end());
    return !nodes.empty();
  }

  void need(std::uint32_t v) { needed_.push_back(v); }
  [[nodiscard]] bool has(std::uint32_t n) const { return mark_[n] == stamp_; }
  /// Nodes added so far, over all cones: the cost of the search.
  [[nodiscard]] std::uint64_t work() const { return work_; }

 private:
  template <class Serve>
  bool add_producer(std::uint32_t v, const SearchRules& rules, Serve& serve) {
    const Value& value = facts_.graph().values()[v];
    if (!value.producer.valid() || value.persistent) return false;
    const std::uint32_t u = value.producer.index;
    if (has(u)) return true;
    if (!rules.may_repeat(facts_.graph(), u) || nodes.size() >= most_) return false;
    mark_[u] = stamp_;
    nodes.push_back(u);
    ticks += facts_.ticks(u);
    ++work_;
    for (std::uint32_t t : facts_.reads(u))
      if (!serve(t, u)) return false;
    return true;
  }

  const ScheduleFacts& facts_;
  std::size_t most_;
  std::vector<std::uint32_t> mark_, needed_;
  std::uint32_t stamp_ = 0;
  std::uint64_t work_ = 0;
};

}  // namespace reprise::planning
