#pragma once
// StorageEvents reports what happens to a step's storages outside of ops, on any thread: the last
// tensor dies, user code gives the storage another block, or a pointer is used.
//
//   thread B: the last tensor of s dies ──▶ intercept ──▶ no op runs on A:  the owner decides at once whether the bytes stay
//                                                    └──▶ an op runs on A:  queued, the bytes stay until process_pending()
//
// Locks, in the order in which threads wait for them:
//
//   1. the step's guard             held by a thread that records an op or works on the step (EntryScope)
//   2. ThisDevice::keepers()     held while a block is being freed, and while the queue is read
//   3. the lock of protected blocks, the queue of openings, the store: held for a moment, nothing is waited for with one in hand
//
// A thread that already has lock 2 or 3 never waits for the guard: it tries to take the guard, and
// queues its event if that fails. Only the outermost EntryScope processes the queue. A storage is
// therefore never freed while the Rematerializer is restoring it.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <reprise/libtorch/residency/residency.hpp>

namespace reprise::residency {

/// Decides what happens to storages that die or change behind the dispatcher. Called with the
/// step's guard held.
struct StorageOwner {
  virtual ~StorageOwner() = default;
  /// The last tensor over it has died; true if its bytes are still needed.
  virtual bool died(StorageIndex s) = 0;
  /// `bytes` are about to be restored. May free other memory first, or throw.
  virtual void make_room(Bytes bytes) = 0;
  /// User code is about to read or write the storage through a pointer. May throw.
  virtual void touched(StorageIndex s, bool writes) = 0;
  /// The same after the fact: user code has read or written already.
  virtual void was_touched(StorageIndex s, bool writes) = 0;
  /// User code has given the storage another block, or none. The old contents are available only
  /// during this call, as those of an orphaned storage.
  virtual void exchanged(StorageIndex s) = 0;
  /// Whether an op of the user's, or a recomputation, runs on this thread.
  [[nodiscard]] virtual bool in_op() const = 0;
};

class StorageEvents final : public BlockListener {
 public:
  StorageEvents(StorageRecords& records, SpillStore& file, std::recursive_mutex& guard,
                StorageOwner& owner)
      : records_(records), guard_(guard), owner_(owner), residency_(records, file, *this) {
    ThisDevice::listen(this);
  }
  ~StorageEvents() override { let_go(); }
  StorageEvents(const StorageEvents&) = delete;
  StorageEvents& operator=(const StorageEvents&) = delete;

  [[nodiscard]] Residency& residency() { return residency_; }
  [[nodiscard]] const Residency& residency() const { return residency_; }

  /// Adds the storages that the recorder has registered since the last call. Returns the first of
  /// them.
  StorageIndex look_at_new_storages() {
    const StorageIndex first = known_;
    for (; known_ < records_.size(); ++known_) residency_.look_at(known_);
    return first;
  }

  /// Processes what other threads have queued while an op ran. For the outermost EntryScope.
  void process_pending() {
    if (has_frees_.load(std::memory_order_acquire)) process_frees(every_storage, asks_owner);
    if (has_openings_.load(std::memory_order_acquire)) process_openings();
  }

  /// The same for one storage whose last tensor has died. Does nothing if that is not queued yet.
  void process_free_of(StorageIndex s) {
    process_frees([s](StorageIndex dead) { return dead == s; }, asks_owner);
  }

  /// Call it before a storage is read or restored. If its last tensor has just died on another
  /// thread, which is about to report that, its bytes become orphaned.
  void keep_if_dying(StorageIndex s) {
    const ResidencyState before = residency_.state(s);
    if (records_.alive(s) ||
        (before != ResidencyState::resident && before != ResidencyState::evicted &&
         before != ResidencyState::spilled))
      return;
    for (int i = 0; i < max_waits && residency_.state(s) == before; ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
      process_frees([s](StorageIndex dead) { return dead == s; }, keeps_all);
    }
  }

  /// The owner is called before a write through a pointer.
  void watch_writes(StorageIndex s) { residency_.writes().start(s, *this); }

  /// Stops all requests and listeners.
  void let_go() {
    const std::lock_guard lock(ThisDevice::keepers());
    // also for a storage that is dying on another thread, which waits for the lock
    ThisDevice::unlisten(this);
    process_frees(every_storage, keeps_none);
    residency_.let_go();
  }

  // ── BlockKeeper: a block is about to be freed ──────────────────────────────────────────────────

  bool keep(void* data, std::uint32_t s) override {
    const std::unique_lock step(guard_, std::try_to_lock);
    if (!step.owns_lock()) {  // an op runs on another thread: the storage must not change under it
      queue({s, data, nullptr});
      return true;
    }
    if (records_.alive(s)) return exchange(s, data);
    residency_.writes().stop(s);
    records_.forget(s);
    const bool evicted = residency_.state(s) == ResidencyState::evicted;  // no bytes
    if (!owner_.died(s) || evicted) {
      residency_.note_death(s);
      return false;
    }
    residency_.orphan(s, data);
    return true;
  }

  bool tombstone_freed(Tombstone& tombstone) override {
    const std::unique_lock step(guard_, std::try_to_lock);
    if (!step.owns_lock()) {
      queue({tombstone.storage, nullptr, &tombstone});
      return true;
    }
    note_tombstone_freed(tombstone.storage, asks_owner);
    return false;
  }

  void make_room(Bytes bytes) override { owner_.make_room(bytes); }

  // ── BlockOwner: a pointer is used, on any thread, at any time ──────────────────────────────────

  Entry try_enter() override {
    if (guard_.try_lock()) return Entry::entered;
    return at::in_parallel_region() ? Entry::never : Entry::busy;
  }
  void leave() override { guard_.unlock(); }
  void touched(std::uint32_t s, bool writes) override {
    try {
      owner_.touched(s, writes);
      open(s);
    } catch (...) {  // not enough memory: exceeds the limit
      try {
        open(s);
      } catch (...) {  // it cannot be read: it stays closed, and the reader gets an error
      }
    }
    if (writes) residency_.writes().stop(s);
  }
  void was_opened(std::uint32_t s, bool writes) override {
    const std::lock_guard lock(openings_guard_);
    openings_.push_back({s, writes});
    has_openings_.store(true, std::memory_order_release);
  }

 private:
  struct Free {
    StorageIndex storage = 0;
    void* data = nullptr;            // null if the storage was empty
    Tombstone* tombstone = nullptr;  // of an empty storage; StorageEvents deletes it
  };
  struct Opening {
    StorageIndex storage = 0;
    bool writes = false;
  };
  enum Needed : std::uint8_t { asks_owner, keeps_all, keeps_none };

  static bool every_storage(StorageIndex /*s*/) { return true; }

  // With keepers() held.
  void queue(Free freed) {
    frees_.push_back(freed);
    has_frees_.store(true, std::memory_order_release);
  }

  [[nodiscard]] bool is_needed(StorageIndex s, Needed needed) {
    switch (needed) {
      case asks_owner: return owner_.died(s);
      case keeps_none: return false;
      case keeps_all: break;
    }
    static_cast<void>(owner_.died(s));
    return true;
  }

  template <class Which>
  void process_frees(const Which& which, Needed needed) {
    const std::lock_guard lock(ThisDevice::keepers());
    // one by one: the other events can be found meanwhile, and stay queued if this one throws
    for (;;) {
      const auto it = std::ranges::find_if(frees_, [&](const Free& f) { return which(f.storage); });
      if (it == frees_.end()) break;
      const Free freed = *it;
      frees_.erase(it);
      has_frees_.store(!frees_.empty(), std::memory_order_relaxed);
      process(freed, needed);
    }
  }
  void process(const Free& freed, Needed needed) {
    const StorageIndex s = freed.storage;
    if (freed.tombstone != nullptr) {
      if (freed.tombstone->listener != nullptr) note_tombstone_freed(s, needed);
      delete freed.tombstone;
      return;
    }
    if (records_.alive(s)) {
      if (!exchange(s, freed.data)) ThisDevice::take_over(freed.data).clear();
      return;
    }
    records_.forget(s);
    if (is_needed(s, needed) && residency_.state(s) != ResidencyState::evicted)
      return residency_.orphan(s, freed.data);
    residency_.note_death(s);
    ThisDevice::take_over(freed.data).clear();
  }

  void note_tombstone_freed(StorageIndex s, Needed needed) {
    if (records_.alive(s)) return exchange_empty(s);
    records_.forget(s);
    residency_.note_empty_death(s, is_needed(s, needed));
  }

  // Pages that other threads have opened, or written, while an op ran.
  void process_openings() {
    std::vector<Opening> now;
    {
      const std::lock_guard lock(openings_guard_);
      now.swap(openings_);
      has_openings_.store(false, std::memory_order_relaxed);
    }
    for (const Opening& opening : now) residency_.note_opened(opening.storage);
    for (const Opening& opening : now) {
      owner_.was_touched(opening.storage, opening.writes);
      if (opening.writes) residency_.writes().stop(opening.storage);
    }
  }

  // An evicted storage has nothing to fetch.
  void open(StorageIndex s) {
    if (residency_.in_place(s) && residency_.state(s) != ResidencyState::evicted)
      residency_.fetch_in_place(s, false);
  }

  // ── user code gives a living storage another block ─────────────────────────────────────────────

  // The block is about to be freed because an op, or user code without an op, has resized the
  // storage. False if the allocator shall free the block.
  bool exchange(StorageIndex s, void* data) {
    if (owner_.in_op()) {
      residency_.note_resized(s);
      return false;
    }
    const bool evicted = residency_.state(s) == ResidencyState::evicted;  // at its address
    if (evicted) residency_.note_death(s);
    else residency_.orphan(s, data);
    tell_of_exchange(s);
    return !evicted;
  }
  // The same for an empty storage: it got a block instead of its tombstone.
  void exchange_empty(StorageIndex s) {
    residency_.note_empty_death(s, true);
    records_.note_filled(s);
    if (const auto storage = records_.lock(s)) clear_access_error(*storage);
    tell_of_exchange(s);
  }
  void tell_of_exchange(StorageIndex s) {
    try {
      owner_.exchanged(s);
    } catch (...) {  // reading a value that could not be recomputed gives an error
    }
    residency_.writes().stop(s);
    residency_.release_orphan(s);
    residency_.look_at(s);
  }

  // waits of at least 20 us: enough for a thread that is between two instructions
  static constexpr int max_waits = 5000;

  StorageRecords& records_;
  std::recursive_mutex& guard_;
  StorageOwner& owner_;
  Residency residency_;
  StorageIndex known_ = 0;
  std::deque<Free> frees_;  // under keepers()
  std::atomic<bool> has_frees_{false};
  std::mutex openings_guard_;
  std::vector<Opening> openings_;
  std::atomic<bool> has_openings_{false};
};

}  // namespace reprise::residency
