#pragma once
// The smallest models of StepMemory and Observer: what compiles
// with these asks for no more than the concepts do. None is copied, or made out of nothing.

#include <cstddef>
#include <vector>

#include <reprise/libtorch/replay/observer.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>

namespace reprise_test {

class StepMemoryArchetype {
 public:
  static constexpr bool plans_addresses = false;

  explicit StepMemoryArchetype(int) {}
  StepMemoryArchetype(StepMemoryArchetype&&) = default;
  StepMemoryArchetype& operator=(StepMemoryArchetype&&) = default;

  void start(const reprise::ArenaLayout&) {}
  void begin(std::size_t) {}
  void end() {}
  void hand_over(const std::vector<at::Tensor>&) {}
  void settle() {}
  void release() {}
  reprise::Bytes capacity() { return {}; }
  reprise::ArenaUse use() { return {}; }
};
static_assert(reprise::StepMemory<StepMemoryArchetype>);

class ObserverArchetype {
 public:
  explicit ObserverArchetype(int) {}
  ObserverArchetype(const ObserverArchetype&) = delete;
  ObserverArchetype& operator=(const ObserverArchetype&) = delete;

  void before(std::size_t, reprise::NodeId, const auto&) { ++seen; }
  void after(std::size_t, reprise::NodeId, const auto&) {}
  int seen = 0;
};
static_assert(reprise::Observer<ObserverArchetype>);

}  // namespace reprise_test
