// The device that the engine runs on, and that the rest of the library does not name.

#include <torch/torch.h>

#include <reprise/libtorch/device/device.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::devices;
using namespace reprise::literals;

static_assert(DeviceMemory<cpu::CpuMemory> && DeviceMemory<ThisDevice>);

TEST_CASE("the device's blocks are counted, and known by their numbers", "[device]") {
  CHECK(memory_is_counted());
  CHECK(&device_memory() == &ThisDevice::counter());
  const Bytes before = device_memory().live();
  const std::uint64_t serial = device_memory().serial();
  const torch::Tensor x = torch::empty({256});
  const c10::DataPtr& block = x.storage().data_ptr();
  CHECK(x.device().type() == ThisDevice::type);
  CHECK(device_memory().live() - before == 1_KiB);
  CHECK(ThisDevice::owns(block));
  CHECK(ThisDevice::bytes_of(block) == 1_KiB);
  CHECK(ThisDevice::serial_of(block) == serial + 1);
  CHECK_FALSE(ThisDevice::in_arena(block));
}

namespace {

struct Gate final : MemoryGate {
  void before_allocation(Bytes bytes) override { asked += bytes; }
  Microseconds time_spent() const override { return {}; }
  void after_release(Bytes bytes, std::uint64_t /*serial*/) override { released += bytes; }
  Bytes asked{}, released{};
};

struct Keeper final : BlockKeeper {
  bool keep(void* data, std::uint32_t tag) override {
    kept = data;
    return tag == 7;
  }
  void* kept = nullptr;
};

struct Notes final : BlockSource {
  std::byte* take(std::size_t /*bytes*/, std::uint32_t& /*number*/) override { return nullptr; }
  void give_back(std::uint32_t /*number*/) override {}
  void came_from_system(std::uint64_t serial) override { came = serial; }
  void freed(std::uint64_t serial) override { gone = serial; }
  std::uint64_t came = 0, gone = 0;
};

}  // namespace

TEST_CASE("the gate of a thread is asked before memory is taken, and told what was released",
          "[device]") {
  Gate gate;
  memory_gate() = &gate;
  { const torch::Tensor x = torch::empty({256}); }
  memory_gate() = nullptr;
  { const torch::Tensor y = torch::empty({256}); }
  CHECK(gate.asked == 1_KiB);
  CHECK(gate.released == 1_KiB);
}

TEST_CASE("the source of a thread hears of blocks that it has not taken", "[device]") {
  Notes notes;
  block_source() = &notes;
  torch::Tensor x = torch::empty({256});
  const std::uint64_t serial = ThisDevice::serial_of(x.storage().data_ptr());
  x.reset();
  block_source() = nullptr;
  CHECK(notes.came == serial);
  CHECK(notes.gone == serial);
}

TEST_CASE("a keeper takes a block over, and a block that was taken over can be freed", "[device]") {
  const Bytes before = device_memory().live();
  Keeper keeper;
  ThisDevice::listen(&keeper);
  torch::Tensor x = torch::empty({256});
  void* const data = x.data_ptr();
  ThisDevice::set_keeper(data, {&keeper, 7});
  CHECK(ThisDevice::keeper_of(data).keeper == &keeper);
  CHECK(ThisDevice::keeper_of(data).tag == 7);
  x.reset();
  CHECK(keeper.kept == data);
  CHECK(device_memory().live() - before == 1_KiB);
  ThisDevice::take_over(data).clear();
  CHECK(device_memory().live() == before);

  torch::Tensor y = torch::empty({256});
  keeper.kept = nullptr;
  ThisDevice::set_keeper(y.data_ptr(), {&keeper, 7});
  ThisDevice::unlisten(&keeper);
  y.reset();  // whoever is not listening any more is not asked
  CHECK(keeper.kept == nullptr);
  CHECK(device_memory().live() == before);
}

TEST_CASE("what lies between the edges of a block can be protected, if the device can",
          "[device]") {
  const torch::Tensor x = torch::empty({64 << 10});
  const auto part = ThisDevice::protected_part(x.data_ptr(), 256_KiB);
  auto* const begin = static_cast<std::byte*>(x.data_ptr());
  CHECK(part.empty() == !ThisDevice::keeps_addresses());
  if (part.empty()) return;
  CHECK(part.data() >= begin);
  CHECK(part.data() + part.size() <= begin + 256 * 1024);
  CHECK(ThisDevice::protected_part(x.data_ptr(), 100_B).empty());
}
