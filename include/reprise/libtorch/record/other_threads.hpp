#pragma once
// OtherThreads reports pointer access on threads that have not joined the step: the access counts
// as user code's.
//
//   thread A: auto step = budget.step();  …  op  …  op          its recorder listens
//   thread B: tensor.data_ptr()                                 waits until no op of A's runs, then calls A's recorder

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/core/StorageImpl.h>

#include <reprise/base/one_per_process.hpp>

namespace reprise::recording {

/// A recorder that listens to pointer access.
struct PointerListener {
  virtual ~PointerListener() = default;
  /// Held while an op is recorded.
  [[nodiscard]] virtual std::recursive_mutex& guard() = 0;
  /// Called with the guard held.
  virtual void note_pointer(c10::StorageImpl* storage) = 0;
};

class OtherThreads {
 public:
  static void listen(PointerListener* listener) {
    const std::lock_guard lock(all().guard);
    all().listeners.push_back(listener);
  }
  static void unlisten(PointerListener* listener) {
    const std::lock_guard lock(all().guard);
    std::erase(all().listeners, listener);
  }
  /// Calls every listener; waits while a step is busy.
  static void tell(c10::StorageImpl* storage) {
    while (!try_to_tell(storage)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  struct All {
    std::mutex guard{};
    std::vector<PointerListener*> listeners{};
  };
  REPRISE_ONE_PER_PROCESS static All& all() {
    static auto& all = *new All;
    return all;
  }
  // False if a step is busy. The step's end waits for the list while it holds its own guard, so
  // nobody may wait for that guard while holding the list.
  static bool try_to_tell(c10::StorageImpl* storage) {
    const std::lock_guard lock(all().guard);
    for (PointerListener* listener : all().listeners) {
      const std::unique_lock step(listener->guard(), std::try_to_lock);
      if (!step.owns_lock()) return false;
      listener->note_pointer(storage);
    }
    return true;
  }
};

}  // namespace reprise::recording
