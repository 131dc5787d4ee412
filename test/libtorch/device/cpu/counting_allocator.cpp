// Bytes counted where they are allocated.

#include <torch/torch.h>

#include <thread>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/device/device.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::checkpointing;
using namespace reprise::cpu;
using namespace reprise::literals;

TEST_CASE("LibTorch allocates through us from before main") { CHECK(memory_is_counted()); }

TEST_CASE("live bytes are the bytes requested, and come back") {
  const Bytes before = cpu_memory().live();
  {
    const auto a = torch::empty({1000}, torch::kFloat);
    CHECK(cpu_memory().live() - before == 4000_B);
    const auto view = a.view({10, 100});
    CHECK(cpu_memory().live() - before == 4000_B);
    const auto copy = a.clone();
    CHECK(cpu_memory().live() - before == 8000_B);
  }
  CHECK(cpu_memory().live() == before);
}

TEST_CASE("the peak is what was held at most since it was reset") {
  const Bytes before = cpu_memory().live();
  cpu_memory().reset_peak();
  { const auto a = torch::empty({1 << 20}, torch::kByte); }
  const auto b = torch::empty({1000}, torch::kByte);
  CHECK(cpu_memory().peak() - before == 1_MiB);
  cpu_memory().reset_peak();
  CHECK(cpu_memory().peak() - before == 1000_B);
}

TEST_CASE("a window inside a step does not disturb the step's peak") {
  const Bytes before = cpu_memory().live();
  cpu_memory().reset_peak();
  { const auto a = torch::empty({5000}, torch::kByte); }
  cpu_memory().open_window();
  { const auto b = torch::empty({300}, torch::kByte); }
  CHECK(cpu_memory().window_peak() - before == 300_B);
  CHECK(cpu_memory().peak() - before == 5000_B);
}

TEST_CASE("blocks are aligned as LibTorch's own are, and know their size and age") {
  const auto serial = cpu_memory().serial();
  for (std::int64_t n : {1, 63, 64, 65, 4097}) {
    const auto t = torch::empty({n}, torch::kByte);
    const c10::DataPtr& data = t.storage().data_ptr();
    CHECK(reinterpret_cast<std::uintptr_t>(data.get()) % 64 == 0);
    CHECK(CountingAllocator::owns(data));
    CHECK(CountingAllocator::bytes_of(data) == Bytes{n});
    CHECK(CountingAllocator::serial_of(data) > serial);
  }
}

TEST_CASE("raw allocation works") {
  const Bytes before = cpu_memory().live();
  c10::Allocator* allocator = c10::GetCPUAllocator();
  void* block = allocator->raw_allocate(100);
  CHECK(cpu_memory().live() - before == 100_B);
  allocator->raw_deallocate(block);
  CHECK(cpu_memory().live() == before);
}

TEST_CASE("an empty tensor holds nothing, and memory of others is not counted") {
  const Bytes before = cpu_memory().live();
  const auto empty = torch::empty({0, 5});
  float mine[4] = {1, 2, 3, 4};
  const auto blob = torch::from_blob(mine, {4});
  CHECK(cpu_memory().live() == before);
  CHECK_FALSE(CountingAllocator::owns(blob.storage().data_ptr()));
  CHECK(CountingAllocator::bytes_of(blob.storage().data_ptr()) == 0_B);
}

TEST_CASE("blocks may be freed on another thread") {
  const Bytes before = cpu_memory().live();
  auto t = torch::empty({1000}, torch::kByte);
  std::thread([moved = std::move(t)]() mutable { moved.reset(); }).join();
  CHECK(cpu_memory().live() == before);
}
