#pragma once
// User code uses a pointer to a storage whose bytes are away, perhaps on a thread that has not
// joined the step. While a PointerAccess is in scope, the step's gate is asked for the memory that
// a restored storage needs. If there is none, the step goes on above its limit: no caller could be
// told that it does not fit.

#include <utility>

#include <reprise/libtorch/device/device.hpp>
#include <reprise/libtorch/guided/step_limit.hpp>

namespace reprise::guided {

class PointerAccess {
 public:
  PointerAccess(MemoryGate& gate, StepLimit& limit)
      : step_(limit),
        gate_(std::exchange(memory_gate(), &gate)),
        limit_(std::exchange(limit_here(), limit.bytes())),
        throws_(limit.set_throws(false)) {}
  ~PointerAccess() {
    memory_gate() = gate_;
    limit_here() = limit_;
    static_cast<void>(step_.set_throws(throws_));
  }
  PointerAccess(const PointerAccess&) = delete;
  PointerAccess& operator=(const PointerAccess&) = delete;

 private:
  StepLimit& step_;
  MemoryGate* gate_;
  Bytes limit_;
  bool throws_;
};

}  // namespace reprise::guided
