// The one way to the parts of a step.

#include <thread>
#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/guided/entry_scope.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::tensors;

namespace {

struct Parts {
  explicit Parts(int first) : value(first) {}
  int value;
  bool fails = false;
  std::vector<bool> outermost{};

  void synchronize(bool is_outermost) {
    outermost.push_back(is_outermost);
    if (fails) throw 1;
  }
};
using Scope = EntryScope<Parts>;

}  // namespace

TEST_CASE("an entry scope synchronizes, and only the outermost one everything") {
  std::recursive_mutex guard;
  Entrance<Parts> entrance(guard, 7);
  {
    const Scope outer(entrance);
    const Scope inner(entrance);
    const Scope callback(entrance, Synchronize::no);
    CHECK(callback->value == 7);
    CHECK(outer->outermost == std::vector<bool>{true, false});
  }
  const Scope again(entrance);
  CHECK(again->outermost == std::vector<bool>{true, false, true});
}

TEST_CASE("an entry scope holds the guard") {
  std::recursive_mutex guard;
  Entrance<Parts> entrance(guard, 0);
  bool entered = true;
  const auto try_elsewhere = [&] {
    std::thread([&] {
      entered = guard.try_lock();
      if (entered) guard.unlock();
    }).join();
  };
  {
    const Scope scope(entrance);
    try_elsewhere();
    CHECK_FALSE(entered);
  }
  try_elsewhere();
  CHECK(entered);
}

TEST_CASE("a scope whose synchronization throws was never open") {
  std::recursive_mutex guard;
  Entrance<Parts> entrance(guard, 0);
  Scope(entrance)->fails = true;
  CHECK_THROWS(Scope(entrance));
  Scope(entrance, Synchronize::no)->fails = false;
  CHECK(Scope(entrance)->outermost == std::vector<bool>{true, true, true});
}
