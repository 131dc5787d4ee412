// Who writes to a storage through a pointer.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/residency/user_blocks.hpp>
#include <reprise/libtorch/residency/write_watch.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::residency;
using torch::Tensor;

namespace {

struct Listener final : BlockListener {
  std::vector<std::uint32_t> writes{};
  std::vector<float> first_number{};  ///< when it was told
  const float* watched = nullptr;

  bool tombstone_freed(Tombstone&) override { return false; }
  void make_room(Bytes) override {}
  bool keep(void*, std::uint32_t) override { return false; }
  Entry try_enter() override { return Entry::entered; }
  void leave() override {}
  void touched(std::uint32_t s, bool writes_it) override {
    if (!writes_it) return;
    writes.push_back(s);
    first_number.push_back(*watched);
  }
  void was_opened(std::uint32_t, bool) override {}
};

struct Watched {
  StorageRecords records{};
  Listener listener{};
  UserBlocks blocks{records, listener, UserBlocks::Listening::on};
  WriteWatch watch{records};
  Tensor tensor{};
  StorageIndex s = 0;
  float* numbers = nullptr;

  explicit Watched(std::int64_t count) : tensor(torch::zeros({count})) {
    s = records.add(tensor.storage());
    blocks.look_at(s);
    numbers = tensor.data_ptr<float>();
    listener.watched = numbers + count / 2;
    watch.start(s, listener);
  }
  ~Watched() {
    watch.stop_all();
    blocks.stop_listening_to(tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

constexpr std::int64_t many = 16384;  // several pages

}  // namespace

TEST_CASE("the owner is told before the middle of a watched storage is written", "[write_watch]") {
  if (!ProtectedBlocks::available()) return;
  Watched w(many);
  CHECK(w.records[w.s].residency.writes_watched);
  volatile float* middle = w.numbers + many / 2;
  static_cast<void>(*middle);
  CHECK(w.listener.writes.empty());
  *middle = 3;
  CHECK(w.listener.writes == std::vector<std::uint32_t>{w.s});
  CHECK(w.listener.first_number == std::vector<float>{0});
  CHECK(w.numbers[many / 2] == 3);
}

TEST_CASE("a write to the edges is found by comparing, as is one to a small storage",
          "[write_watch]") {
  if (!ProtectedBlocks::available()) return;
  const std::int64_t count = GENERATE(many, std::int64_t{16});
  Watched w(count);
  CHECK_FALSE(w.watch.edges_written(w.s));
  w.numbers[0] = 5;
  CHECK(w.watch.edges_written(w.s));
  CHECK(w.listener.writes.empty());
  {
    const WriteWatch::OldEdges old(w.watch, w.s);
    CHECK(w.numbers[0] == 0);
    CHECK_FALSE(w.watch.edges_written(w.s));
  }
  CHECK(w.numbers[0] == 5);
  CHECK_FALSE(w.records[w.s].residency.writes_watched);
}

TEST_CASE("after the end of a watch nobody is told", "[write_watch]") {
  if (!ProtectedBlocks::available()) return;
  Watched w(many);
  w.watch.stop(w.s);
  w.numbers[many / 2] = 3;
  w.numbers[0] = 3;
  CHECK(w.listener.writes.empty());
  CHECK_FALSE(w.watch.edges_written(w.s));
  w.watch.start(w.s, w.listener);  // and it can begin again
  CHECK_FALSE(w.watch.edges_written(w.s));
  w.numbers[0] = 4;
  CHECK(w.watch.edges_written(w.s));
}

TEST_CASE("what is not in memory is not watched", "[write_watch]") {
  if (!ProtectedBlocks::available()) return;
  Watched w(many);
  w.watch.stop(w.s);
  w.records[w.s].residency.state = ResidencyState::foreign;
  w.watch.start(w.s, w.listener);
  CHECK_FALSE(w.records[w.s].residency.writes_watched);
}
