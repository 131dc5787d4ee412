// How many bytes the steps of a MemoryBudget may hold.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/guided/budget_limit.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::literals;

namespace {

const auto no_cost = [](double) { return std::optional<Bytes>{}; };

}  // namespace

TEST_CASE("a budget in bytes is its own limit", "[budget_limit]") {
  BudgetLimit limit{4_GiB, 1_GiB};
  CHECK(limit.is_known());
  CHECK_FALSE(limit.is_resolved_share());
  CHECK(limit.now() == 4_GiB);
  limit.exclude(1_GiB);
  CHECK(limit.enforced() == 4_GiB);
  CHECK(limit.enforced_with_excluded() == 5_GiB);
  CHECK(BudgetLimit::headroom(1_GiB, limit.now()) == 3_GiB);
  CHECK(BudgetLimit::headroom(1_GiB, 0_B) > 1024_GiB);
}

TEST_CASE("a share is known from the largest step on", "[budget_limit]") {
  BudgetLimit limit{Budget::savable(50), 7_GiB};
  CHECK_FALSE(limit.is_known());
  CHECK(limit.now() == 7_GiB);
  limit.resolve(1_MiB, no_cost);
  CHECK_FALSE(limit.is_known());
  limit.note_step(10_MiB, 2_MiB);
  limit.note_step(8_MiB, 4_MiB);
  limit.note_step(1_MiB, 1_MiB);
  limit.resolve(1_MiB, no_cost);
  CHECK(limit.is_resolved_share());
  CHECK(limit.now() == 8_MiB);  // 1 + 4 + half of 10 - 4
  limit.set(Budget::savable(100));
  CHECK_FALSE(limit.is_known());
  limit.resolve(1_MiB, no_cost);
  CHECK(limit.now() == 11_MiB);
}

TEST_CASE("a budget by its cost is what the plans say", "[budget_limit]") {
  BudgetLimit limit{Budget::extra_time(10), 7_GiB};
  limit.resolve(1_MiB, no_cost);
  CHECK_FALSE(limit.is_known());
  limit.resolve(1_MiB, [](double percent) { return std::optional(percent == 10 ? 5_MiB : 0_B); });
  CHECK(limit.now() == 6_MiB);
}

TEST_CASE("a stretched limit is enforced, and is not the budget", "[budget_limit]") {
  BudgetLimit limit{4_MiB, {}};
  limit.stretch(1_MiB, 5_MiB);
  CHECK(limit.is_stretched());
  CHECK(limit.now() == 4_MiB);
  CHECK(limit.enforced() == 6_MiB);
  limit.resolve(2_MiB, no_cost);
  CHECK(limit.enforced() == 7_MiB);
  limit.set(8_MiB);
  CHECK_FALSE(limit.is_stretched());
  CHECK(limit.enforced() == 8_MiB);
}

TEST_CASE("no budget is an error", "[budget_limit]") {
  CHECK_THROWS_WITH((BudgetLimit{Budget{}, {}}), contains("a MemoryBudget needs a budget"));
}
