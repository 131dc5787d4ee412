// StepMemory and Observer: their requirements, without LibTorch.

#include <reprise/libtorch/replay/observer.hpp>
#include <reprise/libtorch/replay/step_memory.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/step_archetypes.hpp>

using namespace reprise;
using namespace reprise::replaying;

namespace {

struct NoLayouts : AllocatorMemory {
  void start(const ArenaLayout&) = delete;
};
struct NoUse : AllocatorMemory {
  static void use() {}
};
struct NoEnd : AllocatorMemory {
  void end() = delete;
};
struct Unmovable : AllocatorMemory {
  Unmovable(Unmovable&&) = delete;
};
static_assert(!StepMemory<NoLayouts> && !StepMemory<NoUse> && !StepMemory<NoEnd> &&
              !StepMemory<Unmovable> && !StepMemory<int>);
static_assert(is_step_memory<AllocatorMemory>() &&
              is_step_memory<reprise_test::StepMemoryArchetype>());

struct OnlyBefore {
  void before(std::size_t, NodeId, const auto&) {}
};
struct WithoutNode {
  void before(std::size_t, const auto&) {}
  void after(std::size_t, const auto&) {}
};
static_assert(!Observer<OnlyBefore> && !Observer<WithoutNode>);
static_assert(is_observer<NullObserver>() && is_observer<reprise_test::ObserverArchetype>());

}  // namespace

TEST_CASE("the null memory holds nothing and takes nothing") {
  AllocatorMemory memory;
  memory.begin(0);
  memory.end();
  memory.settle();
  memory.release();
  CHECK(memory.capacity() == Bytes{0});
  CHECK(memory.use().taken == 0);
  CHECK(memory.use().fallbacks == 0);
}
