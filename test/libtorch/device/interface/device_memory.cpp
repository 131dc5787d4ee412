// DeviceMemory: its requirements, without LibTorch.

#include <reprise/libtorch/device/interface/device_memory.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/device_archetype.hpp>

using namespace reprise;
using namespace reprise::devices;
using reprise_test::DeviceMemoryArchetype;

namespace {

// One for each requirement.
struct NoType : DeviceMemoryArchetype {
  struct type {};
};
struct NotCounted : DeviceMemoryArchetype {
  static void is_counted();
};
struct NoHeader : DeviceMemoryArchetype {
  struct header_bytes {};
};
struct HooksOfNobody : DeviceMemoryArchetype {
  static ThreadHooks hooks();
};
struct UnknownSize : DeviceMemoryArchetype {
  static void bytes_of(const c10::DataPtr&);
};
struct NobodyAsked : DeviceMemoryArchetype {
  static void set_keeper(void*) = delete;
};
struct WriteOnly : DeviceMemoryArchetype {
  struct Store : DeviceMemoryArchetype::Store {
    using DeviceMemoryArchetype::Store::Store;
    void read(const Place&, void*) = delete;
  };
};
struct NeverBack : DeviceMemoryArchetype {
  static bool restore(void*) = delete;
};
struct WatchesForever : DeviceMemoryArchetype {
  static void unwatch_writes(void*) = delete;
};
struct StepsWithoutEnd : DeviceMemoryArchetype {
  static void end_step() = delete;
};
static_assert(is_device_memory<DeviceMemoryArchetype>());
static_assert(!DeviceMemory<NoType> && !DeviceMemory<NotCounted> && !DeviceMemory<NoHeader> &&
              !DeviceMemory<HooksOfNobody> && !DeviceMemory<UnknownSize> &&
              !DeviceMemory<NobodyAsked> && !DeviceMemory<WriteOnly> && !DeviceMemory<NeverBack> &&
              !DeviceMemory<WatchesForever> && !DeviceMemory<StepsWithoutEnd> &&
              !DeviceMemory<int>);

struct Asked final : BlockKeeper {
  bool keep(void* /*data*/, std::uint32_t tag) override { return tag == 3; }
};

}  // namespace

TEST_CASE("a device that asks nobody and holds nothing: the defaults of what it may be told") {
  const ThreadHooks hooks{};
  CHECK(hooks.gate == nullptr);
  CHECK(hooks.source == nullptr);
  CHECK(hooks.handed.bytes == 0);
  CHECK(hooks.limit == Bytes{0});
  Asked keeper;
  const Keeping keeping{&keeper, 3};
  CHECK(keeping.keeper->keep(nullptr, keeping.tag));
  CHECK_FALSE(keeper.keep(nullptr, 2));
}
