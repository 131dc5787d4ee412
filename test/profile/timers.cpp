// timers/: what is measured, and what is given.

#include <chrono>
#include <thread>

#include <reprise/profile/timers/fixed_timer.hpp>
#include <reprise/profile/timers/steady_timer.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;

namespace {
using Times = std::vector<Microseconds>;
}

TEST_CASE("given times are used in order, the last of them for the rest") {
  FixedTimer timer{{10, 20, 30}};
  timer.begin_run(5);
  CHECK(timer.end_run() == Times{{10}, {20}, {30}, {30}, {30}});
  timer.begin_run(2);
  CHECK(timer.end_run() == Times{{10}, {20}});
}

TEST_CASE("a timer that was given nothing gives nothing: the null timer") {
  FixedTimer timer;
  timer.begin_run(2);
  timer.start(0);
  timer.stop(0);
  CHECK(timer.end_run() == Times{{0}, {0}});
}

TEST_CASE("the steady timer measures at least what an op slept") {
  SteadyTimer timer;
  timer.begin_run(2);
  timer.start(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  timer.stop(0);
  timer.start(1);
  timer.stop(1);
  const Times times = timer.end_run();
  REQUIRE(times.size() == 2);
  CHECK(times[0].count >= 5000);
  CHECK(times[1].count >= 0);
}

TEST_CASE("the steady timer forgets a run that was not finished") {
  SteadyTimer timer;
  timer.begin_run(2);
  timer.start(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  timer.stop(0);
  timer.begin_run(1);
  CHECK(timer.end_run() == Times{{0}});
}
