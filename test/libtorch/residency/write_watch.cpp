// Who writes to a storage through a pointer.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/residency/user_blocks.hpp>
#include <reprise/libtorch/residency/write_watch.hpp>
#include <reprise_test/block_listener.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::residency;
using namespace reprise::testing;
using torch::Tensor;

namespace {

struct Watched {
  StorageRecords records{};
  NotingListener listener{};
  UserBlocks blocks{records, listener, UserBlocks::Listening::on};
  WriteWatch watch{records};
  Tensor tensor{};
  StorageIndex s = 0;
  float* numbers = nullptr;
  std::vector<float> before_write{};  ///< what the middle held when the owner was told

  explicit Watched(std::int64_t count) : tensor(torch::zeros({count})) {
    s = records.add(tensor.storage());
    blocks.look_at(s);
    numbers = tensor.data_ptr<float>();
    listener.before_write = [this, count](std::uint32_t written) {
      before_write.push_back(numbers[count / 2]);
      watch.stop(written);
    };
    watch.start(s, listener);
  }
  ~Watched() {
    watch.stop_all();
    blocks.stop_listening_to(
        tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
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
  CHECK(w.listener.written.empty());
  *middle = 3;
  CHECK(w.listener.written == std::vector<std::uint32_t>{w.s});
  CHECK(w.before_write == std::vector<float>{0});
  CHECK(w.numbers[many / 2] == 3);
}

TEST_CASE("a write to the edges is found by comparing, as is one to a small storage",
          "[write_watch]") {
  if (!ProtectedBlocks::available()) return;
  for (const std::int64_t count : {many, std::int64_t{16}}) {
    INFO(count << " numbers");
    Watched w(count);
    REQUIRE(w.numbers != nullptr);
    CHECK_FALSE(w.watch.edges_written(w.s));
    w.numbers[0] = 5;
    CHECK(w.watch.edges_written(w.s));
    CHECK(w.listener.written.empty());
    {
      const WriteWatch::OldEdges old(w.watch, w.s);
      CHECK(w.numbers[0] == 0);
      CHECK_FALSE(w.watch.edges_written(w.s));
    }
    CHECK(w.numbers[0] == 5);
    CHECK_FALSE(w.records[w.s].residency.writes_watched);
  }
}

TEST_CASE("after the end of a watch nobody is told", "[write_watch]") {
  if (!ProtectedBlocks::available()) return;
  Watched w(many);
  w.watch.stop(w.s);
  w.numbers[many / 2] = 3;
  w.numbers[0] = 3;
  CHECK(w.listener.written.empty());
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
