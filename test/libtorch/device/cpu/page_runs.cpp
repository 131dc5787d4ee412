// Runs of pages that wait: neighbours become one, and each choice of a run.

#include <vector>

#include <reprise/libtorch/device/cpu/page_runs.hpp>

#include <reprise_test/catch.hpp>

using reprise::cpu::PageRuns;

namespace {

std::byte* at(std::size_t offset) {
  static std::vector<std::byte> memory(1000);
  return memory.data() + offset;
}

}  // namespace

TEST_CASE("neighbouring runs become one, whichever comes first") {
  PageRuns runs;
  CHECK(runs.empty());
  runs.add({at(0), 10, 1});
  runs.add({at(30), 10, 2});
  CHECK(runs.bytes() == 20);
  CHECK(runs.take(11) == nullptr);
  runs.add({at(10), 20, 3});  // between the two
  CHECK(runs.bytes() == 40);
  const PageRuns::Run all = runs.take_largest();
  CHECK(all.pages == at(0));
  CHECK(all.bytes == 40);
  CHECK(all.freed == 3);
  CHECK(runs.empty());
  CHECK(runs.bytes() == 0);
}

TEST_CASE("a block comes from the smallest run that is large enough, and the rest waits on") {
  PageRuns runs;
  runs.add({at(0), 50, 1});
  runs.add({at(100), 20, 2});
  runs.add({at(200), 30, 3});
  CHECK(runs.take(15) == at(100));
  CHECK(runs.bytes() == 85);
  CHECK(runs.take(5) == at(115));  // what was left of it
  CHECK(runs.take(31) == at(0));
  CHECK(runs.take(31) == nullptr);
  CHECK(runs.bytes() == 49);
}

TEST_CASE("the run that has waited longest is the one whose last pages came first") {
  PageRuns runs;
  runs.add({at(0), 10, 1});
  runs.add({at(100), 10, 2});
  runs.add({at(10), 10, 3});  // the first is as young as this by now
  CHECK(runs.take_oldest().pages == at(100));
  CHECK(runs.take_oldest().bytes == 20);
  CHECK(runs.empty());
}
