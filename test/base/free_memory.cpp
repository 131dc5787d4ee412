#include <reprise/base/free_memory.hpp>

#include <fstream>

#include <reprise_test/catch.hpp>
#include <reprise_test/temp_dir.hpp>

using namespace reprise;
using namespace reprise::literals;

TEST_CASE("free memory is the smaller of what the machine has and what the control group leaves") {
  const reprise_test::TempDir dir;
  const auto write = [&](const char* name, const char* text) { std::ofstream(dir / name) << text; };
  const auto here = [&] { return free_memory(dir / "meminfo", dir / "."); };
  CHECK(here() == 0_B);  // nothing can be read: not known
  write("meminfo", "MemTotal:       64 kB\nMemAvailable:       32 kB\nSwapTotal: 0 kB\n");
  CHECK(here() == 32_KiB);
  write("memory.max", "max\n");
  write("memory.current", "1024\n");
  CHECK(here() == 32_KiB);
  write("memory.max", "5120\n");
  CHECK(here() == 4_KiB);
  write("memory.current", "9000\n");  // above its limit already
  CHECK(here() == 0_B);
}
