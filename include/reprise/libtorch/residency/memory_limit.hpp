#pragma once
// MemoryLimit keeps a step inside a limit that eager could not keep. It spills storages that the
// running op does not read, and fetches them before the op that reads them (μ-TWO's Algorithm A).
//
//   limit 100 MiB, live 90 MiB:   conv asks for 30 MiB ──▶ the least recently used storage not read by conv: 25 MiB spilled ──▶ live 95
//
// The limit applies to every allocation, also in the middle of an op. The live bytes never exceed
// the limit, or an error names the op and the bytes that it needs at once. Residency moves the
// bytes; this header only chooses.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/device/cpu/spill_file.hpp>
#include <reprise/libtorch/residency/residency.hpp>

namespace reprise::residency {

/// Keeps this thread's allocations inside a limit until the end of its scope. Call `begin_op` with
/// an op's operands before it runs, and `end_op` with its results afterwards.
class MemoryLimit final : public MemoryGate {
 public:
  explicit MemoryLimit(Bytes limit, std::filesystem::path folder = {})
      : limit_(limit), file_(std::move(folder)) {
    if (memory_gate() != nullptr)
      throw Error(Errc::bad_argument, "a memory limit is already in force on this thread");
    if (limit <= Bytes{0})
      throw Error(Errc::bad_argument, "a memory limit must be greater than zero");
    residency_.explain_errors("",
                              " (its memory limit): use it in an op, or read it after the step");
    memory_gate() = this;
    PageBlocks::limit_here() = limit;
  }

  /// Fetches everything that is still spilled, above the limit if necessary: every tensor is
  /// readable afterwards.
  ~MemoryLimit() override {
    memory_gate() = nullptr;
    PageBlocks::limit_here() = {};
    page_blocks().stop();
    for (StorageIndex s = 0; s < records_.size(); ++s) {
      try {
        if (is_spilled(s)) residency_.fetch(s);
        // the file cannot be read: the tensor stays empty, and reading it throws
      } catch (const std::exception&) {
      }
    }
    residency_.let_go();
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  [[nodiscard]] Bytes limit() const { return limit_; }
  /// The limit bounds the bytes when this thread's step began plus the step's own bytes. Other
  /// threads' allocations do not count.
  void leave_out_other_threads(Bytes held_at_start) {
    if (StepBytes::here() != nullptr) others_ = held_at_start;
  }
  [[nodiscard]] const TransferStats& stats() const { return residency_.transfers().all(); }
  /// The cost of spilling this storage; null if it was never spilled.
  [[nodiscard]] const TransferStats* stats_of(StorageIndex s) const {
    return residency_.transfers().of(s);
  }
  [[nodiscard]] StorageIndex find(const at::Tensor& tensor) const {
    return tensor.has_storage() ? records_.find(tensor.storage().unsafeGetStorageImpl())
                                : no_storage;
  }

  /// Adds a tensor from before the step that may be spilled too.
  void include(const at::Tensor& tensor) { add(tensor); }

  /// The op reads or writes these tensors: they are fetched and stay until end_op.
  void begin_op(std::string name, const std::vector<at::Tensor>& reads) {
    op_ = std::move(name);
    ++clock_;
    pinned_.clear();
    for (const at::Tensor& tensor : reads) pin(tensor);
    for (StorageIndex s : pinned_) fetch(s);
  }

  void end_op(const std::vector<at::Tensor>& results) {
    for (const at::Tensor& tensor : results)
      if (const StorageIndex s = add(tensor); s != no_storage) records_[s].use.last_use = clock_;
    pinned_.clear();
    op_.clear();
  }

  /// Fetches everything that is still alive, inside the limit. Throws if that does not fit. Nothing
  /// is lost then: the rest is fetched when the limit goes out of scope.
  void fetch_all() {
    op_ = "the end of the step";
    pinned_.clear();
    for (StorageIndex s = 0; s < records_.size(); ++s)
      if (records_.alive(s)) pinned_.push_back(s);
    for (StorageIndex s : pinned_) fetch(s);
    pinned_.clear();
  }

  [[nodiscard]] Microseconds time_spent() const override {
    return stats().time_out + stats().time_in;
  }

  void before_allocation(Bytes bytes) override {
    while (held() + bytes > limit_) {
      const StorageIndex victim = used_longest_ago();
      if (victim == no_storage) throw too_small(bytes);
      residency_.spill(victim, "this tensor");
    }
  }

 private:
  /// Forgets a spilled storage that dies. A resident storage's owner frees its block.
  struct Listener final : BlockListener {
    explicit Listener(MemoryLimit& owner) : limit(owner) {}
    bool tombstone_freed(Tombstone& tombstone) override {
      limit.residency_.note_empty_death(tombstone.storage, false);
      return false;
    }
    bool keep(void* /*data*/, std::uint32_t /*tag*/) override { return false; }
    void make_room(Bytes bytes) override { limit.before_allocation(bytes); }
    Entry try_enter() override { return Entry::never; }
    void leave() override {}
    void touched(std::uint32_t /*tag*/, bool /*writes*/) override {}
    void was_opened(std::uint32_t /*tag*/, bool /*writes*/) override {}

    MemoryLimit& limit;
  };

  [[nodiscard]] Bytes held() const {
    return others_ ? *others_ + bytes_of_step().live() : cpu_memory().live();
  }
  [[nodiscard]] bool is_spilled(StorageIndex s) const {
    return residency_.state(s) == ResidencyState::spilled;
  }

  StorageIndex add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return no_storage;
    const StorageIndex known = find(tensor);
    if (known != no_storage) return known;
    if (!CountingAllocator::owns(tensor.storage().data_ptr())) return no_storage;
    const StorageIndex s = records_.add(tensor.storage());
    records_[s].use.last_use = clock_;
    residency_.look_at(s);
    return s;
  }

  void pin(const at::Tensor& tensor) {
    const StorageIndex s = add(tensor);
    if (s == no_storage) return;
    records_[s].use.last_use = clock_;
    pinned_.push_back(s);
  }

  // False for a storage of another allocator, and for one that became empty or copy-on-write
  // meanwhile.
  [[nodiscard]] bool may_be_spilled(StorageIndex s) {
    if (is_spilled(s) || !records_.alive(s) || std::ranges::find(pinned_, s) != pinned_.end())
      return false;
    residency_.look_at(s);
    return residency_.state(s) == ResidencyState::resident;
  }
  [[nodiscard]] StorageIndex used_longest_ago() {
    StorageIndex victim = no_storage;
    for (StorageIndex s = 0; s < records_.size(); ++s)
      if (may_be_spilled(s) &&
          (victim == no_storage || records_[s].use.last_use < records_[victim].use.last_use))
        victim = s;
    return victim;
  }

  void fetch(StorageIndex s) {
    if (!is_spilled(s)) return;
    fetched_ = s;
    const struct Done {
      StorageIndex& fetched;
      ~Done() { fetched = no_storage; }
    } done{fetched_};
    residency_.fetch(s);
  }

  [[nodiscard]] Error too_small(Bytes bytes) const {
    Bytes needed = held() + bytes;
    // the op's operands that could not be fetched; `bytes` is for the first of them
    for (StorageIndex s : pinned_)
      if (is_spilled(s) && s != fetched_) needed += residency_.bytes(s);
    return Error(
        Errc::budget_unreachable,
        (op_.empty() ? std::string("an allocation outside of any op") : op_) + " needs " +
            format_bytes(needed) + " (" + std::to_string(needed.count) +
            " bytes) at once: what it reads and makes, and what cannot be moved. The limit is " +
            format_bytes(limit_) + " (" + std::to_string(limit_.count) + " bytes)");
  }

  Bytes limit_;
  // for a limit on one step alone: the other live bytes of the process
  std::optional<Bytes> others_{};
  SpillFile file_;
  StorageRecords records_;
  Listener listener_{*this};
  Residency residency_{records_, file_, listener_, UserBlocks::Listening::off};
  std::vector<StorageIndex> pinned_;
  StorageIndex fetched_ = no_storage;  // the storage that is being fetched
  std::uint64_t clock_ = 0;
  std::string op_;
};

}  // namespace reprise::residency
