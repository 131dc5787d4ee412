#include "support/statistics.hpp"

#include <reprise_test/catch.hpp>

using examples::quantile;

TEST_CASE("a quantile lies between its neighbours") {
  CHECK(quantile({8, 1, 4, 2}, 0.5) == 3);
  CHECK(quantile({1, 2, 4, 8}, 0.25) == 1.75);
  CHECK(quantile({1, 2, 4, 8}, 0) == 1);
  CHECK(quantile({1, 2, 4, 8}, 1) == 8);
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({5}, 0.25) == 5);
}
