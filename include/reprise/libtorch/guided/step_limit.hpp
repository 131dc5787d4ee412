#pragma once
// The limit of a guided step: the largest number of live bytes, and what happens if the step cannot
// stay below it.
//
//   StepLimit limit(4_GiB, throws);
//   limit.allows(bytes);                 before an allocation
//   limit.exceed(live + bytes);          the step needs this in any case: from now on it is allowed
//
// Threads that have joined the step ask without its guard. Only throws() needs the guard: a
// PointerAccess changes it and changes it back.

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include <reprise/base/budget_errors.hpp>
#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/residency/residency.hpp>
#include <reprise/plan/shares.hpp>

namespace reprise::guided {

class StepLimit {
 public:
  /// `limit` 0: none. `throws`: an error if the limit cannot be kept; else the step goes above it.
  StepLimit(Bytes limit, bool throws) : limit_(limit), throws_(throws) {}

  [[nodiscard]] Bytes bytes() const { return limit_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool given() const { return bytes() > Bytes{0}; }
  void set(Bytes limit) { limit_.store(limit, std::memory_order_relaxed); }
  void remove() {
    set({});
    needed_.store({}, std::memory_order_relaxed);
  }
  [[nodiscard]] bool throws() const { return throws_; }
  /// Returns the former value.
  [[nodiscard]] bool set_throws(bool throws) { return std::exchange(throws_, throws); }

  /// Whether `bytes` more fit.
  [[nodiscard]] bool allows(Bytes bytes) const {
    const Bytes limit = this->bytes();  // of one moment: it may be set meanwhile
    return limit <= Bytes{0} || device_memory().live() + bytes <= limit;
  }
  /// The bytes that are enforced: the limit, or what the step needs in any case. A lower value
  /// before and after that op would cost time and save nothing.
  [[nodiscard]] Bytes enforced() const { return std::max(bytes(), needed()); }
  void exceed(Bytes needed) {
    Bytes seen = this->needed();
    while (seen < needed &&
           !needed_.compare_exchange_weak(seen, needed, std::memory_order_relaxed)) {
    }
  }

  /// An allocation of `bytes` is about to happen, after everything possible was freed.
  void note_allocation(Bytes bytes) {
    if (!allows(bytes)) went_over_.store(true, std::memory_order_relaxed);
  }
  [[nodiscard]] bool went_over() const { return went_over_.load(std::memory_order_relaxed); }
  /// The bytes that the step needed, if they exceed the limit.
  [[nodiscard]] Bytes needed() const { return needed_.load(std::memory_order_relaxed); }

  /// Everything that can be evicted or spilled is so: the resident storages cannot.
  [[nodiscard]] Error too_small(const std::string* op, Bytes bytes, const RecordingTables& tables,
                                const Residency& residency, const std::string& advice) const {
    const Bytes needed = device_memory().live() + bytes;
    MemoryShares shares;
    for (StorageIndex s = 0; s < tables.records().size(); ++s) {
      if (!residency.in_memory(s)) continue;
      const ValueId v = tables.latest_version(s);
      shares.add(tables.value(v).role, residency.bytes(s), tables.recording().describe(v));
    }
    shares.add(Role::other, device_memory().live() - shares.total(),
               "what no op of the step has touched");
    shares.add(Role::activation, bytes, "what is asked for now");
    return Error(Errc::budget_unreachable,
                 needs_at_once_text(op == nullptr ? std::string() : *op, needed, this->bytes()) +
                     ".\n" + shares.text() + advice);
  }

 private:
  std::atomic<Bytes> limit_;
  std::atomic<Bytes> needed_{};  // in any case, as far as that is known
  bool throws_;
  std::atomic<bool> went_over_{false};
};

}  // namespace reprise::guided
