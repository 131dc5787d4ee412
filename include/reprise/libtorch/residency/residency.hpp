#pragma once
// Residency is the only place where the bytes of a step's storages leave memory and return, while
// user code keeps its tensors.
//
//   resident ──evict──▶ evicted ──attach_bytes──▶ resident     the bytes are freed under the tensors
//      │  └──spill──▶ spilled ──fetch──▶ resident              the bytes are in a file meanwhile
//      └── the last tensor dies ──▶ dead; or the bytes are still needed: orphaned here, orphaned_spilled in the file
//
// In a guided step on Linux, a block of at least two whole pages keeps its address while it is
// spilled. An access through a pointer from any time, on any thread, waits until the bytes are back
// (ThisDevice::spill(), which also counts such a block). Every other storage, and every
// storage of a limited capture, has a tombstone in the place of its bytes: asking for its pointer
// throws, and account() tells device_memory() of its bytes. Residency refers to
// storages weakly, because a strong reference would change what autograd does.

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/residency/storage_record.hpp>
#include <reprise/libtorch/residency/tombstone.hpp>
#include <reprise/libtorch/residency/transfer_stats.hpp>
#include <reprise/libtorch/residency/user_blocks.hpp>
#include <reprise/libtorch/residency/write_watch.hpp>
#include <reprise/libtorch/torch/access_error.hpp>

namespace reprise::residency {

/// Bytes of a storage in this state that are missing from live(), compared with a step without a
/// limit. The number is negative for bytes that only Reprise keeps. The allocator itself counts
/// blocks that are evicted, spilled and restored at their address.
[[nodiscard]] inline Bytes absent_bytes(ResidencyState state, Bytes bytes, bool in_place) {
  switch (state) {
    case ResidencyState::evicted:
    case ResidencyState::spilled: return in_place ? Bytes{} : bytes;
    case ResidencyState::orphaned: return Bytes{} - bytes;
    case ResidencyState::orphaned_spilled: return in_place ? Bytes{} - bytes : Bytes{};
    case ResidencyState::foreign:
    case ResidencyState::resident:
    case ResidencyState::dead: break;
  }
  return {};
}

class Residency {
 public:
  using State = ResidencyState;

  Residency(StorageRecords& records, SpillStore& file, BlockListener& listener,
            UserBlocks::Listening listening = UserBlocks::Listening::on)
      : records_(records),
        file_(file),
        listener_(listener),
        blocks_(records, listener, listening) {}
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;

  /// An evicted storage keeps its address too, if it is large enough. A thread that reads it
  /// through a pointer waits until it is recomputed.
  void keep_pointers() { evicts_in_place_ = ThisDevice::keeps_addresses(); }
  /// The text of a message before and after "'x' was evicted": what to do about it.
  void explain_errors(std::string before, std::string after) {
    emptied_.explain_errors(std::move(before), std::move(after));
  }

  [[nodiscard]] State state(StorageIndex s) const { return at(s).state; }
  [[nodiscard]] Bytes bytes(StorageIndex s) const { return at(s).bytes; }
  /// Whether its bytes can go to the file.
  [[nodiscard]] bool spillable(StorageIndex s) const { return at(s).spillable; }
  [[nodiscard]] bool in_place(StorageIndex s) const { return at(s).in_place; }
  [[nodiscard]] bool in_memory(StorageIndex s) const {
    return state(s) == State::resident || state(s) == State::orphaned;
  }
  /// Whether Residency, and not user code, frees the bytes that are being freed now.
  [[nodiscard]] bool is_freeing() const { return freeing_ > 0; }
  [[nodiscard]] StorageRecords& records() { return records_; }
  [[nodiscard]] WriteWatch& writes() { return writes_; }
  [[nodiscard]] const TransferLog& transfers() const { return transfers_; }

  /// The storage to make tensors over; null if the bytes are not in memory.
  [[nodiscard]] c10::Storage memory_of(StorageIndex s) const {
    if (state(s) == State::orphaned) return at(s).orphan;
    if (state(s) != State::resident && state(s) != State::foreign) return {};
    return c10::Storage(records_.lock(s));
  }

  /// Reads the storage's block: a new block, or a block that an op has resized.
  void look_at(StorageIndex s) { blocks_.look_at(s); }
  /// Other storages have the block too: the storage counts as foreign from now on.
  void note_shared_block(StorageIndex s) {
    writes_.stop(s);
    blocks_.note_shared(s);
  }

  // ── bytes leave ────────────────────────────────────────────────────────────────────────────────

  /// Frees the bytes of a resident storage under its tensors. Does nothing if its last tensor has
  /// just died on another thread.
  void evict(StorageIndex s, const std::string& name) {
    const Freeing freeing(freeing_);
    const auto storage = records_.lock(s);
    if (!storage) return;
    StorageRecord::Residency& it = at(s);
    if (evicts_in_place_ && it.spillable) {
      it.data = storage->_mutable_data_ptr_no_checks().get();
      if (ThisDevice::evict(it.data, listener_, s)) {
        it.in_place = true;
        change(s, State::evicted);
        return;
      }
    }
    const c10::DataPtr bytes = hand_over(s, name);
    blocks_.stop_listening_to(bytes);
  }

  /// As evict(), for bytes that remain in use: an op's result overwrites them. Returns the pointer,
  /// which nobody else may free. The storage must be alive.
  [[nodiscard]] c10::DataPtr hand_over(StorageIndex s, const std::string& name) {
    return empty(s, State::evicted, name + " was evicted");
  }

  /// False if the storage stays resident: its block cannot keep its address, or the system refuses.
  bool spill(StorageIndex s, const std::string& name) {
    const Freeing freeing(freeing_);
    const auto storage = records_.lock(s);
    if (!storage) return true;  // has just died on another thread
    StorageRecord::Residency& it = at(s);
    if (!it.spillable) return false;
    const auto start = std::chrono::steady_clock::now();
    if (blocks_.spills_in_place()) {
      it.data = storage->_mutable_data_ptr_no_checks().get();
      if (!ThisDevice::spill(it.data, listener_, s, file_)) return it.spillable = false;
      it.in_place = true;
      change(s, State::spilled);
    } else {
      it.place = file_.write(storage->_mutable_data_ptr_no_checks().get(),
                             static_cast<std::size_t>(it.bytes.count));
      const c10::DataPtr bytes = empty(s, State::spilled, name + " was spilled");
      blocks_.stop_listening_to(bytes);
    }
    transfers_.note_spill(s, it.bytes, start);
    return true;
  }

  // ── bytes return ───────────────────────────────────────────────────────────────────────────────

  /// Attaches bytes to an evicted storage. They are freed if its last tensor has just died on
  /// another thread.
  void attach_bytes(StorageIndex s, c10::DataPtr&& data) {
    const auto storage = records_.lock(s);
    if (!storage) return;
    StorageRecord::Residency& it = at(s);
    if (it.in_place) {
      if (ThisDevice::bytes_of(data) != it.bytes)
        throw Error(Errc::capture_failed, "a storage of " + format_bytes(it.bytes) +
                                              " cannot be recomputed: there were " +
                                              format_bytes(ThisDevice::bytes_of(data)));
      ThisDevice::fill(it.data, std::move(data));
      change(s, State::resident);
      it.in_place = false;
      return;
    }
    account(s, it.state, State::resident);
    refill(s, std::move(data));
  }

  /// Reads a spilled storage back, inside the limit.
  void fetch(StorageIndex s) {
    if (at(s).in_place) return fetch_in_place(s, true);
    const auto storage = records_.lock(s);
    const bool orphaned = state(s) == State::orphaned_spilled;
    if (!storage && !orphaned) return;
    StorageRecord::Residency& it = at(s);
    const State from = it.state, to = orphaned ? State::orphaned : State::resident;
    account(s, from, to);
    c10::DataPtr data;
    auto start = std::chrono::steady_clock::now();
    try {
      data = ThisDevice::allocator().allocate(static_cast<std::size_t>(it.bytes.count));
      start = std::chrono::steady_clock::now();
      file_.read(it.place, data.get());
    } catch (...) {  // no memory, or the file cannot be read: the storage stays spilled
      account(s, to, from);
      throw;
    }
    file_.release(it.place);
    if (orphaned) {
      it.data = data.get();
      it.orphan = storage_of(it.bytes, std::move(data));
      it.state = to;
    } else {
      refill(s, std::move(data));
    }
    transfers_.note_fetch(s, it.bytes, start);
  }

  /// The same for a block that keeps its address; a pointer access may have opened it.
  void fetch_in_place(StorageIndex s, bool inside_limit) {
    const auto storage = records_.lock(s);  // keeps it alive meanwhile
    StorageRecord::Residency& it = at(s);
    if (inside_limit && ThisDevice::is_spilled(it.data)) listener_.make_room(it.bytes);
    const auto start = std::chrono::steady_clock::now();
    if (ThisDevice::restore(it.data)) transfers_.note_fetch(s, it.bytes, start);
    note_opened(s);
  }
  /// Its pages are readable again.
  void note_opened(StorageIndex s) {
    if (!at(s).in_place) return;
    change(s, state(s) == State::orphaned_spilled ? State::orphaned : State::resident);
    at(s).in_place = false;
  }

  // ── tensors die ────────────────────────────────────────────────────────────────────────────────

  /// The last tensor of a storage with a block has died, or the block was taken from the storage.
  /// Reprise keeps the block.
  void orphan(StorageIndex s, void* data) {
    StorageRecord::Residency& it = at(s);
    it.orphan = storage_of(it.bytes, ThisDevice::take_over(data));
    it.data = data;
    change(s, it.in_place ? State::orphaned_spilled : State::orphaned);
  }
  /// Keeps a plan's copy of a dead storage's contents as the orphan of that storage.
  void adopt_orphan(StorageIndex s, c10::Storage memory, Bytes bytes) {
    remove_copy(bytes);
    at(s).orphan = std::move(memory);
    change(s, State::orphaned);
  }
  /// The last tensor of a storage with a tombstone has died. `needed`: its bytes in the file stay.
  void note_empty_death(StorageIndex s, bool needed) {
    StorageRecord::Residency& it = at(s);
    const bool in_file = it.state == State::spilled;
    it.tombstone = nullptr;
    change(s, in_file && needed ? State::orphaned_spilled : State::dead);
    if (in_file && !needed) file_.release(it.place);
  }
  /// The last tensor has died, and its block is freed.
  void note_death(StorageIndex s) {
    writes_.stop(s);
    change(s, State::dead);
    at(s).in_place = false;
  }
  /// Frees the bytes of an orphaned storage.
  void release_orphan(StorageIndex s) {
    StorageRecord::Residency& it = at(s);
    if (it.state != State::orphaned && it.state != State::orphaned_spilled) return;
    if (it.state == State::orphaned_spilled && !it.in_place) file_.release(it.place);
    change(s, State::dead);
    it.in_place = false;
    const Freeing freeing(freeing_);
    it.orphan = {};
  }
  /// An op has given the storage another block.
  void note_resized(StorageIndex s) {
    writes_.stop(s);
    if (!at(s).in_place) return;
    change(s, State::resident);
    at(s).in_place = false;
  }

  // ── the plan's copies ──────────────────────────────────────────────────────────────────────────

  /// Bytes of Reprise that a step without a limit would not have.
  void add_copy(Bytes bytes) { device_memory().remove_absent(bytes); }
  void remove_copy(Bytes bytes) { device_memory().add_absent(bytes); }

  // ── the end of the step ────────────────────────────────────────────────────────────────────────

  /// Stops all requests and listeners. Evicted and spilled storages stay so: asking for their
  /// pointer throws.
  void let_go() {
    writes_.stop_all();
    for (StorageIndex s = 0; s < records_.size(); ++s) {
      release_orphan(s);
      StorageRecord::Residency& it = at(s);
      if (it.in_place) lose(s);
      if (it.state == State::evicted || it.state == State::spilled) {
        if (it.state == State::spilled) file_.release(it.place);
        change(s, State::dead);
      }
      if (it.state == State::resident) {
        const auto storage = records_.lock(s);
        if (storage && ThisDevice::owns(storage->_mutable_data_ptr_no_checks()))
          blocks_.stop_listening_to(storage->_mutable_data_ptr_no_checks());
        it.state = State::foreign;
      }
      emptied_.forget_tombstone(s);
    }
  }

 private:
  class Freeing {
   public:
    explicit Freeing(int& level) : level_(++level) {}
    ~Freeing() { --level_; }
    Freeing(const Freeing&) = delete;
    Freeing& operator=(const Freeing&) = delete;

   private:
    int& level_;
  };

  [[nodiscard]] StorageRecord::Residency& at(StorageIndex s) { return records_[s].residency; }
  [[nodiscard]] const StorageRecord::Residency& at(StorageIndex s) const {
    return records_[s].residency;
  }

  void account(StorageIndex s, State from, State to) {
    const StorageRecord::Residency& it = at(s);
    const Bytes more =
        absent_bytes(to, it.bytes, it.in_place) - absent_bytes(from, it.bytes, it.in_place);
    if (more > Bytes{}) device_memory().add_absent(more);
    else device_memory().remove_absent(Bytes{} - more);
  }
  void change(StorageIndex s, State to) {
    account(s, at(s).state, to);
    at(s).state = to;
  }

  [[nodiscard]] c10::DataPtr empty(StorageIndex s, State to, const std::string& what) {
    c10::DataPtr bytes = emptied_.replace_by_tombstone(s, what);
    change(s, to);
    return bytes;
  }
  // The storage is alive, and account() has been called.
  void refill(StorageIndex s, c10::DataPtr&& data) {
    blocks_.listen_to(data, s);
    emptied_.remove_tombstone(s, std::move(data));
    at(s).state = State::resident;
  }

  // The storage cannot be restored: its tensors have no bytes, and asking for its pointer says so.
  void lose(StorageIndex s) {
    StorageRecord::Residency& it = at(s);
    change(s, State::dead);
    it.in_place = false;
    const auto storage = records_.lock(s);
    if (!storage) return;
    ThisDevice::set_keeper(it.data, {});
    static_cast<void>(records_.empty(s));
    set_access_error(
        *storage,
        "this tensor was evicted or spilled to stay inside Reprise's budget, and could "
        "not be restored at the end of the step");
  }

  [[nodiscard]] static c10::Storage storage_of(Bytes bytes, c10::DataPtr&& data) {
    return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                              bytes.count, std::move(data),
                                                              &ThisDevice::allocator(), false));
  }

  StorageRecords& records_;
  SpillStore& file_;
  BlockListener& listener_;
  WriteWatch writes_{records_};
  UserBlocks blocks_;
  bool evicts_in_place_ = false;
  int freeing_ = 0;
  EmptiedStorages emptied_{records_, listener_};
  TransferLog transfers_;
};

}  // namespace reprise::residency
