#pragma once
// StepMemory is what a program requires of its memory: it provides the blocks of a step in every
// run.
//
//   struct Mine : AllocatorMemory {                             the smallest: every block from the allocator
//     void start(const ArenaLayout&) { ++runs; }
//     int runs = 0;
//   };
//   TrainStep step{model, loss_fn, {}, DefaultPipeline{}.with(Rewriter{LibTorchBackend{Mine{}}})};
//
// ArenaMemory (arena.hpp) has one memory range with planned addresses; AllocatorMemory is the null
// model.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <reprise/base/units.hpp>

namespace at {
class Tensor;
}

namespace reprise::replaying {

struct ArenaLayout;

/// Counts of one run's blocks.
struct ArenaUse {
  std::int64_t taken = 0;      ///< blocks at planned addresses
  std::int64_t fallbacks = 0;  ///< misses: blocks from the allocator
};

namespace step_memory_requirement {
template <class M>
concept plans_addresses = requires {
  { M::plans_addresses } -> std::convertible_to<bool>;
};
template <class M>
concept start = requires(M& memory, const ArenaLayout& layout) {
  memory.start(layout);
};
template <class M>
concept begin_end = requires(M& memory) {
  memory.begin(std::size_t{});
  memory.end();
};
template <class M>
concept hand_over = requires(M& memory, const std::vector<at::Tensor>& gradients) {
  memory.hand_over(gradients);
};
template <class M>
concept settle = requires(M& memory) {
  memory.settle();
};
template <class M>
concept release = requires(M& memory) {
  memory.release();
};
template <class M>
concept capacity = requires(M& memory) {
  { memory.capacity() } -> std::convertible_to<Bytes>;
};
template <class M>
concept use = requires(M& memory) {
  { memory.use() } -> std::convertible_to<ArenaUse>;
};
}  // namespace step_memory_requirement

/// StepMemory requires: (1) to be movable; (2) plans_addresses: whether start() gets a layout; (3)
/// start(layout), before each run; (4) begin(i) and end() around the allocations of the program's
/// op i; (5) hand_over(gradients), after the run; (6) settle(): gradients that are still alive must
/// not be where the next run writes; (7) release(): frees the memory until the next run; (8)
/// capacity() -> Bytes: kept between two steps; (9) use() -> ArenaUse, of the last run.
template <class M>
concept StepMemory = std::movable<M> && step_memory_requirement::plans_addresses<M> &&
    step_memory_requirement::start<M> && step_memory_requirement::begin_end<M> &&
    step_memory_requirement::hand_over<M> && step_memory_requirement::settle<M> &&
    step_memory_requirement::release<M> && step_memory_requirement::capacity<M> &&
    step_memory_requirement::use<M>;

/// True. If M is no StepMemory, one line of the compiler's output says what it lacks.
template <class M>
[[nodiscard]] consteval bool is_step_memory() {
  static_assert(std::movable<M>,
                "M is no StepMemory: it needs (1) to be movable; see docs/policies/step_memory.md");
  static_assert(step_memory_requirement::plans_addresses<M>,
                "M is no StepMemory: it needs (2) static constexpr bool plans_addresses; see "
                "docs/policies/step_memory.md");
  static_assert(step_memory_requirement::start<M>,
                "M is no StepMemory: it needs (3) void start(const ArenaLayout&); see "
                "docs/policies/step_memory.md");
  static_assert(step_memory_requirement::begin_end<M>,
                "M is no StepMemory: it needs (4) void begin(std::size_t i) and void end(); see "
                "docs/policies/step_memory.md");
  static_assert(step_memory_requirement::hand_over<M>,
                "M is no StepMemory: it needs (5) void hand_over(const std::vector<at::Tensor>&); "
                "see docs/policies/step_memory.md");
  static_assert(step_memory_requirement::settle<M>,
                "M is no StepMemory: it needs (6) void settle(); see docs/policies/step_memory.md");
  static_assert(
      step_memory_requirement::release<M>,
      "M is no StepMemory: it needs (7) void release(); see docs/policies/step_memory.md");
  static_assert(
      step_memory_requirement::capacity<M>,
      "M is no StepMemory: it needs (8) Bytes capacity(); see docs/policies/step_memory.md");
  static_assert(
      step_memory_requirement::use<M>,
      "M is no StepMemory: it needs (9) ArenaUse use(); see docs/policies/step_memory.md");
  return StepMemory<M>;
}

/// The null model: every block from the allocator.
struct AllocatorMemory {
  static constexpr bool plans_addresses = false;

  [[nodiscard]] static Bytes capacity() { return {}; }
  void release() {}
  void settle() {}
  void start(const ArenaLayout& /*layout*/) {}
  void begin(std::size_t /*step*/) {}
  void end() {}
  void hand_over(const std::vector<at::Tensor>& /*gradients*/) {}
  [[nodiscard]] static ArenaUse use() { return {}; }
};
static_assert(StepMemory<AllocatorMemory>);

}  // namespace reprise::replaying

namespace reprise {
using replaying::AllocatorMemory;
using replaying::ArenaLayout;
using replaying::ArenaUse;
using replaying::StepMemory;
}  // namespace reprise
