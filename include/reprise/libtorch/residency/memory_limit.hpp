#pragma once
// A step inside a limit that eager could not run in: storages that the running op does not read are
// spilled to a file, and fetched before the op that reads them (μ-TWO's Algorithm A).
//
//   limit 100 MiB, live 90 MiB:   conv asks for 30 MiB ──▶ what was used longest ago and is not conv's: 25 MiB spilled ──▶ live 95
//
// The limit is enforced where memory is taken: before an allocation would pass it, also in the
// middle of an op. What the allocator holds is at most the limit, exactly, or an error names the op
// and what it needs at once. Bytes leave and return through Residency; here is only the choice.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/budget_errors.hpp>
#include <reprise/base/error.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/residency/residency.hpp>

namespace reprise::residency {

/// Keeps what this thread allocates inside a limit for as long as it is in scope. Call `begin_op`
/// with what an op reads before it runs and `end_op` with what it made afterwards.
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
    limit_here() = limit;
  }

  /// Everything that is still spilled is fetched, over the limit if need be: every tensor is
  /// readable afterwards.
  ~MemoryLimit() override {
    memory_gate() = nullptr;
    limit_here() = {};
    ThisDevice::stop_caching();
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
  /// The limit is for what was held when this thread's step began, and what the step takes: other
  /// threads take what they like.
  void leave_out_other_threads(Bytes held_at_start) {
    if (StepBytes::here() != nullptr) others_ = held_at_start;
  }
  [[nodiscard]] const TransferStats& stats() const { return residency_.transfers().all(); }
  /// What spilling this storage cost; null if it was never spilled.
  [[nodiscard]] const TransferStats* stats_of(StorageIndex s) const {
    return residency_.transfers().of(s);
  }
  [[nodiscard]] StorageIndex find(const at::Tensor& tensor) const {
    return tensor.has_storage() ? records_.find(tensor.storage().unsafeGetStorageImpl())
                                : no_storage;
  }

  /// These were there before the step and may be spilled too.
  void include(const at::Tensor& tensor) { add(tensor); }

  /// The op reads or writes these: they are fetched and stay until end_op.
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

  /// Fetches everything that is still alive, inside the limit. Throws if that does not fit; then
  /// nothing is lost, and the rest is fetched when the limit goes out of scope.
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
  /// A spilled storage that dies is forgotten; whoever holds one in memory frees its block.
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
    return others_ ? *others_ + bytes_of_step().live() : device_memory().live();
  }
  [[nodiscard]] bool is_spilled(StorageIndex s) const {
    return residency_.state(s) == ResidencyState::spilled;
  }

  StorageIndex add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return no_storage;
    const StorageIndex known = find(tensor);
    if (known != no_storage) return known;
    if (!ThisDevice::owns(tensor.storage().data_ptr())) return no_storage;
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

  // Not what another allocator made, nor what has become empty or copy-on-write meanwhile.
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
    // what it reads and could not even be fetched; `bytes` is for the first of them
    for (StorageIndex s : pinned_)
      if (is_spilled(s) && s != fetched_) needed += residency_.bytes(s);
    return Error(Errc::budget_unreachable, needs_at_once_text(op_, needed, limit_));
  }

  Bytes limit_;
  // if the limit is for one step alone: what the process held in addition to it
  std::optional<Bytes> others_{};
  SpillStore file_;
  StorageRecords records_;
  Listener listener_{*this};
  Residency residency_{records_, file_, listener_, UserBlocks::Listening::off};
  std::vector<StorageIndex> pinned_;
  StorageIndex fetched_ = no_storage;  // what is being fetched
  std::uint64_t clock_ = 0;
  std::string op_;
};

}  // namespace reprise::residency
