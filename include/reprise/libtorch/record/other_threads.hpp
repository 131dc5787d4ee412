#pragma once
// What threads do to a step that have not joined it: a pointer that they take to one of its tensors
// counts as taken by user code.
//
//   thread A: auto step = budget.step();  …  op  …  op          its recorder listens
//   thread B: tensor.data_ptr()                                 waits until no op of A's runs, then A's recorder is told

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include <c10/core/StorageImpl.h>

#include <reprise/base/one_per_process.hpp>

namespace reprise::recording {

/// A recorder that wants to know.
struct PointerListener {
  virtual ~PointerListener() = default;
  /// Held while an op is recorded.
  [[nodiscard]] virtual std::recursive_mutex& guard() = 0;
  /// With the guard held.
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
  /// Tells every listener; waits while a step is busy.
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
  // False if a step is busy. Its end waits for the list while it holds its own guard: nobody waits
  // for that one with the list in hand.
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
