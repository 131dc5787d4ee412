// Blocks that lose their memory and keep their address, without LibTorch's tensors in between.

#include <torch/torch.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>
#include <reprise/libtorch.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::replaying;
using namespace reprise::literals;

namespace {

/// Restores whatever is touched, and takes notes.
struct NotingOwner : BlockOwner {
  std::vector<std::pair<std::uint32_t, bool>> touches{}, openings{};
  std::function<void(std::uint32_t tag, bool writes)> on_touch{};
  Entry entry = Entry::entered;
  int entered = 0;

  Entry try_enter() override {
    if (entry == Entry::entered) ++entered;
    return entry;
  }
  void leave() override { --entered; }
  void touched(std::uint32_t tag, bool writes) override {
    touches.emplace_back(tag, writes);
    if (on_touch) on_touch(tag, writes);
  }
  void was_opened(std::uint32_t tag, bool writes) override { openings.emplace_back(tag, writes); }
};

/// A block of the allocator's that holds 0, 1, 2, …
struct CountedBlock {
  c10::DataPtr data;
  std::size_t count;
  explicit CountedBlock(std::size_t bytes)
      : data(counting_allocator().allocate(bytes)), count(bytes / sizeof(std::uint32_t)) {
    fill();
  }
  [[nodiscard]] std::uint32_t* numbers() const { return static_cast<std::uint32_t*>(data.get()); }
  void fill() const {
    for (std::size_t i = 0; i < count; ++i) numbers()[i] = static_cast<std::uint32_t>(i);
  }
  [[nodiscard]] bool as_filled() const {
    for (std::size_t i = 0; i < count; ++i)
      if (numbers()[i] != i) return false;
    return true;
  }
};

std::size_t areas() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

/// What a child process that runs this ends with: its exit code, or minus the signal that ended it.
int end_of_child(const std::function<int()>& run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

}  // namespace

TEST_CASE("the whole pages of a block are what a block without its edges has, and few are none",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const at = reinterpret_cast<std::byte*>(100 * page);
  CHECK(ProtectedBlocks::pages_in(at, 4 * page).bytes == 4 * page);
  CHECK(ProtectedBlocks::pages_in(at + 64, 4 * page).begin == at + page);
  CHECK(ProtectedBlocks::pages_in(at + 64, 4 * page).bytes == 3 * page);
  CHECK(ProtectedBlocks::pages_in(at + 64, 3 * page).bytes == 2 * page);
  CHECK(ProtectedBlocks::pages_in(at + 64, 3 * page - 65).bytes == 0);
  CHECK(ProtectedBlocks::pages_in(at, page).bytes == 0);
}

TEST_CASE("a spilled block gives its memory back, keeps its address, and comes back with its bytes",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  for (const std::size_t bytes : std::vector<std::size_t>{20000, 64 << 10, 300 << 10, 4 << 20}) {
    CountedBlock block(bytes);
    const Bytes live = cpu_memory().live(), existing = cpu_memory().existing();
    REQUIRE(CountingAllocator::spill(block.data.get(), owner, 7, file));
    CHECK(cpu_memory().live() == live - Bytes{static_cast<std::int64_t>(bytes)});
    CHECK(cpu_memory().existing() == existing);
    CHECK(CountingAllocator::is_spilled(block.data.get()));
    cpu_memory().reset_peak();
    CHECK(CountingAllocator::restore(block.data.get()));
    CHECK_FALSE(CountingAllocator::restore(block.data.get()));
    CHECK(cpu_memory().live() == live);
    CHECK(cpu_memory().peak() == live);
    CHECK(cpu_memory().existing() == existing);
    CHECK(block.as_filled());
    CHECK(owner.touches.empty());
  }
  CHECK(protected_blocks().size() == 0);
}

TEST_CASE(
    "a pointer into a spilled block waits for its owner, and reads or writes what is there then",
    "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  CountedBlock block(64 << 10);
  owner.on_touch = [&](std::uint32_t, bool) {
    CHECK(owner.entered == 1);
    CountingAllocator::restore(block.data.get());
  };
  REQUIRE(CountingAllocator::spill(block.data.get(), owner, 3, file));
  CHECK(const_cast<volatile std::uint32_t*>(block.numbers())[5000] == 5000);
  REQUIRE(CountingAllocator::spill(block.data.get(), owner, 4, file));
  const_cast<volatile std::uint32_t*>(block.numbers())[6000] = 1;
  CHECK(block.numbers()[6000] == 1);
  block.numbers()[6000] = 6000;
  CHECK(block.as_filled());
  REQUIRE(owner.touches.size() == 2);
  CHECK(owner.touches[0].first == 3);
  CHECK(owner.touches[1] == std::pair(std::uint32_t{4}, true));
#ifdef __x86_64__
  CHECK_FALSE(owner.touches[0].second);
#endif
  CHECK(owner.entered == 0);
}

TEST_CASE(
    "a block whose owner waits for whoever touches it is opened without it, and the owner hears of "
    "it",
    "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  owner.entry = BlockOwner::Entry::never;
  CountedBlock block(64 << 10);
  const Bytes live = cpu_memory().live();
  REQUIRE(CountingAllocator::spill(block.data.get(), owner, 9, file));
  std::thread([&] { CHECK(block.as_filled()); }).join();
  CHECK(cpu_memory().live() == live);
  REQUIRE(owner.openings.size() == 1);
  CHECK(owner.openings[0].first == 9);
  CHECK(owner.touches.empty());
  CHECK_FALSE(CountingAllocator::restore(block.data.get()));
}

TEST_CASE("many threads that read a spilled block at once all read what it held",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  owner.entry = BlockOwner::Entry::never;
  CountedBlock block(256 << 10);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(CountingAllocator::spill(block.data.get(), owner, 1, file));
    std::atomic<int> wrong = 0;
    std::vector<std::jthread> readers;
    for (int k = 0; k < 4; ++k)
      readers.emplace_back([&] {
        if (!block.as_filled()) ++wrong;
      });
    readers.clear();
    CHECK(wrong == 0);
  }
}

TEST_CASE("an evicted block is filled by its owner when it is touched, at its address",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  NotingOwner owner;
  CountedBlock block(64 << 10);
  const Bytes live = cpu_memory().live(), existing = cpu_memory().existing();
  owner.on_touch = [&](std::uint32_t, bool) {
    CountedBlock again(64 << 10);
    CountingAllocator::fill(block.data.get(), std::move(again.data));
  };
  REQUIRE(CountingAllocator::evict(block.data.get(), owner, 5));
  CHECK(cpu_memory().live() == live - 64_KiB);
  CHECK(cpu_memory().existing() == existing);
  cpu_memory().reset_peak();
  CHECK(block.as_filled());
  CHECK(cpu_memory().live() == live);
  CHECK(cpu_memory().peak() == live);
  CHECK(cpu_memory().existing() == existing);
  REQUIRE(owner.touches.size() == 1);
  CHECK(owner.touches[0].first == 5);
  REQUIRE(CountingAllocator::evict(block.data.get(), owner, 6));
  block.data.clear();
  CHECK(cpu_memory().live() == live - 64_KiB);
  CHECK(cpu_memory().existing() == existing - 64_KiB);
  CHECK(protected_blocks().size() == 0);
}

TEST_CASE("the owner is told of a write to a watched block before it happens, and of no read",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  NotingOwner owner;
  CountedBlock block(64 << 10);
  std::uint32_t seen = 0;
  owner.on_touch = [&](std::uint32_t, bool) {
    seen = block.numbers()[5000];
    CountingAllocator::unwatch_writes(block.data.get());
  };
  REQUIRE(CountingAllocator::watch_writes(block.data.get(), owner, 2));
  CHECK(block.as_filled());
  CHECK(owner.touches.empty());
  const_cast<volatile std::uint32_t*>(block.numbers())[5000] = 1;
  CHECK(owner.touches == std::vector{std::pair(std::uint32_t{2}, true)});
  CHECK(seen == 5000);
  CHECK(block.numbers()[5000] == 1);
}

TEST_CASE("a watched block can be spilled, and is watched again when it is back",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  CountedBlock block(64 << 10);
  owner.on_touch = [&](std::uint32_t, bool) {
    CountingAllocator::unwatch_writes(block.data.get());
  };
  REQUIRE(CountingAllocator::watch_writes(block.data.get(), owner, 2));
  REQUIRE(CountingAllocator::spill(block.data.get(), owner, 2, file));
  CountingAllocator::restore(block.data.get());
  CHECK(block.as_filled());
  CHECK(owner.touches.empty());
  const_cast<volatile std::uint32_t*>(block.numbers())[5000] = 5000;
  CHECK(owner.touches.size() == 1);
}

TEST_CASE("a block may be freed while it is spilled or watched, and its place be used again",
          "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  const Bytes live = cpu_memory().live(), existing = cpu_memory().existing();
  for (int i = 0; i < 20; ++i) {
    for (const std::size_t bytes : std::vector<std::size_t>{64 << 10, 1 << 20}) {
      CountedBlock spilled(bytes), watched(bytes);
      REQUIRE(CountingAllocator::spill(spilled.data.get(), owner, 1, file));
      REQUIRE(CountingAllocator::watch_writes(watched.data.get(), owner, 2));
    }
  }
  CHECK(protected_blocks().size() == 0);
  CHECK(cpu_memory().live() == live);
  CHECK(cpu_memory().existing() == existing);
  CHECK(file.size() <= 2_MiB);
  CHECK(owner.touches.empty());
}

TEST_CASE("blocks that went and came back leave no areas behind", "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file;
  NotingOwner owner;
  std::vector<CountedBlock> blocks;
  for (int i = 0; i < 100; ++i) blocks.emplace_back(64 << 10);
  const std::size_t before = areas();
  for (const CountedBlock& block : blocks)
    REQUIRE(CountingAllocator::spill(block.data.get(), owner, 1, file));
  for (const CountedBlock& block : blocks) CHECK(CountingAllocator::restore(block.data.get()));
  for (const CountedBlock& block : blocks) CHECK(block.as_filled());
  if (areas() > before + 20)
    WARN("this system keeps the areas of moved pages apart (Linux before 5.7)");
  CHECK(areas() <= before + 220);
}

TEST_CASE("where the system protects nothing more, the block is as it was", "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  SpillFile file("/nonexistent-folder-of-reprise-tests");
  NotingOwner owner;
  CountedBlock block(64 << 10);
  const Bytes live = cpu_memory().live();
  CHECK_THROWS_AS(CountingAllocator::spill(block.data.get(), owner, 1, file), Error);
  block.fill();
  CHECK(block.as_filled());
  CHECK(cpu_memory().live() == live);
  CHECK(protected_blocks().size() == 0);
}

TEST_CASE(
    "a fault that is not ours ends the process as it would have, or goes to whoever handled it "
    "before",
    "[protected_blocks]") {
  if (!ProtectedBlocks::available()) return;
  const auto fault = [] {
    SpillFile file;
    NotingOwner owner;
    CountedBlock block(64 << 10);
    if (!CountingAllocator::spill(block.data.get(), owner, 1, file)) return 2;
    *reinterpret_cast<volatile int*>(std::uintptr_t{64}) = 1;
    return 3;
  };
  CHECK(end_of_child([&] {
          ::signal(SIGSEGV, SIG_DFL);
          return fault();
        }) == -SIGSEGV);
  CHECK(end_of_child([&] {
          ::signal(SIGSEGV, [](int) { ::_exit(42); });
          return fault();
        }) == 42);
  CHECK(end_of_child([&] {
          ::signal(SIGSEGV, SIG_DFL);
          static_cast<void>(fault);
          SpillFile file;
          NotingOwner owner;
          CountedBlock block(64 << 10);
          if (!CountingAllocator::spill(block.data.get(), owner, 1, file)) return 2;
          ::raise(SIGSEGV);
          return 3;
        }) == -SIGSEGV);
}
