#pragma once
// A step inside a limit that eager could not run in: storages that the running op does not read are
// moved out to a file, and brought back before the op that reads them (μ-TWO's Algorithm A).
//
//   limit 100 MiB, live 90 MiB:   conv asks for 30 MiB ──▶ what was used longest ago and is not conv's: 25 MiB moved out ──▶ live 95
//
// The limit is enforced where memory is taken: before an allocation would pass it, also in the
// middle of an op. What the allocator holds is at most the limit, exactly, or an error names the op
// and what it needs at once.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/device/cpu/spill_file.hpp>
#include <reprise/libtorch/torch/storage_guard.hpp>
#include <reprise/libtorch/torch/storage_table.hpp>

namespace reprise {

/// What moving cost.
struct TransferStats {
  std::int64_t moved_out = 0, brought_back = 0;  ///< how often
  Bytes bytes_out{}, bytes_in{};
  Microseconds time_out{}, time_in{};

  /// Bytes a second; 0 where nothing was moved.
  [[nodiscard]] double bandwidth_out() const {
    return time_out.count > 0 ? static_cast<double>(bytes_out.count) / time_out.count * 1e6 : 0;
  }
  [[nodiscard]] double bandwidth_in() const {
    return time_in.count > 0 ? static_cast<double>(bytes_in.count) / time_in.count * 1e6 : 0;
  }
};

/// Keeps what this thread allocates inside a limit for as long as it is in scope. Call `begin_op`
/// with what an op reads before it runs and `end_op` with what it made afterwards.
class MemoryLimit final : public MemoryGate {
 public:
  explicit MemoryLimit(Bytes limit, std::filesystem::path folder = {})
      : limit_(limit), file_(std::move(folder)), outer_(std::exchange(memory_gate(), this)) {
    if (outer_ != nullptr) {
      memory_gate() = outer_;
      throw Error(Errc::bad_argument, "a memory limit is already in force on this thread");
    }
    if (limit <= Bytes{0}) {
      memory_gate() = nullptr;
      throw Error(Errc::bad_argument, "a memory limit must be greater than zero");
    }
    PageBlocks::limit_here() = limit;
  }

  /// Everything that is still moved out comes back, over the limit if need be: every tensor is
  /// readable afterwards.
  ~MemoryLimit() override {
    memory_gate() = nullptr;
    PageBlocks::limit_here() = {};
    page_blocks().stop();
    for (StorageIndex s = 0; s < moved_.size(); ++s) {
      try {
        bring_back(s);
        // the file cannot be read: the tensor stays empty, and reading it throws
      } catch (const std::exception&) {
        stones_[s]->limit = nullptr;
      }
    }
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  [[nodiscard]] Bytes limit() const { return limit_; }
  /// The limit is for what was held when this thread's step began, and what the step takes: other
  /// threads take what they like.
  void leave_out_other_threads(Bytes held_at_start) {
    if (StepBytes::here() != nullptr) others_ = held_at_start;
  }
  [[nodiscard]] const TransferStats& stats() const { return stats_; }
  /// What moving this storage cost, where it was moved.
  [[nodiscard]] const TransferStats& stats_of(StorageIndex s) const { return per_storage_.at(s); }
  [[nodiscard]] StorageIndex find(const at::Tensor& tensor) const {
    return tensor.has_storage() ? table_.find(tensor.storage().unsafeGetStorageImpl()) : no_storage;
  }

  /// These were there before the step and may be moved out too.
  void include(const at::Tensor& tensor) { know(tensor); }

  /// The op reads or writes these: they are brought back and stay until end_op.
  void begin_op(std::string name, const std::vector<at::Tensor>& reads) {
    op_ = std::move(name);
    ++clock_;
    pinned_.clear();
    for (const at::Tensor& tensor : reads) pin(tensor);
    for (StorageIndex s : pinned_) bring_back(s);
  }

  void end_op(const std::vector<at::Tensor>& results) {
    for (const at::Tensor& tensor : results)
      if (const StorageIndex s = know(tensor); s != no_storage) last_use_[s] = clock_;
    pinned_.clear();
    op_.clear();
  }

  /// Brings everything back that is still alive, inside the limit. Throws where that does not fit;
  /// then nothing is lost, and the rest comes back when the limit goes out of scope.
  void bring_all_back() {
    op_ = "the end of the step";
    pinned_.clear();
    for (StorageIndex s = 0; s < moved_.size(); ++s)
      if (table_.alive(s)) pinned_.push_back(s);
    for (StorageIndex s : pinned_) bring_back(s);
    pinned_.clear();
  }

  [[nodiscard]] Microseconds time_spent() const override {
    return stats_.time_out + stats_.time_in;
  }

  void before_allocation(Bytes bytes) override {
    if (held() + bytes <= limit_) return;
    while (held() + bytes > limit_) {
      const StorageIndex victim = used_longest_ago();
      if (victim == no_storage) throw too_small(bytes);
      move_out(victim);
    }
  }

 private:
  struct Moved {
    bool out = false;
    SpillFile::Place place{};
  };
  /// Lies in a storage that is moved out, in the place of its bytes: its deleter runs when the
  /// storage dies out there.
  struct Tombstone {
    MemoryLimit* limit;
    StorageIndex storage;

    static void bury(void* self) {
      const auto* stone = static_cast<Tombstone*>(self);
      if (stone->limit != nullptr) stone->limit->died(stone->storage);
      delete stone;
    }
  };

  [[nodiscard]] Bytes held() const {
    return others_ ? *others_ + bytes_of_step().live() : cpu_memory().live();
  }

  StorageIndex know(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return no_storage;
    const StorageIndex known = find(tensor);
    if (known != no_storage) return known;
    if (!CountingAllocator::owns(tensor.storage().data_ptr())) return no_storage;
    const StorageIndex s = table_.add(tensor.storage());
    last_use_.push_back(clock_);
    moved_.emplace_back();
    stones_.push_back(nullptr);
    per_storage_.emplace_back();
    return s;
  }

  void pin(const at::Tensor& tensor) {
    const StorageIndex s = know(tensor);
    if (s == no_storage) return;
    last_use_[s] = clock_;
    pinned_.push_back(s);
  }

  [[nodiscard]] bool is_pinned(StorageIndex s) const {
    for (StorageIndex p : pinned_)
      if (p == s) return true;
    return false;
  }

  StorageIndex used_longest_ago() {
    StorageIndex victim = no_storage;
    for (StorageIndex s = 0; s < moved_.size(); ++s) {
      if (moved_[s].out || !table_.alive(s) || is_pinned(s)) continue;
      if (!movable(s)) continue;
      if (victim == no_storage || last_use_[s] < last_use_[victim]) victim = s;
    }
    return victim;
  }

  // Not what another allocator made, nor what has become empty or copy-on-write meanwhile.
  [[nodiscard]] bool movable(StorageIndex s) const {
    const auto storage = table_.lock(s);
    return storage && CountingAllocator::owns(storage->_mutable_data_ptr_no_checks());
  }

  void died(StorageIndex s) {
    cpu_memory().move_out(-moved_[s].place.bytes);
    forget(s);
  }

  void forget(StorageIndex s) {
    file_.release(moved_[s].place);
    moved_[s] = {};
    stones_[s] = nullptr;
  }

  void move_out(StorageIndex s) {
    const auto storage = table_.lock(s);
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    const Bytes bytes = CountingAllocator::bytes_of(data);
    const auto start = std::chrono::steady_clock::now();
    const SpillFile::Place place = file_.write(data.get(), static_cast<std::size_t>(bytes.count));
    stones_[s] = new Tombstone{this, s};
    moved_[s] = {true, place};
    table_.empty(s, {nullptr, stones_[s], &Tombstone::bury, c10::Device(c10::DeviceType::CPU)})
        .clear();
    cpu_memory().move_out(bytes.count);
    guard_empty(*storage);
    const Microseconds time{
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count()};
    for (TransferStats* stats : {&stats_, &per_storage_[s]}) {
      ++stats->moved_out;
      stats->bytes_out += bytes;
      stats->time_out += time;
    }
  }

  void bring_back(StorageIndex s) {
    if (!moved_[s].out) return;
    const auto storage = table_.lock(s);
    const SpillFile::Place place = moved_[s].place;
    cpu_memory().move_out(-place.bytes);
    c10::DataPtr data;
    coming_back_ = s;
    try {
      // may move others out
      data = counting_allocator().allocate(static_cast<std::size_t>(place.bytes));
    } catch (...) {
      coming_back_ = no_storage;
      cpu_memory().move_out(place.bytes);
      throw;
    }
    coming_back_ = no_storage;
    const auto start = std::chrono::steady_clock::now();
    file_.read(place, data.get());
    unguard_storage(*storage);
    stones_[s]->limit = nullptr;  // it did not die
    table_.refill(s, std::move(data));
    const Microseconds time{
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
            .count()};
    forget(s);
    for (TransferStats* stats : {&stats_, &per_storage_[s]}) {
      ++stats->brought_back;
      stats->bytes_in += Bytes{place.bytes};
      stats->time_in += time;
    }
  }

  // A pointer to what is moved out is never null: asking for one throws and says why. Where
  // LibTorch has no such hook, nothing can.
  static void guard_empty(c10::StorageImpl& storage) {
    guard_storage(storage,
                  "this tensor is moved out to stay inside Reprise's memory limit; use it in an "
                  "op, or read it after the step");
  }

  [[nodiscard]] Error too_small(Bytes bytes) const {
    Bytes needed = held() + bytes;
    // what it reads and could not even be brought back; `bytes` is for the first of them
    for (StorageIndex s : pinned_)
      if (moved_[s].out && s != coming_back_) needed += Bytes{moved_[s].place.bytes};
    return Error(
        Errc::budget_unreachable,
        (op_.empty() ? std::string("an allocation outside of any op") : op_) + " needs " +
            format_bytes(needed) + " (" + std::to_string(needed.count) +
            " bytes) at once: what it reads and makes, and what cannot be moved. The limit is " +
            format_bytes(limit_) + " (" + std::to_string(limit_.count) + " bytes)");
  }

  Bytes limit_;
  // where the limit is for one step alone: what the process held beside it
  std::optional<Bytes> others_{};
  SpillFile file_;
  MemoryGate* outer_;
  StorageTable table_;
  std::vector<std::uint64_t> last_use_;     // by StorageIndex, in ops
  std::vector<Moved> moved_;                // by StorageIndex
  std::vector<Tombstone*> stones_;          // by StorageIndex: of what is moved out
  std::vector<TransferStats> per_storage_;  // by StorageIndex
  std::vector<StorageIndex> pinned_;
  StorageIndex coming_back_ = no_storage;
  std::uint64_t clock_ = 0;
  std::string op_;
  TransferStats stats_;
};

}  // namespace reprise
