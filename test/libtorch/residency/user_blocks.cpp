// Which block each storage has.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/residency/user_blocks.hpp>
#include <reprise_test/block_listener.hpp>

using namespace reprise;
using namespace reprise::residency;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

struct Looking {
  StorageRecords records{};
  NotingListener listener{};
  UserBlocks blocks;
  explicit Looking(UserBlocks::Listening listening = UserBlocks::Listening::on)
      : blocks(records, listener, listening) {}
  StorageIndex add(const Tensor& t) {
    const StorageIndex s = records.add(t.storage());
    blocks.look_at(s);
    return s;
  }
  StorageRecord::Residency& at(StorageIndex s) { return records[s].residency; }
};

}  // namespace

TEST_CASE("a block of our allocator is resident, and another one foreign", "[user_blocks]") {
  Looking l;
  Tensor t = torch::ones({256});
  std::vector<float> mine(4);
  const StorageIndex s = l.add(t), f = l.add(torch::from_blob(mine.data(), {4}));
  CHECK(l.at(s).state == ResidencyState::resident);
  CHECK(l.at(s).bytes == 1_KiB);
  CHECK(l.at(s).data == t.const_data_ptr());
  CHECK(l.at(f).state == ResidencyState::foreign);
  t.reset();
  CHECK(l.listener.freed == std::vector<std::uint32_t>{s});
}

TEST_CASE("what is elsewhere is not looked at", "[user_blocks]") {
  Looking l;
  const Tensor t = torch::ones({256});
  const StorageIndex s = l.records.add(t.storage());
  for (const ResidencyState state : {ResidencyState::evicted, ResidencyState::spilled}) {
    l.at(s).state = state;
    l.blocks.look_at(s);
    CHECK(l.at(s).state == state);
  }
}

TEST_CASE("nobody hears of the end of a block that is shared, or not listened to",
          "[user_blocks]") {
  Looking l;
  Tensor t = torch::ones({256}), u = torch::ones({256});
  const StorageIndex s = l.add(t);
  static_cast<void>(l.add(u));
  l.blocks.note_shared(s);
  CHECK(l.at(s).state == ResidencyState::foreign);
  CHECK_FALSE(l.at(s).spillable);
  l.blocks.stop_listening_to(u.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  t.reset();
  u.reset();
  CHECK(l.listener.freed.empty());
}

TEST_CASE("without listening every block can be spilled, and nobody hears of its end",
          "[user_blocks]") {
  Looking l(UserBlocks::Listening::off);
  CHECK_FALSE(l.blocks.spills_in_place());
  Tensor small = torch::ones({1});
  const StorageIndex s = l.add(small);
  CHECK(l.at(s).state == ResidencyState::resident);
  CHECK(l.at(s).spillable);
  small.reset();
  CHECK(l.listener.freed.empty());
}
