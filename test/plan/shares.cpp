#include <reprise/plan/shares.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;
using namespace reprise::literals;

TEST_CASE("memory is shared out by role, and the five largest tensors are named") {
  MemoryShares shares;
  shares.add(Role::parameter, 40_MiB, "fc.weight");
  shares.add(Role::activation, 8_MiB, "conv1/convolution");
  CHECK(shares.text("") ==
        "parameter        40.00 MiB\nactivation       8.00 MiB\nlargest: fc.weight 40.00 MiB, "
        "conv1/convolution 8.00 MiB\n");
  for (int i = 1; i <= 6; ++i)
    shares.add(Role::activation, Bytes{(10 + i) << 20}, std::to_string(i));
  shares.add(Role::other, 0_B, "nothing");
  REQUIRE(shares.largest().size() == 5);
  CHECK(shares.largest()[0].name == "fc.weight");
  CHECK(shares.largest()[1].name == "6");
  CHECK(shares.largest()[4].name == "3");
  CHECK(shares.of(Role::activation) == 89_MiB);
  CHECK(shares.of(Role::other) == 0_B);
  CHECK(shares.total() == 129_MiB);
}
