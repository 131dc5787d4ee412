#pragma once
// The parts of a guided step can be reached in one way: through an EntryScope.
//
//   Entrance<Parts> entrance(guard, …);
//   const EntryScope scope(entrance);      takes the guard; the outermost one synchronises (Parts::synchronize)
//   scope->rematerializer.materialize(s);
//
// A step is entered from many sides: by ops of any thread that has joined it, by allocations, by
// threads that free its tensors or use pointers. Whoever enters waits for the guard first, and for
// no other lock with it missing (storage_events.hpp has the order of all locks). What other threads
// have queued is processed by the outermost scope alone: no frame further out is in the middle of
// something then.

#include <mutex>
#include <utility>

#include <reprise/base/rooms.hpp>

namespace reprise::guided {

template <class Parts>
class EntryScope;

/// Keeps the parts. `Parts` has synchronize(bool outermost).
template <class Parts>
class Entrance {
 public:
  template <class... Arguments>
  explicit Entrance(std::recursive_mutex& guard, Arguments&&... arguments)
      : guard_(guard), parts_(std::forward<Arguments>(arguments)...) {}

 private:
  friend class EntryScope<Parts>;

  std::recursive_mutex& guard_;
  int depth_ = 0;  // scopes that are open; of one thread
  Parts parts_;
};

/// What an EntryScope brings up to date.
enum class Synchronize {
  yes,  ///< everything
  no,   ///< nothing: somebody is being told of something in the middle of an op, or of a free
};

template <class Parts>
class EntryScope {
 public:
  explicit EntryScope(Entrance<Parts>& entrance, Synchronize synchronize = Synchronize::yes)
      : lock_(entrance.guard_), entrance_(entrance) {
    const bool outermost = entrance_.depth_ == 0;
    const Counted counted(entrance_.depth_);
    if (synchronize == Synchronize::yes) entrance_.parts_.synchronize(outermost);
    counted.keep();
  }
  ~EntryScope() { --entrance_.depth_; }
  EntryScope(const EntryScope&) = delete;
  EntryScope& operator=(const EntryScope&) = delete;

  [[nodiscard]] Parts* operator->() const { return &entrance_.parts_; }
  [[nodiscard]] Parts& operator*() const { return entrance_.parts_; }

 private:
  // Synchronizing may throw: then the scope was never open.
  class Counted {
   public:
    explicit Counted(int& depth) : depth_(depth) { ++depth_; }
    ~Counted() {
      if (!kept_) --depth_;
    }
    void keep() const { kept_ = true; }

   private:
    int& depth_;
    mutable bool kept_ = false;
  };

  std::lock_guard<std::recursive_mutex> lock_;
  Entrance<Parts>& entrance_;
};

}  // namespace reprise::guided
