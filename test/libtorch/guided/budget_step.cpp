// What goes wrong at the end of a step.

#include <stdexcept>
#include <string>
#include <vector>

#include <reprise_test/guided.hpp>

using namespace reprise;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

/// A budget whose user throws when he is told of a step.
struct Throwing {
  std::vector<std::string> notices{};
  std::function<void()> on_step = [] {}, on_notice = [] {};
  MemoryBudget budget{64_GiB, options()};
  Tensor x = torch::ones({64});

  MemoryBudgetOptions options() {
    MemoryBudgetOptions all{.plan_in_background = false};
    all.on_step = [this](const GuidedStepReport&) { on_step(); };
    all.run.on_notice = [this](const std::string& text) {
      notices.push_back(text);
      on_notice();
    };
    return all;
  }
  Tensor run(bool finishes = false) {
    auto step = budget.step();
    Tensor made = torch::relu(x);
    if (finishes) step.finish();
    return made;
  }
};

}  // namespace

TEST_CASE("what is thrown when a step's scope ends is told as a notice, whatever it is",
          "[budget_step]") {
  Throwing t;
  t.on_step = [] { throw std::runtime_error("the disk is full"); };
  CHECK(t.run().equal(t.x));
  CHECK(t.notices == std::vector<std::string>{"at the end of the step: the disk is full"});
  t.on_step = [] { throw 1; };
  CHECK(t.run().equal(t.x));
  CHECK(t.notices.back() == "at the end of the step: an error that is no std::exception");
  t.on_notice = [] { throw 2; };
  CHECK(t.run().equal(t.x));
  CHECK(t.notices.size() == 3);

  t.on_step = t.on_notice = [] {};
  CHECK(t.run().equal(t.x));
  CHECK(t.notices.size() == 3);
  CHECK(t.budget.counters().steps == 4);
}

TEST_CASE("finish() throws it to the user", "[budget_step]") {
  Throwing t;
  t.on_step = [] { throw std::runtime_error("the disk is full"); };
  CHECK_THROWS_WITH(t.run(true), contains("the disk is full"));
  CHECK(t.notices.empty());
  t.on_step = [] {};
  CHECK(t.run(true).equal(t.x));
}

TEST_CASE("an exception of the user's own passes a step that then ends quietly", "[budget_step]") {
  Throwing t;
  bool told = false;
  t.on_step = [&] { told = true; };
  CHECK_THROWS_WITH(
      [&] {
        auto step = t.budget.step();
        static_cast<void>(torch::relu(t.x));
        throw std::runtime_error("the user's");
      }(),
      contains("the user's"));
  CHECK_FALSE(told);
  CHECK(t.notices.empty());
  CHECK(t.run().equal(t.x));
  CHECK(told);
}
