#include <reprise/plan/turns.hpp>

#include <reprise_test/catch.hpp>

using reprise::planning::Turns;

namespace {

/// How many of so many guesses are right, from the `from`-th on.
int right(const std::vector<std::uint64_t>& period, int from, int until) {
  Turns turns;
  int count = 0;
  for (int i = 0; i < until; ++i) {
    const std::uint64_t id = period[static_cast<std::size_t>(i) % period.size()];
    if (i >= from && turns.next() == id) ++count;
    turns.note(id);
  }
  return count;
}

}  // namespace

TEST_CASE("what takes turns is guessed once it has come twice") {
  CHECK(right({1}, 2, 300) == 298);
  CHECK(right({1, 2}, 3, 300) == 297);
  CHECK(right({1, 2, 2, 3}, 8, 300) == 292);
  CHECK(right({1, 1, 1, 1, 1, 2}, 12, 300) == 288);
}

TEST_CASE("nothing is guessed where nothing has come again") {
  Turns turns;
  CHECK_FALSE(turns.next());
  for (const std::uint64_t id : {1u, 2u, 3u}) {
    turns.note(id);
    CHECK_FALSE(turns.next());
  }
  turns.note(2);
  CHECK(turns.next() == 3u);
  turns.note(7);
  CHECK_FALSE(turns.next());
}
