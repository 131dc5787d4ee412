// Names that the user gives to parts of a step.

#include <string>
#include <thread>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/scope.hpp>

using namespace reprise::recording;

TEST_CASE("open scopes are one path, outermost first, on each thread its own") {
  CHECK(current_scope().empty());
  {
    const auto encoder = reprise::scope("encoder");
    const auto block = reprise::scope("block 3");
    CHECK(current_scope() == "encoder/block 3");
    std::string elsewhere = "?";
    std::thread([&] { elsewhere = current_scope(); }).join();
    CHECK(elsewhere.empty());
  }
  CHECK(current_scope().empty());
}
