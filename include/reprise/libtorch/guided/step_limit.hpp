#pragma once
// The limit of a guided step: the largest number of live bytes, and what happens if the step cannot
// stay below it.
//
//   StepLimit limit(4_GiB, throws);
//   limit.allows(bytes);                 before an allocation
//   limit.exceed(live + bytes);          the step needs this in any case: from now on it is allowed

#include <algorithm>
#include <string>
#include <utility>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/residency/residency.hpp>
#include <reprise/plan/shares.hpp>

namespace reprise::guided {

class StepLimit {
 public:
  /// `limit` 0: none. `throws`: an error if the limit cannot be kept; else the step goes above it.
  StepLimit(Bytes limit, bool throws) : limit_(limit), throws_(throws) {}

  [[nodiscard]] Bytes bytes() const { return limit_; }
  [[nodiscard]] bool given() const { return limit_ > Bytes{0}; }
  void set(Bytes limit) { limit_ = limit; }
  void remove() { limit_ = needed_ = {}; }
  [[nodiscard]] bool throws() const { return throws_; }
  /// Returns the former value.
  [[nodiscard]] bool set_throws(bool throws) { return std::exchange(throws_, throws); }

  /// Whether `bytes` more fit.
  [[nodiscard]] bool allows(Bytes bytes) const {
    return !given() || cpu_memory().live() + bytes <= limit_;
  }
  /// The bytes that are enforced: the limit, or what the step needs in any case. A lower value
  /// before and after that op would cost time and save nothing.
  [[nodiscard]] Bytes enforced() const { return std::max(limit_, needed_); }
  void exceed(Bytes needed) { needed_ = std::max(needed_, needed); }

  /// An allocation of `bytes` is about to happen, after everything possible was freed.
  void note_allocation(Bytes bytes) { went_over_ = went_over_ || !allows(bytes); }
  [[nodiscard]] bool went_over() const { return went_over_; }
  /// The bytes that the step needed, if they exceed the limit.
  [[nodiscard]] Bytes needed() const { return needed_; }

  /// Everything that can be evicted or spilled is so: the resident storages cannot.
  [[nodiscard]] Error too_small(const std::string* op, Bytes bytes, const RecordingTables& tables,
                                const Residency& residency, const std::string& advice) const {
    const Bytes needed = cpu_memory().live() + bytes;
    MemoryShares shares;
    for (StorageIndex s = 0; s < tables.records().size(); ++s) {
      if (!residency.in_memory(s)) continue;
      const ValueId v = tables.latest_version(s);
      shares.add(tables.value(v).role, residency.bytes(s), tables.recording().describe(v));
    }
    shares.add(Role::other, cpu_memory().live() - shares.total(),
               "what no op of the step has touched");
    shares.add(Role::activation, bytes, "what is asked for now");
    return Error(Errc::budget_unreachable,
                 (op == nullptr ? std::string("an allocation outside of any op") : *op) +
                     " needs " + format_bytes(needed) + " (" + std::to_string(needed.count) +
                     " bytes) at once: what it reads and makes, and what cannot be given up. The "
                     "budget is " +
                     format_bytes(limit_) + " (" + std::to_string(limit_.count) + " bytes).\n" +
                     shares.text() + advice);
  }

 private:
  Bytes limit_;
  Bytes needed_{};  // in any case, as far as known
  bool throws_;
  bool went_over_ = false;
};

}  // namespace reprise::guided
