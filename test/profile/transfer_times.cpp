#include <reprise/profile/transfer_times.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
using namespace reprise::profiling;
using namespace reprise::literals;

namespace {

Profile with_extra(const std::string& extra) {
  GraphBuilder b;
  b.add_value({.id = 2, .bytes = 8192_B, .persistent = true, .extra = extra});
  return empty_profile(std::move(b).build());
}

}  // namespace

TEST_CASE("transfer times come along with a graph file") {
  Profile p = with_extra(R"({"swap_out_us":12.5,"swap_in_us":11})");
  take_transfer_times(p);
  CHECK(p.storages[0].swap_out == Microseconds{12.5});
  CHECK(p.storages[0].swap_in == Microseconds{11});
  CHECK(p.storages[0].measured);
}

TEST_CASE("one transfer time alone is none") {
  Profile p = with_extra(R"({"swap_out_us":12.5,"shape":[3]})");
  take_transfer_times(p);
  CHECK_FALSE(p.storages[0].measured);
}

TEST_CASE("a transfer time that is none is refused by value and field") {
  Profile p = with_extra(R"({"swap_out_us":-1,"swap_in_us":11})");
  CHECK(reprise_test::refusal([&] { take_transfer_times(p); }) ==
        "bad graph: values: 2: swap_out_us: -1 is not a number >= 0");
}
