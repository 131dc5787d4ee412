#include <reprise/plan/background_planner.hpp>

#include <algorithm>
#include <atomic>
#include <stdexcept>

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::planning;

TEST_CASE("jobs are planned one after the other in a thread of their own") {
  BackgroundPlanner planner;
  const auto self = std::this_thread::get_id();
  std::atomic<bool> elsewhere = false;
  const auto first = planner.submit([&](std::stop_token) {
    elsewhere = std::this_thread::get_id() != self;
    return Schedule{NodeId{1}};
  });
  const auto second = planner.submit([](std::stop_token) {
    return Schedule{NodeId{2}, NodeId{2}};
  });
  CHECK(second->take().size() == 2);
  CHECK(first->done());
  CHECK(first->take() == Schedule{NodeId{1}});
  CHECK(elsewhere);
}

TEST_CASE("what a job throws is thrown to whoever takes it") {
  BackgroundPlanner planner;
  const auto job = planner.submit(
      [](std::stop_token) -> Schedule { throw std::runtime_error("no such strategy"); });
  CHECK_THROWS_AS(job->take(), std::runtime_error);
}

TEST_CASE(
    "a planner that goes cancels what is under way and what waits, and blocks no longer than that "
    "takes") {
  std::shared_ptr<PlanJob> running, waiting;
  std::atomic<bool> started = false, ran_after = false;
  {
    BackgroundPlanner planner;
    running = planner.submit([&](std::stop_token stop) {
      started = true;
      while (!stop.stop_requested()) std::this_thread::yield();
      return Schedule{NodeId{1}};
    });
    waiting = planner.submit([&](std::stop_token) {
      ran_after = true;
      return Schedule{};
    });
    while (!started) std::this_thread::yield();
  }
  CHECK(running->done());
  CHECK_FALSE(ran_after);
}

TEST_CASE("a cancelled job is done, with nothing") {
  BackgroundPlanner planner;
  std::atomic<bool> go = false;
  const auto first = planner.submit([&](std::stop_token) {
    while (!go) std::this_thread::yield();
    return Schedule{};
  });
  const auto second = planner.submit([](std::stop_token) { return Schedule{NodeId{7}}; });
  second->cancel();
  go = true;
  CHECK(second->take().empty());
}

#ifdef __linux__
TEST_CASE("the thread of a polite planner gives way to all others, and no other thread does") {
  const int own = getpriority(PRIO_PROCESS, 0);
  for (const Politeness politeness : {Politeness::usual, Politeness::polite}) {
    BackgroundPlanner planner(politeness);
    int priority = 0;
    planner
        .submit([&](std::stop_token) {
          priority = getpriority(PRIO_PROCESS, 0);
          return Schedule{};
        })
        ->wait();
    CHECK(priority == (politeness == Politeness::polite ? std::min(own + 10, 19) : own));
    CHECK(getpriority(PRIO_PROCESS, 0) == own);
  }
}
#endif
