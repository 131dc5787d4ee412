#pragma once
// A PointerAccess is in scope while user code uses a pointer to a storage that is not resident,
// perhaps on a thread that has not joined the step. Restoring the storage asks the step's gate for
// memory. If there is no memory, the step exceeds its limit, because no caller could handle an
// error.

#include <utility>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/guided/step_limit.hpp>

namespace reprise::guided {

class PointerAccess {
 public:
  PointerAccess(MemoryGate& gate, StepLimit& limit)
      : step_(limit),
        gate_(std::exchange(memory_gate(), &gate)),
        limit_(std::exchange(PageBlocks::limit_here(), limit.bytes())),
        throws_(limit.set_throws(false)) {}
  ~PointerAccess() {
    memory_gate() = gate_;
    PageBlocks::limit_here() = limit_;
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
