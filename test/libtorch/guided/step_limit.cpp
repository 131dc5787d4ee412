// What a guided step may hold.

#include <reprise_test/lineages.hpp>

#include <reprise/libtorch/guided/step_limit.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::guided;
using namespace reprise::residency;
using namespace reprise::testing;
using namespace reprise::literals;

TEST_CASE("a limit allows what fits below it, and no limit everything", "[step_limit]") {
  const Bytes live = device_memory().live();
  const StepLimit limit(live + 1_KiB, true), none({}, true);
  CHECK(limit.given());
  CHECK(limit.allows(1_KiB));
  CHECK_FALSE(limit.allows(1_KiB + 1_B));
  CHECK_FALSE(none.given());
  CHECK(none.allows(1024_GiB));
}

TEST_CASE("what a step needs in any case is enforced in place of a smaller limit", "[step_limit]") {
  StepLimit limit(1_KiB, true);
  CHECK(limit.enforced() == 1_KiB);
  limit.exceed(3_KiB);
  limit.exceed(2_KiB);
  CHECK(limit.enforced() == 3_KiB);
  CHECK(limit.needed() == 3_KiB);
  CHECK(limit.bytes() == 1_KiB);
  limit.set(4_KiB);
  CHECK(limit.enforced() == 4_KiB);
  limit.remove();
  CHECK_FALSE(limit.given());
  CHECK(limit.needed() == 0_B);
}

TEST_CASE("one allocation above the limit is remembered", "[step_limit]") {
  StepLimit limit(device_memory().live() + 1_KiB, false);
  limit.note_allocation(1_KiB);
  CHECK_FALSE(limit.went_over());
  limit.note_allocation(2_KiB);
  limit.note_allocation(1_B);
  CHECK(limit.went_over());
}

TEST_CASE("whether a step throws is set and set back", "[step_limit]") {
  StepLimit limit(1_KiB, true);
  CHECK(limit.set_throws(false));
  CHECK_FALSE(limit.throws());
  CHECK_FALSE(limit.set_throws(true));
}

TEST_CASE("an error says what is held by whom, and what is asked for", "[step_limit]") {
  HandMadeStep step;
  const auto x = step.input(), gone = step.input();
  const auto h = step.call({x});
  step.evict(gone);
  const StepLimit limit(1_KiB, true);
  const std::string op = "aten::mm";
  const Error error = limit.too_small(&op, 2_KiB, step.tables, step.residency, "ADVICE");
  const std::string text = error.what();
  CHECK(error.code() == Errc::budget_unreachable);
  const Bytes needed = device_memory().live() + 2_KiB;
  CHECK_THAT(text, contains("aten::mm needs " + format_bytes(needed) + " (" +
                            std::to_string(needed.count) + " bytes) at once"));
  CHECK_THAT(text, contains("The budget is 1.00 KiB (1024 bytes)"));
  CHECK_THAT(text, contains("'x'"));
  CHECK_THAT(text, contains("ADVICE"));
  CHECK_THAT(limit.too_small(nullptr, 1_B, step.tables, step.residency, "").what(),
             contains("an allocation outside of any op needs"));
  static_cast<void>(h);
}
