#pragma once
// TransferStats are the counts, bytes and times of spilling and fetching.

#include <chrono>
#include <cstdint>
#include <unordered_map>

#include <reprise/base/units.hpp>

namespace reprise::residency {

struct TransferStats {
  std::int64_t moved_out = 0, brought_back = 0;  ///< number of storages
  Bytes bytes_out{}, bytes_in{};
  Microseconds time_out{}, time_in{};

  /// Bytes per second; 0 if nothing was spilled.
  [[nodiscard]] double bandwidth_out() const {
    return time_out.count > 0 ? static_cast<double>(bytes_out.count) / time_out.count * 1e6 : 0;
  }
  [[nodiscard]] double bandwidth_in() const {
    return time_in.count > 0 ? static_cast<double>(bytes_in.count) / time_in.count * 1e6 : 0;
  }
};

/// Statistics of all storages, and of each that was ever spilled.
class TransferLog {
 public:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] const TransferStats& all() const { return all_; }
  /// Null if the storage was never spilled.
  [[nodiscard]] const TransferStats* of(std::uint32_t storage) const {
    const auto it = by_storage_.find(storage);
    return it == by_storage_.end() ? nullptr : &it->second;
  }

  void note_spill(std::uint32_t storage, Bytes bytes, Clock::time_point start) {
    const Microseconds time = since(start);
    for (TransferStats* stats : {&all_, &by_storage_[storage]}) {
      ++stats->moved_out;
      stats->bytes_out += bytes;
      stats->time_out += time;
    }
  }
  void note_fetch(std::uint32_t storage, Bytes bytes, Clock::time_point start) {
    const Microseconds time = since(start);
    for (TransferStats* stats : {&all_, &by_storage_[storage]}) {
      ++stats->brought_back;
      stats->bytes_in += bytes;
      stats->time_in += time;
    }
  }

 private:
  static Microseconds since(Clock::time_point start) {
    return {std::chrono::duration<double, std::micro>(Clock::now() - start).count()};
  }

  TransferStats all_;
  std::unordered_map<std::uint32_t, TransferStats> by_storage_;
};

}  // namespace reprise::residency
