#pragma once
// What the allocations of this thread look at: its gate, its source of addresses, its limit.

#include <reprise/base/one_per_process.hpp>
#include <reprise/libtorch/device/interface/block_roles.hpp>

namespace reprise::cpu {

/// Of this thread.
REPRISE_ONE_PER_PROCESS inline ThreadHooks& thread_hooks() {
  thread_local ThreadHooks hooks{};
  return hooks;
}

}  // namespace reprise::cpu
