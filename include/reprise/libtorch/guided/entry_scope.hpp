#pragma once
// An EntryScope is the only way to reach the parts of a guided step.
//
//   Entrance<Parts> entrance(guard, …);
//   const EntryScope scope(entrance);      takes the guard; the outermost one synchronises (Parts::synchronize)
//   scope->rematerializer.materialize(s);
//
// Many callers enter a step: ops of every thread that has joined it, allocations, and threads that
// free its tensors or use pointers. A caller takes the guard before any other lock
// (storage_events.hpp has the order of all locks). Other threads queue events. Only the outermost
// scope processes this queue, because no outer frame is then in the middle of an operation.

#include <mutex>
#include <utility>

#include <reprise/base/rooms.hpp>

namespace reprise::guided {

template <class Parts>
class EntryScope;

/// Owns the parts. `Parts` has synchronize(bool outermost).
template <class Parts>
class Entrance {
 public:
  template <class... Arguments>
  explicit Entrance(std::recursive_mutex& guard, Arguments&&... arguments)
      : guard_(guard), parts_(std::forward<Arguments>(arguments)...) {}

 private:
  friend class EntryScope<Parts>;

  std::recursive_mutex& guard_;
  int depth_ = 0;  // open scopes, all of one thread
  Parts parts_;
};

/// The parts that an EntryScope synchronizes when it opens.
enum class Synchronize {
  yes,  ///< everything
  no,   ///< nothing: the call comes from the middle of an op, or from a free
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
  // Synchronizing may throw: the scope then was never open.
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
