#pragma once
// Eviction policies choose the storage to evict or spill when an allocation would exceed the budget
// in a step without a plan.
//
// ```cpp
// CostSizeStaleness policy;
// policy.touch(7, {.bytes = 4096_B, .cost = {120}, .clock = 1});  // storage 7 was used at op 1
// policy.touch(8, {.bytes = 4096_B, .cost = {3}, .clock = 2});
// policy.pick(10, [](std::uint32_t) { return true; });  // 8: as large, and cheaper to recompute
// ```
//
// The default is the rule of dynamic tensor rematerialization (Kirisame et al., ICLR 2021): the
// least cost / (bytes × staleness). The cost is the time to recompute the storage together with the
// evicted storages next to it. Staleness changes with every op, so storages cannot be kept sorted
// by that score. The storages are therefore divided into classes: within a class, cost / bytes
// differs by at most a factor √2. The least recently used storage of a class is its best to within
// that factor. Each class has a queue in the order of last use, and a pick compares only the fronts
// of the queues.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <reprise/base/units.hpp>

namespace reprise::planning {

/// A storage that could be reclaimed.
struct EvictionCandidate {
  Bytes bytes{};
  Microseconds cost{};      ///< to materialize it
  std::uint64_t clock = 0;  ///< the last op that used it
};

namespace eviction_requirement {
template <class Policy>
concept touch = requires(Policy& policy, std::uint32_t storage,
                         const EvictionCandidate& candidate) {
  policy.touch(storage, candidate);
};
template <class Policy>
concept erase = requires(Policy& policy, std::uint32_t storage) {
  policy.erase(storage);
};
template <class Policy>
concept pick = requires(const Policy& policy, std::uint64_t clock,
                        bool (*evictable)(std::uint32_t)) {
  { policy.pick(clock, evictable) } -> std::convertible_to<std::optional<std::uint32_t>>;
};
}  // namespace eviction_requirement

/// EvictionPolicy requires: (1) to be copyable: each step starts with a copy of the budget's
/// policy; (2) touch(storage, candidate): the storage became evictable, was used, or has another
/// cost; (3) erase(storage): it is not evictable, even if it was never touched; (4) pick(clock,
/// evictable) const -> std::optional<std::uint32_t>: a touched storage that was not erased since,
/// for which evictable is true; empty if there is none.
template <class Policy>
concept EvictionPolicy = std::copyable<Policy> && eviction_requirement::touch<Policy> &&
    eviction_requirement::erase<Policy> && eviction_requirement::pick<Policy>;

/// True. If P is no EvictionPolicy, one line of the compiler's output says what it lacks.
template <class P>
[[nodiscard]] consteval bool is_eviction_policy() {
  static_assert(std::copyable<P>, "P is no EvictionPolicy: it needs (1) to be copyable");
  static_assert(
      eviction_requirement::touch<P>,
      "P is no EvictionPolicy: it needs (2) touch(std::uint32_t, const EvictionCandidate&)");
  static_assert(eviction_requirement::erase<P>,
                "P is no EvictionPolicy: it needs (3) erase(std::uint32_t)");
  static_assert(eviction_requirement::pick<P>,
                "P is no EvictionPolicy: it needs (4) std::optional<std::uint32_t> "
                "pick(std::uint64_t, evictable) const");
  return EvictionPolicy<P>;
}

/// A policy may also evict without pressure: after each online op, it is asked for every evictable
/// storage.
template <class Policy>
concept EvictsWithoutPressure = requires(Policy policy, std::uint32_t storage) {
  { policy.drops_unasked(storage) } -> std::convertible_to<bool>;
};

/// Evicts nothing: an allocation that does not fit is an error.
struct NullEviction {
  void touch(std::uint32_t /*storage*/, const EvictionCandidate& /*candidate*/) {}
  void erase(std::uint32_t /*storage*/) {}
  template <class Evictable>
  [[nodiscard]] std::optional<std::uint32_t> pick(std::uint64_t /*clock*/,
                                                  Evictable&& /*evictable*/) const {
    return std::nullopt;
  }
};

/// Picks the least recently used storage.
class LeastRecentlyUsed {
 public:
  void touch(std::uint32_t storage, const EvictionCandidate& candidate) {
    erase(storage);
    order_.emplace(candidate.clock, storage);
    clock_[storage] = candidate.clock;
  }
  void erase(std::uint32_t storage) {
    const auto it = clock_.find(storage);
    if (it == clock_.end()) return;
    order_.erase({it->second, storage});
    clock_.erase(it);
  }
  template <class Evictable>
  [[nodiscard]] std::optional<std::uint32_t> pick(std::uint64_t /*clock*/,
                                                  Evictable&& evictable) const {
    for (const auto& [clock, storage] : order_)
      if (evictable(storage)) return storage;
    return std::nullopt;
  }

 private:
  std::set<std::pair<std::uint64_t, std::uint32_t>> order_;
  std::unordered_map<std::uint32_t, std::uint64_t> clock_;
};

/// Picks the largest storage; of equal ones, the first.
class LargestFirst {
 public:
  void touch(std::uint32_t storage, const EvictionCandidate& candidate) {
    erase(storage);
    order_.emplace(-candidate.bytes.count, storage);
    bytes_[storage] = candidate.bytes.count;
  }
  void erase(std::uint32_t storage) {
    const auto it = bytes_.find(storage);
    if (it == bytes_.end()) return;
    order_.erase({-it->second, storage});
    bytes_.erase(it);
  }
  template <class Evictable>
  [[nodiscard]] std::optional<std::uint32_t> pick(std::uint64_t /*clock*/,
                                                  Evictable&& evictable) const {
    for (const auto& [bytes, storage] : order_)
      if (evictable(storage)) return storage;
    return std::nullopt;
  }

 private:
  std::set<std::pair<std::int64_t, std::uint32_t>> order_;
  std::unordered_map<std::uint32_t, std::int64_t> bytes_;
};

/// Picks the least cost / (bytes × staleness).
class CostSizeStaleness {
 public:
  void touch(std::uint32_t storage, const EvictionCandidate& candidate) {
    erase(storage);
    const double price = candidate.cost.count /
                         static_cast<double>(std::max<std::int64_t>(candidate.bytes.count, 1));
    const int c = class_of(price);
    // a storage with a new cost keeps its time of last use
    place_[storage] = {c, queues_[c].insert({candidate.clock, storage, price}).first};
  }

  void erase(std::uint32_t storage) {
    const auto it = place_.find(storage);
    if (it == place_.end()) return;
    const auto queue = queues_.find(it->second.first);
    queue->second.erase(it->second.second);
    if (queue->second.empty()) queues_.erase(queue);
    place_.erase(it);
  }

  template <class Evictable>
  [[nodiscard]] std::optional<std::uint32_t> pick(std::uint64_t clock,
                                                  Evictable&& evictable) const {
    std::optional<std::uint32_t> best;
    double least = 0;
    for (const auto& [c, queue] : queues_) {
      for (const Entry& entry : queue) {
        if (!evictable(entry.storage)) continue;
        const double score =
            entry.price / static_cast<double>(clock - std::min(clock, entry.clock) + 1);
        if (!best || score < least) {
          best = entry.storage;
          least = score;
        }
        break;  // the others of this class were used later
      }
    }
    return best;
  }

 private:
  struct Entry {
    std::uint64_t clock = 0;
    std::uint32_t storage = 0;
    double price = 0;

    bool operator<(const Entry& other) const {
      return clock != other.clock ? clock < other.clock : storage < other.storage;
    }
  };
  static int class_of(double price) {
    return price > 0 ? static_cast<int>(std::floor(2 * std::log2(price))) : -4096;
  }

  std::map<int, std::set<Entry>> queues_;
  std::unordered_map<std::uint32_t, std::pair<int, std::set<Entry>::iterator>> place_;
};

}  // namespace reprise::planning

namespace reprise {
using planning::CostSizeStaleness;
using planning::EvictionCandidate;
using planning::EvictionPolicy;
using planning::is_eviction_policy;
using planning::LargestFirst;
using planning::LeastRecentlyUsed;
using planning::NullEviction;
}  // namespace reprise
