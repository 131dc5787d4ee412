// The limit of a step, asked by several threads.

#include <thread>

#include <torch/torch.h>

#include <reprise/libtorch/guided/step_limit.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::devices;
using namespace reprise::guided;
using namespace reprise::literals;

TEST_CASE("a step's limit: what fits, and what the step needs in any case", "[step_limit]") {
  StepLimit limit(device_memory().live() + 1_KiB, true);
  CHECK(limit.given());
  CHECK(limit.throws());
  CHECK(limit.allows(1_KiB));
  CHECK_FALSE(limit.allows(1025_B));
  limit.note_allocation(1_KiB);
  CHECK_FALSE(limit.went_over());
  limit.note_allocation(1025_B);
  CHECK(limit.went_over());
  CHECK(limit.enforced() == limit.bytes());
  limit.exceed(limit.bytes() + 5_B);
  CHECK(limit.enforced() == limit.bytes() + 5_B);
  limit.exceed(3_B);  // it needs no less than before
  CHECK(limit.needed() == limit.bytes() + 5_B);
  CHECK(limit.set_throws(false));
  CHECK_FALSE(limit.throws());
  limit.remove();
  CHECK_FALSE(limit.given());
  CHECK(limit.needed() == 0_B);
  CHECK(limit.allows(1024_GiB));
}

TEST_CASE("two threads exceed a step's limit at once, and the larger need stays", "[step_limit]") {
  for (int round = 0; round < 50; ++round) {
    StepLimit limit(1_B, false);
    const auto exceed = [&](std::int64_t first) {
      for (std::int64_t i = 0; i < 20000; ++i) {
        limit.exceed({first + 2 * i});
        if (limit.needed() < Bytes{first + 2 * i}) return false;
      }
      return true;
    };
    bool other_held = false;
    std::thread other([&] { other_held = exceed(1); });
    const bool held = exceed(2);
    other.join();
    REQUIRE(held);
    REQUIRE(other_held);
    REQUIRE(limit.needed() == Bytes{2 + 2 * 19999});
  }
}
