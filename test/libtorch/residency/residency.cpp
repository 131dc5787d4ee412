// Bytes leave memory and return, and what exists without a limit stays what it is.

#include <thread>

#include <reprise_test/eager.hpp>

#include <reprise/libtorch/residency/storage_events.hpp>

using namespace reprise;
using namespace reprise::checkpointing;
using namespace reprise::cpu;
using namespace reprise::residency;
using namespace reprise::tensors;
using namespace reprise::training;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;
using State = ResidencyState;

namespace {

/// A step without ops, whose guard this thread holds, as if an op ran.
struct Step final : StorageOwner {
  StorageRecords records;
  SpillStore file;
  std::recursive_mutex guard;
  std::vector<StorageIndex> deaths, exchanges;
  std::function<bool(StorageIndex)> is_needed = [](StorageIndex) { return false; };
  std::function<void()> on_make_room = [] {};
  StorageEvents events{records, file, guard, *this};
  Residency& residency = events.residency();
  std::unique_lock<std::recursive_mutex> lock{guard};

  StorageIndex add(const Tensor& tensor) {
    const StorageIndex s = records.add(tensor.storage());
    events.look_at_new_storages();
    return s;
  }
  bool died(StorageIndex s) override {
    deaths.push_back(s);
    return is_needed(s);
  }
  void make_room(Bytes /*bytes*/) override { on_make_room(); }
  void touched(StorageIndex /*s*/, bool /*writes*/) override {}
  void was_touched(StorageIndex /*s*/, bool /*writes*/) override {}
  void exchanged(StorageIndex s) override { exchanges.push_back(s); }
  [[nodiscard]] bool in_op() const override { return false; }
};

Bytes bytes_of(const Tensor& tensor) {
  return {static_cast<std::int64_t>(tensor.storage().nbytes())};
}

/// The last reference to the tensor goes on a thread of its own.
void die_elsewhere(Tensor& tensor) {
  std::thread([dying = std::move(tensor)]() mutable { dying.reset(); }).join();
}

struct Memory {
  Bytes live = device_memory().live(), existing = device_memory().existing();
  bool operator==(const Memory&) const = default;
};

}  // namespace

TEST_CASE("an evicted storage exists, and its bytes come back under its tensors") {
  const auto elements = GENERATE(std::int64_t{64}, std::int64_t{1} << 16);
  const bool keeps_pointers = GENERATE(false, true);
  Step step;
  if (keeps_pointers) step.residency.keep_pointers();
  const Tensor a = torch::ones({elements}), view = a.view({2, -1});
  const StorageIndex s = step.add(a);
  const Memory before;
  CHECK(step.residency.state(s) == State::resident);
  step.residency.evict(s, "a");
  CHECK(step.residency.state(s) == State::evicted);
  CHECK(device_memory().live() == before.live - bytes_of(a));
  CHECK(device_memory().existing() == before.existing);
  Tensor again = torch::ones({elements});  // what a recomputation gives
  step.residency.attach_bytes(
      s, std::exchange(again.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks(), {}));
  CHECK(step.residency.state(s) == State::resident);
  CHECK(Memory{} == before);
  CHECK(view.sum().item<double>() == static_cast<double>(elements));
}

TEST_CASE("a spilled storage is fetched with the same bytes, and its transfers are counted") {
  const auto elements = GENERATE(std::int64_t{1} << 14, std::int64_t{1} << 16);
  Step step;
  const Tensor a = torch::arange(elements, torch::kFloat), copy = a.clone();
  const StorageIndex s = step.add(a);
  const Memory before;
  CHECK(step.residency.transfers().of(s) == nullptr);
  REQUIRE(step.residency.spill(s, "a"));
  CHECK(step.residency.state(s) == State::spilled);
  CHECK(device_memory().live() == before.live - bytes_of(a));
  CHECK(device_memory().existing() == before.existing);
  step.residency.fetch(s);
  CHECK(step.residency.state(s) == State::resident);
  CHECK(Memory{} == before);
  CHECK(same_bits(a, copy));
  REQUIRE(step.residency.transfers().of(s) != nullptr);
  CHECK(step.residency.transfers().of(s)->moved_out == 1);
  CHECK(step.residency.transfers().of(s)->bytes_in == bytes_of(a));
  CHECK(step.residency.transfers().all().brought_back == 1);
}

TEST_CASE("a block without two whole pages is not spilled where blocks keep their address") {
  if (!ProtectedBlocks::available()) return;
  Step step;
  const Tensor a = torch::ones({64});
  const StorageIndex s = step.add(a);
  CHECK_FALSE(step.residency.spillable(s));
  CHECK_FALSE(step.residency.spill(s, "a"));
  CHECK(step.residency.state(s) == State::resident);
}

TEST_CASE("an orphan is live, and does not exist without a limit") {
  const bool spilled = GENERATE(false, true);
  Step step;
  step.is_needed = [](StorageIndex) { return true; };
  const Memory before;
  Tensor a = torch::arange(1 << 16, torch::kFloat);
  const Bytes bytes = bytes_of(a);
  const StorageIndex s = step.add(a);
  if (spilled) REQUIRE(step.residency.spill(s, "a"));
  a.reset();
  CHECK(step.deaths == std::vector<StorageIndex>{s});
  CHECK(step.residency.state(s) == (spilled ? State::orphaned_spilled : State::orphaned));
  CHECK(device_memory().live() == before.live + (spilled ? 0_B : bytes));
  CHECK(device_memory().existing() == before.existing);
  if (spilled) step.residency.fetch(s);
  CHECK(step.residency.state(s) == State::orphaned);
  CHECK(static_cast<const float*>(step.residency.memory_of(s).data())[1000] == 1000.0f);
  step.residency.release_orphan(s);
  CHECK(step.residency.state(s) == State::dead);
  CHECK(Memory{} == before);
}

TEST_CASE("a storage that dies while it is away leaves nothing behind") {
  const auto elements = GENERATE(std::int64_t{64}, std::int64_t{1} << 16);
  const bool spills = GENERATE(false, true);
  const bool elsewhere = GENERATE(false, true);
  Step step;
  const Memory before;
  Tensor a = torch::ones({elements});
  const StorageIndex s = step.add(a);
  if (spills && !step.residency.spillable(s)) return;
  if (spills) REQUIRE(step.residency.spill(s, "a"));
  else step.residency.evict(s, "a");
  if (elsewhere) {
    die_elsewhere(a);
    CHECK(step.deaths.empty());  // this thread is in an op: it is told when the op is over
    step.events.process_pending();
  } else {
    a.reset();
  }
  CHECK(step.deaths == std::vector<StorageIndex>{s});
  CHECK(step.residency.state(s) == State::dead);
  CHECK(Memory{} == before);
}

TEST_CASE("a storage whose last tensor dies on another thread while it is fetched is not freed") {
  if (!ProtectedBlocks::available()) return;
  Step step;
  const Memory before;
  Tensor a = torch::arange(1 << 16, torch::kFloat), b = torch::ones({1 << 16});
  const StorageIndex s = step.add(a), other = step.add(b);
  REQUIRE(step.residency.spill(s, "a"));
  step.on_make_room = [&] {
    die_elsewhere(a);
    die_elsewhere(b);
    step.events.process_free_of(other);  // as eviction does with a victim that has died
    CHECK(step.deaths == std::vector<StorageIndex>{other});
  };
  step.residency.fetch(s);
  step.events.process_pending();
  CHECK(step.deaths == std::vector<StorageIndex>{other, s});
  CHECK(step.residency.state(s) == State::dead);
  CHECK(Memory{} == before);
}

TEST_CASE("a storage that is dying on another thread is kept for whoever is about to read it") {
  Step step;
  Tensor a = torch::arange(1 << 16, torch::kFloat);
  const StorageIndex s = step.add(a);
  die_elsewhere(a);
  CHECK(step.residency.state(s) == State::resident);
  step.events.keep_if_dying(s);
  CHECK(step.residency.state(s) == State::orphaned);
  CHECK(static_cast<const float*>(step.residency.memory_of(s).data())[77] == 77.0f);
}

TEST_CASE("tombstones that other threads have freed do not outlive the step") {
  Tensor a = torch::ones({64});
  const Memory before;
  {
    Step step;
    const StorageIndex s = step.add(a);
    step.residency.evict(s, "a");
    die_elsewhere(a);
    CHECK(step.residency.state(s) == State::evicted);
  }
  CHECK(device_memory().live() == before.live - 256_B);
  CHECK(device_memory().existing() == before.existing - 256_B);
}

TEST_CASE("at the end of the step a storage that is not back says so, and its block is free") {
  const auto elements = GENERATE(std::int64_t{64}, std::int64_t{1} << 16);
  const Memory before;
  Tensor a = torch::ones({elements});
  {
    Step step;
    const StorageIndex s = step.add(a);
    step.residency.evict(s, "a");
  }
  CHECK(Memory{} == before);
  if constexpr (storages_can_be_guarded) CHECK_THROWS(a.data_ptr());
}
