#pragma once
// Where the bytes of each storage of a step are, while the user's code goes on holding its tensors.
//
//   resident ──drop──▶ dropped ──put_back──▶ resident          the bytes are freed under whoever holds the tensor
//      │  └──move_out──▶ moved_out ──bring_in──▶ resident      the bytes lie in a file meanwhile; the block keeps its address
//      └── the last tensor dies ──▶ gone; or the bytes are still wanted: held here, or held_out in the file
//
// Whoever touches what is moved out, through a pointer from any time and on any thread, waits until
// it is there again (protected_blocks.hpp; elsewhere than on Linux it comes back at another
// address). So does whoever writes to what something dropped would be made from, where that is
// watched: what is dropped is made before it is written.
//
// Tensors and storages are held weakly: a strong pointer would change what autograd does. The death
// of a resident storage is told by the allocator (BlockKeeper), that of an emptied one by a
// tombstone that lies in the place of its bytes. One that another thread tells of while an op runs
// is dealt with at the next catch_up().

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/device/cpu/spill_file.hpp>
#include <reprise/libtorch/record/memory_limit.hpp>
#include <reprise/libtorch/record/recorder.hpp>
#include <reprise/libtorch/torch/storage_guard.hpp>

namespace reprise {

enum class Where : std::uint8_t {
  foreign,    ///< not from our allocator: never touched
  resident,   ///< under the user's tensors
  held,       ///< the user's tensors are gone, the bytes are kept
  dropped,    ///< the user's tensors are there, the bytes are not
  moved_out,  ///< in a file
  held_out,   ///< in a file, and the user's tensors are gone
  gone,       ///< neither
};

/// Told of deaths, and of pointers that are used.
struct StorageOwner {
  virtual ~StorageOwner() = default;
  /// The last tensor over it has died; true where its bytes are still wanted.
  virtual bool died(StorageIndex s) = 0;
  /// So many bytes are about to come back. May free other memory first, or throw.
  virtual void make_room(Bytes bytes) = 0;
  /// Somebody is about to read it, or to write it, through a pointer. May throw.
  virtual void touched(StorageIndex s, bool writes) = 0;
  /// The same, told too late: it has happened.
  virtual void was_touched(StorageIndex s, bool writes) = 0;
  /// The host has given the storage another block, or none. The old contents are available during
  /// this call, as those of a storage whose tensors have died, and never again.
  virtual void exchanged(StorageIndex s) = 0;
  /// Whether an op runs on this thread, of the user's or again.
  [[nodiscard]] virtual bool in_op() const = 0;
};

class StepStorages final : public BlockKeeper, public BlockOwner {
 public:
  StepStorages(Recorder& recorder, StorageOwner& owner, SpillFile& file)
      : recorder_(recorder), owner_(owner), file_(file) {
    CountingAllocator::listen(this);
  }
  ~StepStorages() override { let_go(); }
  StepStorages(const StepStorages&) = delete;
  StepStorages& operator=(const StepStorages&) = delete;

  /// Takes over what the recorder has come to know since the last time.
  void catch_up() {
    if (has_late_deaths_.load(std::memory_order_acquire)) settle_late_deaths();
    if (has_late_openings_.load(std::memory_order_acquire)) settle_late_openings();
    for (auto s = static_cast<StorageIndex>(spots_.size()); s < table().size(); ++s) {
      spots_.emplace_back();
      look_at(s);
    }
  }
  /// Looks again at a storage that an op has written: it may have been given other memory.
  void look_at(StorageIndex s) {
    const auto storage = table().lock(s);
    if (!storage || spots_[s].where == Where::dropped || spots_[s].where == Where::moved_out)
      return;
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    spots_[s].where = CountingAllocator::owns(data) ? Where::resident : Where::foreign;
    if (spots_[s].where == Where::foreign) return;
    spots_[s].bytes = CountingAllocator::bytes_of(data);
    spots_[s].data = data.get();
    spots_[s].may_move = !ProtectedBlocks::available() || CountingAllocator::can_spill(data.get());
    CountingAllocator::set_keeper(data, this, s);
  }

  /// Other storages have the block as well, whoever lives longest frees it: it is not ours any
  /// more.
  void note_shared_block(StorageIndex s) {
    unwatch_writes(s);
    Spot& spot = spots_[s];
    if (spot.where == Where::resident && spot.data != nullptr)
      CountingAllocator::set_keeper(spot.data, {});
    spot.where = Where::foreign;
    spot.may_move = false;
  }

  /// What is dropped keeps its address too, where it is large enough: whoever reads it through a
  /// pointer waits until it is made again.
  void keep_pointers() { keeps_pointers_ = ProtectedBlocks::available(); }

  [[nodiscard]] std::size_t size() const { return spots_.size(); }
  void reserve(std::size_t storages) { spots_.reserve(storages); }
  [[nodiscard]] Where where(StorageIndex s) const { return spots_[s].where; }
  [[nodiscard]] Bytes bytes(StorageIndex s) const { return spots_[s].bytes; }
  /// Whether its bytes can go to the file: not those of a block so small that it could not keep its
  /// address.
  [[nodiscard]] bool may_move_out(StorageIndex s) const { return spots_[s].may_move; }
  [[nodiscard]] const TransferStats& transfers() const { return transfers_; }

  /// The storage to make tensors over; null where the bytes are not in memory.
  [[nodiscard]] c10::Storage memory_of(StorageIndex s) const {
    if (spots_[s].where == Where::held) return spots_[s].kept;
    if (spots_[s].where != Where::resident && spots_[s].where != Where::foreign) return {};
    return c10::Storage(table().lock(s));
  }

  /// Before it is read or brought back: where its last tensor has just died on another thread,
  /// which is about to tell, its bytes are held.
  void settle_if_dead(StorageIndex s) {
    const Where before = spots_[s].where;
    if (table().alive(s) ||
        (before != Where::resident && before != Where::dropped && before != Where::moved_out))
      return;
    for (int i = 0; i < most_waits && spots_[s].where == before; ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
      settle_late_deaths([&](StorageIndex dead) { return owner_.died(dead) || dead == s; });
    }
  }

  /// Frees the bytes: of a resident storage under its tensors, of a held one for good.
  void drop(StorageIndex s, const std::string& name) {
    if (spots_[s].where == Where::held) return release_held(s);
    const auto storage = table().lock(s);
    if (!storage) return settle_late_deaths();  // has just died on another thread
    if (keeps_pointers_ && spots_[s].may_move) {
      spots_[s].data = storage->_mutable_data_ptr_no_checks().get();
      if (CountingAllocator::evict(spots_[s].data, *this, s)) {
        spots_[s].where = Where::dropped;
        spots_[s].in_place = true;
        return;
      }
    }
    const c10::DataPtr bytes = hand_over(s, name);
    CountingAllocator::set_keeper(bytes, nullptr);
  }

  /// As drop(), of bytes that live on: an op has written its result over them. Gives the pointer
  /// that nobody may free them through. The storage must be alive.
  [[nodiscard]] c10::DataPtr hand_over(StorageIndex s, const std::string& name) {
    const auto storage = table().lock(s);
    c10::DataPtr bytes = bury(s, Where::dropped);
    guard_storage(*storage,
                  what_to_do + name + " was dropped to stay inside Reprise's budget" + or_else);
    return bytes;
  }

  void put_back(StorageIndex s, c10::DataPtr&& data) {
    const auto storage = table().lock(s);
    if (!storage) return;  // has just died on another thread
    if (spots_[s].in_place) {
      if (CountingAllocator::bytes_of(data) != spots_[s].bytes)
        throw Error(Errc::capture_failed, "a storage of " + format_bytes(spots_[s].bytes) +
                                              " cannot be made again: there were " +
                                              format_bytes(CountingAllocator::bytes_of(data)));
      CountingAllocator::fill(spots_[s].data, std::move(data));
      spots_[s].in_place = false;
      spots_[s].where = Where::resident;
      return;
    }
    cpu_memory().move_out(-spots_[s].bytes.count);
    CountingAllocator::set_keeper(data, this, s);
    unearth(s, *storage, std::move(data));
  }

  /// False where it stays: it could not keep its address, or the system does not let it.
  bool move_out(StorageIndex s, const std::string& name) {
    const auto storage = table().lock(s);
    if (!storage) {
      settle_late_deaths();
      return true;
    }
    if (!spots_[s].may_move) return false;
    const auto start = std::chrono::steady_clock::now();
    if (ProtectedBlocks::available()) {
      spots_[s].data = storage->_mutable_data_ptr_no_checks().get();
      if (!CountingAllocator::spill(spots_[s].data, *this, s, file_)) {
        spots_[s].may_move = false;
        return false;
      }
      spots_[s].where = Where::moved_out;
      spots_[s].in_place = true;
    } else {
      spots_[s].place = file_.write(storage->_mutable_data_ptr_no_checks().get(),
                                    static_cast<std::size_t>(spots_[s].bytes.count));
      c10::DataPtr bytes = bury(s, Where::moved_out);
      guard_storage(*storage,
                    what_to_do + name + " is moved out to stay inside Reprise's budget" + or_else);
      CountingAllocator::set_keeper(bytes, nullptr);
    }
    ++transfers_.moved_out;
    transfers_.bytes_out += spots_[s].bytes;
    transfers_.time_out += since(start);
    return true;
  }

  void bring_in(StorageIndex s) {
    if (spots_[s].in_place) return restore(s, true);
    const auto storage = table().lock(s);
    if (!storage && spots_[s].where != Where::held_out) return;
    const bool held = spots_[s].where == Where::held_out;
    cpu_memory().move_out(-spots_[s].bytes.count);
    c10::DataPtr data;
    try {
      data = counting_allocator().allocate(static_cast<std::size_t>(spots_[s].bytes.count));
    } catch (...) {  // what it needs is not there: it stays where it is
      cpu_memory().move_out(spots_[s].bytes.count);
      throw;
    }
    const auto start = std::chrono::steady_clock::now();
    file_.read(spots_[s].place, data.get());
    file_.release(spots_[s].place);
    if (held) {
      hold(s, data.release_context());
      // taken off twice: before the allocation, and as held
      cpu_memory().move_out(spots_[s].bytes.count);
    } else {
      CountingAllocator::set_keeper(data, this, s);
      unearth(s, *storage, std::move(data));
    }
    note_return(s, start);
  }

  // ── what something dropped would be made from ──────────────────────────────────────────────────

  /// Whoever writes to it through a pointer is seen before that happens: on its whole pages. Of the
  /// rest there is a copy to compare with.
  void watch_writes(StorageIndex s) {
    Spot& spot = spots_[s];
    if (!ProtectedBlocks::available() || spot.watched ||
        (spot.where != Where::resident && !spot.in_place) || spot.data == nullptr)
      return;
    const ProtectedBlocks::Pages pages = pages_of(spot);
    if (pages.bytes > 0 && !CountingAllocator::watch_writes(spot.data, *this, s)) return;
    spot.watched = true;
    watched_.push_back(s);
    spot.edges.clear();
    spot.exchanged = false;
    for_each_edge(spot, [&](std::byte* edge, std::size_t bytes) {
      spot.edges.insert(spot.edges.end(), edge, edge + bytes);
    });
  }
  void unwatch_writes(StorageIndex s) {
    Spot& spot = spots_[s];
    if (!std::exchange(spot.watched, false)) return;
    if (pages_of(spot).bytes > 0) CountingAllocator::unwatch_writes(spot.data);
  }
  /// Whether somebody has written where nobody is told.
  [[nodiscard]] bool edges_written(StorageIndex s) const {
    if (!spots_[s].watched || spots_[s].exchanged) return false;
    bool same = true;
    const std::byte* saved = spots_[s].edges.data();
    for_each_edge(spots_[s], [&](std::byte* edge, std::size_t bytes) {
      same = same && std::memcmp(edge, saved, bytes) == 0;
      saved += bytes;
    });
    return !same;
  }
  /// Puts what was there when the watch began in the place of what is there now, and keeps that.
  void exchange_edges(StorageIndex s) {
    std::byte* saved = spots_[s].edges.data();
    spots_[s].exchanged = !spots_[s].exchanged;
    for_each_edge(spots_[s], [&](std::byte* edge, std::size_t bytes) {
      std::swap_ranges(edge, edge + bytes, saved);
      saved += bytes;
    });
  }
  /// Gives up what is held: nobody will read it again.
  void release_held(StorageIndex s) {
    if (spots_[s].where == Where::held_out && spots_[s].in_place) {
      // taken off when it died, and again where it is freed
      cpu_memory().move_out(spots_[s].bytes.count);
      spots_[s].where = Where::gone;
      spots_[s].in_place = false;
      spots_[s].kept = {};
      return;
    }
    if (spots_[s].where != Where::held) return;
    cpu_memory().move_out(spots_[s].bytes.count);
    spots_[s].where = Where::gone;
    spots_[s].kept = {};
  }
  void hold(StorageIndex s, c10::Storage memory) {
    spots_[s].where = Where::held;
    spots_[s].kept = std::move(memory);
  }

  /// Nobody is asked or told any more. What is dropped or moved out stays so.
  void let_go() {
    const std::lock_guard lock(CountingAllocator::keepers());
    // also for one that is dying on another thread and waits for the lock
    CountingAllocator::unlisten(this);
    settle_late_deaths([](StorageIndex) { return false; });
    for (StorageIndex s : std::exchange(watched_, {})) unwatch_writes(s);
    for (StorageIndex s = 0; s < spots_.size(); ++s) {
      release_held(s);
      if (spots_[s].in_place) lose(s);
      if (spots_[s].where == Where::held_out) {
        file_.release(spots_[s].place);
        // to be let go once: a place that is given back twice is given to two
        spots_[s].where = Where::gone;
      }
      // could not be brought back: it exists no more
      if (spots_[s].where == Where::dropped || spots_[s].where == Where::moved_out) {
        if (spots_[s].where == Where::moved_out) file_.release(spots_[s].place);
        cpu_memory().move_out(-spots_[s].bytes.count);
        spots_[s].where = Where::gone;
      }
      if (spots_[s].where == Where::resident) {
        const auto storage = table().lock(s);
        if (storage && CountingAllocator::owns(storage->_mutable_data_ptr_no_checks()))
          CountingAllocator::set_keeper(storage->_mutable_data_ptr_no_checks(), nullptr);
        spots_[s].where = Where::foreign;
      }
      if (spots_[s].stone != nullptr) spots_[s].stone->storages = nullptr;
    }
  }

  bool keep(void* data, std::uint32_t tag) override {
    const std::unique_lock step(recorder_.guard(), std::try_to_lock);
    if (!step.owns_lock()) {  // an op runs on another thread: it must not notice
      late_deaths_.push_back({tag, data});
      has_late_deaths_.store(true, std::memory_order_release);
      return true;
    }
    if (table().alive(tag)) return exchange(tag, data);
    unwatch_writes(tag);
    table().forget(tag);
    const bool dropped = spots_[tag].where == Where::dropped;  // in its place: nothing to keep
    if (!owner_.died(tag) || dropped) {
      spots_[tag].where = Where::gone;
      spots_[tag].in_place = false;
      return false;
    }
    hold(tag, data);
    return true;
  }

  // ── pointers that are used: on any thread, in the middle of whatever it does ───────────────────

  Entry try_enter() override {
    if (recorder_.guard().try_lock()) return Entry::entered;
    return at::in_parallel_region() ? Entry::never : Entry::busy;
  }
  void leave() override { recorder_.guard().unlock(); }
  void touched(std::uint32_t s, bool writes) override {
    try {
      owner_.touched(s, writes);
      if (spots_[s].in_place && spots_[s].where != Where::dropped) restore(s, false);
    } catch (const std::exception&) {  // no room: over the limit then
      try {
        if (spots_[s].in_place && spots_[s].where != Where::dropped) restore(s, false);
      } catch (const std::exception&) {  // it cannot be read: whoever asked sees that it is shut
      }
    }
    if (writes) unwatch_writes(s);
  }
  void was_opened(std::uint32_t s, bool writes) override {
    const std::lock_guard lock(openings_);
    late_openings_.push_back({s, writes});
    has_late_openings_.store(true, std::memory_order_release);
  }

 private:
  /// Lies in an emptied storage; its deleter runs when that storage dies, or is filled again.
  struct Tombstone {
    StepStorages* storages;
    StorageIndex storage;

    static void fall(void* self) {
      const auto* stone = static_cast<Tombstone*>(self);
      {
        const std::lock_guard lock(CountingAllocator::keepers());
        if (stone->storages != nullptr) stone->storages->died_out_there(stone->storage);
      }
      delete stone;
    }
  };

  struct Spot {
    Where where = Where::foreign;
    Bytes bytes{};
    c10::Storage kept{};
    SpillFile::Place place{};
    Tombstone* stone = nullptr;
    void* data = nullptr;  // while it is resident, or moved out in its place
    bool may_move = true;
    bool in_place = false;   // moved out, and where it was
    bool watched = false;    // for writes; data is valid
    bool exchanged = false;  // what was there lies there again, and what is there now in `edges`
    std::vector<std::byte> edges{};  // what lay outside of the whole pages when the watch began
  };

  [[nodiscard]] StorageTable& table() const { return recorder_.storages(); }

  static Microseconds since(std::chrono::steady_clock::time_point start) {
    return {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                .count()};
  }

  void note_return(StorageIndex s, std::chrono::steady_clock::time_point start) {
    ++transfers_.brought_back;
    transfers_.bytes_in += spots_[s].bytes;
    transfers_.time_in += since(start);
  }

  void restore(StorageIndex s, bool inside_limit) {
    Spot& spot = spots_[s];
    if (inside_limit && CountingAllocator::is_spilled(spot.data)) owner_.make_room(spot.bytes);
    const auto start = std::chrono::steady_clock::now();
    if (CountingAllocator::restore(spot.data)) note_return(s, start);
    settle_return(s);
  }
  void settle_return(StorageIndex s) {
    if (!std::exchange(spots_[s].in_place, false)) return;
    spots_[s].where = spots_[s].where == Where::held_out ? Where::held : Where::resident;
  }

  // The file cannot be read: the tensor exists no more, and asking for its pointer says so.
  void lose(StorageIndex s) {
    spots_[s].in_place = false;
    spots_[s].where = Where::gone;
    const auto storage = table().lock(s);
    if (!storage) return;
    CountingAllocator::set_keeper(spots_[s].data, {});
    static_cast<void>(table().empty(s));
    guard_storage(*storage,
                  "this tensor was given up to stay inside Reprise's budget, and could not be "
                  "brought back at the end of the step");
  }

  // What other threads have opened, or written, while an op ran.
  void settle_late_openings() {
    std::vector<LateOpening> late;
    {
      const std::lock_guard lock(openings_);
      late.swap(late_openings_);
      has_late_openings_.store(false, std::memory_order_relaxed);
    }
    for (const LateOpening& opening : late) {
      settle_return(opening.storage);
      owner_.was_touched(opening.storage, opening.writes);
      if (opening.writes) unwatch_writes(opening.storage);
    }
  }

  [[nodiscard]] static ProtectedBlocks::Pages pages_of(const Spot& spot) {
    return ProtectedBlocks::pages_in(spot.data, static_cast<std::size_t>(spot.bytes.count));
  }
  // What lies in front of the whole pages and behind them; all of it where there are none.
  template <class Visit>
  static void for_each_edge(const Spot& spot, const Visit& visit) {
    const ProtectedBlocks::Pages pages = pages_of(spot);
    auto* const begin = static_cast<std::byte*>(spot.data);
    std::byte* const end = begin + spot.bytes.count;
    if (pages.bytes == 0) return visit(begin, static_cast<std::size_t>(end - begin));
    visit(begin, static_cast<std::size_t>(pages.begin - begin));
    visit(pages.begin + pages.bytes, static_cast<std::size_t>(end - pages.begin) - pages.bytes);
  }

  c10::DataPtr bury(StorageIndex s, Where where) {
    auto* stone = new Tombstone{this, s};
    c10::DataPtr bytes =
        table().empty(s, {nullptr, stone, &Tombstone::fall, c10::Device(c10::DeviceType::CPU)});
    spots_[s].stone = stone;
    spots_[s].where = where;
    cpu_memory().move_out(spots_[s].bytes.count);
    return bytes;
  }

  void unearth(StorageIndex s, c10::StorageImpl& storage, c10::DataPtr&& data) {
    std::exchange(spots_[s].stone, nullptr)->storages = nullptr;  // it did not die
    unguard_storage(storage);
    spots_[s].data = data.get();
    spots_[s].may_move = !ProtectedBlocks::available() || CountingAllocator::can_spill(data.get());
    table().refill(s, std::move(data));
    spots_[s].where = Where::resident;
  }

  // The block of a storage that lives on is about to be freed: an op has resized the storage, or the
  // host has, which no op tells of. False where the allocator shall free the block.
  bool exchange(StorageIndex s, void* data) {
    if (owner_.in_op()) {
      unwatch_writes(s);
      if (std::exchange(spots_[s].in_place, false)) spots_[s].where = Where::resident;
      return false;
    }
    const bool dropped = spots_[s].where == Where::dropped;  // in its place
    if (dropped) {
      unwatch_writes(s);
      spots_[s].where = Where::gone;
      spots_[s].in_place = false;
    } else {
      hold(s, data);
    }
    tell_of_exchange(s);
    return !dropped;
  }
  // The same, of a storage that was empty: the block came back under a tombstone.
  void exchange_empty(StorageIndex s) {
    died_empty(s, [](StorageIndex) { return true; });
    table().note_filled(s);
    if (const auto storage = table().lock(s)) unguard_storage(*storage);
    tell_of_exchange(s);
  }
  void tell_of_exchange(StorageIndex s) {
    try {
      owner_.exchanged(s);
    } catch (const std::exception&) {  // whoever reads what could not be made gets an error
    }
    unwatch_writes(s);
    release_held(s);
    if (spots_[s].where == Where::held_out) file_.release(spots_[s].place);
    spots_[s].where = Where::gone;
    look_at(s);
  }

  void died_out_there(StorageIndex s) {
    const std::unique_lock step(recorder_.guard(), std::try_to_lock);
    if (step.owns_lock() && table().alive(s)) return exchange_empty(s);
    if (step.owns_lock())
      return died_empty(s, [this](StorageIndex dead) { return owner_.died(dead); });
    late_deaths_.push_back({s, nullptr});
    has_late_deaths_.store(true, std::memory_order_release);
    spots_[s].stone = nullptr;
  }

  void settle_late_deaths() {
    settle_late_deaths([this](StorageIndex s) { return owner_.died(s); });
  }
  template <class Wanted>
  void settle_late_deaths(const Wanted& wanted) {
    const std::lock_guard lock(CountingAllocator::keepers());
    has_late_deaths_.store(false, std::memory_order_relaxed);
    for (const LateDeath& death : std::exchange(late_deaths_, {})) {
      const StorageIndex s = death.storage;
      if (!table().alive(s)) table().forget(s);
      if (death.data == nullptr) {
        if (table().alive(s)) exchange_empty(s);
        else died_empty(s, wanted);
      } else if (!table().alive(s) && wanted(s) && spots_[s].where != Where::dropped) {
        hold(s, death.data);
      } else if (table().alive(s)) {
        if (!exchange(s, death.data)) CountingAllocator::take_over(death.data).clear();
      } else {
        unwatch_writes(s);
        spots_[s].where = Where::gone;
        spots_[s].in_place = false;
        CountingAllocator::take_over(death.data).clear();
      }
    }
  }

  // The block belongs to nobody else any more.
  void hold(StorageIndex s, void* data) {
    Spot& spot = spots_[s];
    spot.kept = c10::Storage(c10::make_intrusive<c10::StorageImpl>(
        c10::StorageImpl::use_byte_size_t(), spot.bytes.count, CountingAllocator::take_over(data),
        &counting_allocator(), false));
    spot.data = data;
    spot.where = spot.in_place ? Where::held_out : Where::held;
    cpu_memory().move_out(-spot.bytes.count);
  }

  template <class Wanted>
  void died_empty(StorageIndex s, const Wanted& is_wanted) {
    const bool in_file = spots_[s].where == Where::moved_out;
    cpu_memory().move_out(-spots_[s].bytes.count);
    spots_[s].stone = nullptr;
    const bool wanted = is_wanted(s);
    spots_[s].where = in_file && wanted ? Where::held_out : Where::gone;
    if (in_file && !wanted) file_.release(spots_[s].place);
  }

  // of 20 us and more: a thread that is between two instructions comes back in that time
  static constexpr int most_waits = 500;
  static constexpr const char* what_to_do = "call step.pin(tensor) first: ";
  static constexpr const char* or_else =
      "; ops need no such call, and on a thread of its own say `auto here = step.here();` first";

  struct LateOpening {
    StorageIndex storage = 0;
    bool writes = false;
  };
  struct LateDeath {
    StorageIndex storage = 0;
    void* data = nullptr;  // none where it was empty
  };

  Recorder& recorder_;
  StorageOwner& owner_;
  SpillFile& file_;
  std::vector<Spot> spots_;             // by StorageIndex
  std::vector<LateDeath> late_deaths_;  // told of by other threads
  std::atomic<bool> has_late_deaths_{false};
  std::mutex openings_;
  std::vector<LateOpening> late_openings_;  // likewise
  std::atomic<bool> has_late_openings_{false};
  bool keeps_pointers_ = false;
  std::vector<StorageIndex> watched_;  // for writes; some no more
  TransferStats transfers_;
};

}  // namespace reprise
