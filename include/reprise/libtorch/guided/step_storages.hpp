#pragma once
// Where the bytes of each storage of a step are, while the user's code goes on holding its tensors.
//
//   resident ──drop──▶ dropped ──put_back──▶ resident          the bytes are freed under whoever holds the tensor
//      │  └──move_out──▶ moved_out ──bring_in──▶ resident      the bytes lie in a file meanwhile
//      └── the last tensor dies ──▶ gone; or the bytes are still wanted: held here, or held_out in the file
//
// Tensors and storages are held weakly: a strong pointer would change what autograd does. The death of a resident storage is told
// by the allocator (BlockKeeper), that of an emptied one by a tombstone that lies in the place of its bytes. One that another thread
// tells of while an op runs is dealt with at the next catch_up().

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

/// Told of deaths.
struct StorageOwner {
  virtual ~StorageOwner() = default;
  /// The last tensor over it has died; true where its bytes are still wanted.
  virtual bool died(StorageIndex s) = 0;
};

class StepStorages final : public BlockKeeper {
 public:
  StepStorages(Recorder& recorder, StorageOwner& owner, SpillFile& file) : recorder_(recorder), owner_(owner), file_(file) {
    CountingAllocator::listen(this);
  }
  ~StepStorages() override { let_go(); }
  StepStorages(const StepStorages&) = delete;
  StepStorages& operator=(const StepStorages&) = delete;

  /// Takes over what the recorder has come to know since the last time.
  void catch_up() {
    if (has_late_deaths_.load(std::memory_order_acquire)) settle_late_deaths();
    for (auto s = static_cast<StorageIndex>(spots_.size()); s < table().size(); ++s) {
      spots_.emplace_back();
      look_at(s);
    }
  }
  /// Looks again at a storage that an op has written: it may have been given other memory.
  void look_at(StorageIndex s) {
    const auto storage = table().lock(s);
    if (!storage || spots_[s].where == Where::dropped || spots_[s].where == Where::moved_out) return;
    const c10::DataPtr& data = storage->_mutable_data_ptr_no_checks();
    spots_[s].where = CountingAllocator::owns(data) ? Where::resident : Where::foreign;
    if (spots_[s].where == Where::foreign) return;
    spots_[s].bytes = CountingAllocator::bytes_of(data);
    CountingAllocator::set_keeper(data, this, s);
  }

  [[nodiscard]] std::size_t size() const { return spots_.size(); }
  void reserve(std::size_t storages) { spots_.reserve(storages); }
  [[nodiscard]] Where where(StorageIndex s) const { return spots_[s].where; }
  [[nodiscard]] Bytes bytes(StorageIndex s) const { return spots_[s].bytes; }
  [[nodiscard]] const TransferStats& transfers() const { return transfers_; }

  /// The storage to make tensors over; null where the bytes are not in memory.
  [[nodiscard]] c10::Storage memory_of(StorageIndex s) const {
    if (spots_[s].where == Where::held) return spots_[s].kept;
    if (spots_[s].where != Where::resident && spots_[s].where != Where::foreign) return {};
    return c10::Storage(table().lock(s));
  }

  /// Before it is read or brought back: where its last tensor has just died on another thread, which is about to tell, its bytes are held.
  void settle_if_dead(StorageIndex s) {
    const Where before = spots_[s].where;
    if (table().alive(s) || (before != Where::resident && before != Where::dropped && before != Where::moved_out)) return;
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
    const c10::DataPtr bytes = hand_over(s, name);
    CountingAllocator::set_keeper(bytes, nullptr);
  }

  /// As drop(), of bytes that live on: an op has written its result over them. Gives the pointer that nobody may free them through. The
  /// storage must be alive.
  [[nodiscard]] c10::DataPtr hand_over(StorageIndex s, const std::string& name) {
    const auto storage = table().lock(s);
    c10::DataPtr bytes = bury(s, Where::dropped);
    guard_storage(*storage, name + " was dropped to stay inside Reprise's budget" + what_to_do);
    return bytes;
  }

  void put_back(StorageIndex s, c10::DataPtr&& data) {
    const auto storage = table().lock(s);
    if (!storage) return;  // has just died on another thread
    cpu_memory().move_out(-spots_[s].bytes.count);
    CountingAllocator::set_keeper(data, this, s);
    unearth(s, *storage, std::move(data));
  }

  void move_out(StorageIndex s, const std::string& name) {
    const auto storage = table().lock(s);
    if (!storage) return settle_late_deaths();
    const auto start = std::chrono::steady_clock::now();
    spots_[s].place = file_.write(storage->_mutable_data_ptr_no_checks().get(), static_cast<std::size_t>(spots_[s].bytes.count));
    c10::DataPtr bytes = bury(s, Where::moved_out);
    guard_storage(*storage, name + " is moved out to stay inside Reprise's budget" + what_to_do);
    CountingAllocator::set_keeper(bytes, nullptr);
    ++transfers_.moved_out;
    transfers_.bytes_out += spots_[s].bytes;
    transfers_.time_out += since(start);
  }

  void bring_in(StorageIndex s) {
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
      cpu_memory().move_out(spots_[s].bytes.count);  // taken off twice: before the allocation, and as held
    } else {
      CountingAllocator::set_keeper(data, this, s);
      unearth(s, *storage, std::move(data));
    }
    ++transfers_.brought_back;
    transfers_.bytes_in += spots_[s].bytes;
    transfers_.time_in += since(start);
  }

  /// Gives up what is held: nobody will read it again.
  void release_held(StorageIndex s) {
    if (spots_[s].where != Where::held) return;
    cpu_memory().move_out(spots_[s].bytes.count);
    spots_[s].where = Where::gone;
    spots_[s].kept = {};
  }
  /// The held bytes of a storage that has died, handed over with their count.
  [[nodiscard]] c10::Storage take_held(StorageIndex s) {
    spots_[s].where = Where::gone;
    return std::exchange(spots_[s].kept, {});
  }
  void hold(StorageIndex s, c10::Storage memory) {
    spots_[s].where = Where::held;
    spots_[s].kept = std::move(memory);
  }

  /// Nobody is asked or told any more. What is dropped or moved out stays so.
  void let_go() {
    const std::lock_guard lock(CountingAllocator::keepers());
    CountingAllocator::unlisten(this);  // also for one that is dying on another thread and waits for the lock
    settle_late_deaths([](StorageIndex) { return false; });
    for (StorageIndex s = 0; s < spots_.size(); ++s) {
      release_held(s);
      if (spots_[s].where == Where::held_out) {
        file_.release(spots_[s].place);
        spots_[s].where = Where::gone;  // to be let go once: a place that is given back twice is given to two
      }
      if (spots_[s].where == Where::dropped || spots_[s].where == Where::moved_out) {  // could not be brought back: it exists no more
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
    if (table().alive(tag)) return false;  // only its memory was exchanged: resized
    table().forget(tag);
    if (!owner_.died(tag)) {
      spots_[tag].where = Where::gone;
      return false;
    }
    hold(tag, data);
    return true;
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
  };

  [[nodiscard]] StorageTable& table() const { return recorder_.storages(); }

  static Microseconds since(std::chrono::steady_clock::time_point start) {
    return {std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count()};
  }

  c10::DataPtr bury(StorageIndex s, Where where) {
    auto* stone = new Tombstone{this, s};
    c10::DataPtr bytes = table().empty(s, {nullptr, stone, &Tombstone::fall, c10::Device(c10::DeviceType::CPU)});
    spots_[s].stone = stone;
    spots_[s].where = where;
    cpu_memory().move_out(spots_[s].bytes.count);
    return bytes;
  }

  void unearth(StorageIndex s, c10::StorageImpl& storage, c10::DataPtr&& data) {
    std::exchange(spots_[s].stone, nullptr)->storages = nullptr;  // it did not die
    unguard_storage(storage);
    table().refill(s, std::move(data));
    spots_[s].where = Where::resident;
  }

  void died_out_there(StorageIndex s) {
    const std::unique_lock step(recorder_.guard(), std::try_to_lock);
    if (step.owns_lock()) return died_empty(s, [this](StorageIndex dead) { return owner_.died(dead); });
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
        died_empty(s, wanted);
      } else if (!table().alive(s) && wanted(s)) {
        hold(s, death.data);
      } else {
        if (!table().alive(s)) spots_[s].where = Where::gone;
        CountingAllocator::take_over(death.data).clear();
      }
    }
  }

  // The block belongs to nobody else any more.
  void hold(StorageIndex s, void* data) {
    Spot& spot = spots_[s];
    spot.kept = c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), spot.bytes.count,
                                                                   CountingAllocator::take_over(data), &counting_allocator(), false));
    spot.where = Where::held;
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

  static constexpr int most_waits = 500;  // of 20 us and more: a thread that is between two instructions comes back in that time
  static constexpr const char* what_to_do =
      ": use it in an op, say step.pin(tensor) before taking a pointer, and on a thread of its own `auto here = step.here();` first";

  struct LateDeath {
    StorageIndex storage = 0;
    void* data = nullptr;  // none where it was empty
  };

  Recorder& recorder_;
  StorageOwner& owner_;
  SpillFile& file_;
  std::vector<Spot> spots_;  // by StorageIndex
  std::vector<LateDeath> late_deaths_;  // told of by other threads
  std::atomic<bool> has_late_deaths_{false};
  TransferStats transfers_;
};

}  // namespace reprise
