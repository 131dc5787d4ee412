// mem_probes/: nothing, and the process's resident memory.

#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include <reprise/profile/mem_probes/null_probe.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>
#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::literals;

TEST_CASE("the null probe sees nothing") {
  NullProbe probe;
  probe.begin_run();
  probe.begin_op();
  const MemorySample sample = probe.end_op();
  CHECK(sample.before == 0_B);
  CHECK(sample.peak == 0_B);
  CHECK(sample.after == 0_B);
  CHECK(probe.end_run() == 0_B);
}

#ifdef __linux__

namespace {

constexpr std::size_t large = std::size_t{64} << 20;

/// Pages of its own, all touched: resident while it exists, gone at once when it is not.
struct Pages {
  void* memory = ::mmap(nullptr, large, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Pages() {
    REQUIRE(memory != MAP_FAILED);
    std::memset(memory, 1, large);
  }
  ~Pages() { ::munmap(memory, large); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
};

// the kernel counts in batches
constexpr Bytes most_of_it{static_cast<std::int64_t>(large) * 9 / 10};

}  // namespace

TEST_CASE("the resident probe sees pages that an op keeps") {
  ResidentProbe probe;
  probe.begin_run();
  probe.begin_op();
  const Pages pages;
  const MemorySample sample = probe.end_op();
  CHECK(sample.after - sample.before >= most_of_it);
  CHECK(sample.peak == sample.after);
  CHECK(probe.end_run() == sample.after);
}

TEST_CASE("the resident probe's run has the largest of its ops") {
  ResidentProbe probe;
  probe.begin_run();
  probe.begin_op();
  MemorySample first;
  {
    const Pages pages;
    first = probe.end_op();
  }
  probe.begin_op();
  const MemorySample second = probe.end_op();
  CHECK(first.after - second.before >= most_of_it);
  CHECK(probe.end_run() == first.peak);
  probe.begin_run();  // and the next run does not
  CHECK(first.peak - probe.end_run() >= most_of_it);
  CHECK(ResidentProbe::process_peak() >= first.before + most_of_it);
}

#endif
