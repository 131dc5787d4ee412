#pragma once
// Online eviction works without a plan. If an allocation would exceed the limit, a policy picks a
// victim (as in DTR). The victim is evicted, or spilled if it cannot be recomputed.
//
//   limit 100 MiB, live 90 MiB, an op asks for 30 MiB:    policy: h7 costs least per byte and staleness ──▶ evict h7, 25 MiB ──▶ live 95
//
// The policy learns about storages when memory runs out for the first time in the step (begin()).

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include <reprise/libtorch/guided/rematerializer.hpp>
#include <reprise/plan/eviction.hpp>

namespace reprise::guided {

template <EvictionPolicy Policy>
class OnlineEviction {
 public:
  OnlineEviction(Recorder& recorder, StorageEvents& events, Lineage& lineage,
                 GuidedStepCounters& counters, Policy policy)
      : recorder_(recorder),
        tables_(recorder.tables()),
        events_(events),
        residency_(events.residency()),
        lineage_(lineage),
        counters_(counters),
        policy_(std::move(policy)) {}
  OnlineEviction(const OnlineEviction&) = delete;
  OnlineEviction& operator=(const OnlineEviction&) = delete;

  /// An op begins: staleness is counted in ops.
  void tick() { ++clock_; }
  [[nodiscard]] bool is_on() const { return on_; }
  /// Memory has run out: the policy gets all storages.
  void begin() {
    if (std::exchange(on_, true)) return;
    touch_all();
  }
  /// The storage was used, or its cost or residency has changed.
  void touch(StorageIndex s) {
    if (!on_ || s == no_storage) return;
    StorageRecord::Use& used = use(s);
    if (!residency_.in_memory(s) || residency_.bytes(s) == Bytes{0} || used.pinned)
      return policy_.erase(s);
    used.last_use = clock_;
    price(s, lineage_.cost_of(s, counters_.only_spills));
  }
  void touch_all() {
    for (StorageIndex s = 0; s < residency_.records().size(); ++s) touch(s);
  }
  void touch_all(const Call& call) {
    for (const ArgumentSlot& read : call.reads) touch(tables_.storage_of(read.value));
    for (const ResultSlot& result : call.results) touch(tables_.storage_of(result.value));
  }
  void forget(StorageIndex s) { policy_.erase(s); }

  /// Reclaims until `bytes` fit below the limit. False if nothing more can be reclaimed.
  [[nodiscard]] bool make_room(Bytes bytes, Bytes limit) {
    int repriced = 0;
    while (device_memory().live() + bytes > limit) {
      const auto victim = pick();
      if (!victim) return false;
      if (repriced < max_repriced && costs_more_now(*victim)) ++repriced;
      else reclaim(*victim);
    }
    return true;
  }

  /// Policies that evict without pressure do so after every op.
  void evict_without_pressure() {
    if constexpr (EvictsWithoutPressure<Policy>)
      for (StorageIndex s = 0; s < residency_.records().size(); ++s)
        if (evictable(s) && residency_.bytes(s) > Bytes{0} && policy_.drops_unasked(s))
          reclaim(s, true);
  }

 private:
  static constexpr int max_repriced = 16;  // per allocation: bounds the time of a choice
  static constexpr double worth_repricing = 1.4;

  [[nodiscard]] StorageRecord::Use& use(StorageIndex s) { return residency_.records()[s].use; }

  [[nodiscard]] auto pick() {
    const auto read = [this](std::uint32_t s) { return evictable(s) && !use(s).unread; };
    const auto any = [this](std::uint32_t s) { return evictable(s); };
    const auto victim = policy_.pick(clock_, read);
    return victim ? victim : policy_.pick(clock_, any);
  }

  [[nodiscard]] bool evictable(StorageIndex s) {
    const StorageRecord::Use& used = use(s);
    if (used.pin_count > 0 || used.pinned || (used.unread && used.user_may_fill)) return false;
    const bool can_recompute =
        lineage_.rematerializable(tables_.latest_version(s)) && !counters_.only_spills;
    if (residency_.state(s) == ResidencyState::orphaned) return can_recompute;
    if (residency_.state(s) != ResidencyState::resident) return false;
    return can_recompute || residency_.spillable(s);
  }

  void price(StorageIndex s, Microseconds cost) {
    use(s).cost = cost;
    policy_.touch(s, {residency_.bytes(s), cost, use(s).last_use});
  }
  // Sources may have been evicted since the storage's cost was computed. The cost is then computed
  // anew, and another storage may be the better choice.
  [[nodiscard]] bool costs_more_now(StorageIndex s) {
    const Microseconds cost = lineage_.cost_of(s, counters_.only_spills);
    if (cost.count <= worth_repricing * use(s).cost.count) return false;
    price(s, cost);
    return true;
  }

  // Evicts or spills, whichever is possible.
  void reclaim(StorageIndex s, bool evicts = false) {
    policy_.erase(s);
    if (recorder_.user_access().find_writes(s)) return;  // it stays resident
    const ValueId latest = tables_.latest_version(s);
    const std::string name = tables_.recording().describe(latest);
    if (lineage_.rematerializable(latest) &&
        (evicts || !counters_.only_spills || !residency_.spillable(s))) {
      if (residency_.state(s) == ResidencyState::orphaned) residency_.release_orphan(s);
      else residency_.evict(s, name);
    } else if (!residency_.spill(s, name)) {
      return;
    }
    if (residency_.state(s) == ResidencyState::resident) events_.process_free_of(s);
    ++counters_.evicted;
  }

  Recorder& recorder_;
  const RecordingTables& tables_;
  StorageEvents& events_;
  Residency& residency_;
  Lineage& lineage_;
  GuidedStepCounters& counters_;
  Policy policy_;
  std::uint64_t clock_ = 0;
  bool on_ = false;
};

}  // namespace reprise::guided
