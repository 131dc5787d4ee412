// What spilling and fetching took.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/residency/transfer_stats.hpp>

using namespace reprise;
using namespace reprise::residency;
using namespace reprise::literals;

TEST_CASE("transfers are counted for all storages, and for each that was ever spilled") {
  TransferLog log;
  const auto ago = [](int seconds) {
    return TransferLog::Clock::now() - std::chrono::seconds(seconds);
  };
  log.note_spill(3, 1_KiB, ago(2));
  log.note_spill(5, 3_KiB, ago(1));
  log.note_fetch(3, 1_KiB, ago(4));
  CHECK(log.of(4) == nullptr);
  REQUIRE(log.of(3) != nullptr);
  CHECK(log.of(3)->moved_out == 1);
  CHECK(log.of(3)->brought_back == 1);
  CHECK(log.of(3)->bytes_in == 1_KiB);
  CHECK(log.of(5)->brought_back == 0);
  CHECK(log.all().moved_out == 2);
  CHECK(log.all().brought_back == 1);
  CHECK(log.all().bytes_out == 4_KiB);
  CHECK(log.all().time_out.count >= 3e6);
  CHECK(log.all().time_in.count >= 4e6);
}

TEST_CASE("a bandwidth is bytes by seconds, and nothing if nothing was spilled") {
  TransferStats stats;
  CHECK(stats.bandwidth_out() == 0);
  CHECK(stats.bandwidth_in() == 0);
  stats.bytes_out = stats.bytes_in = Bytes{2'000'000};
  stats.time_out = {1e6};
  stats.time_in = {5e5};
  CHECK(stats.bandwidth_out() == 2e6);
  CHECK(stats.bandwidth_in() == 4e6);
}
