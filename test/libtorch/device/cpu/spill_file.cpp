// A file for what does not fit into memory.

#include <torch/torch.h>

#include <filesystem>
#include <string>

#include <reprise_test/catch.hpp>
#include <reprise_test/temp_dir.hpp>

#include <reprise/libtorch/device/cpu/spill_file.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::literals;

TEST_CASE("a spill file gives back what was written, and reuses its room") {
  SpillFile file;
  const std::string a(1000, 'a'), b(500, 'b');
  const auto first = file.write(a.data(), a.size());
  const auto second = file.write(b.data(), b.size());
  std::string read(1000, ' ');
  file.read(first, read.data());
  CHECK(read == a);
  file.release(first);
  const auto third = file.write(b.data(), b.size());
  CHECK(third.offset == first.offset);
  CHECK(file.size() == 1500_B);
  read.resize(500);
  file.read(second, read.data());
  CHECK(read == b);
}

TEST_CASE("a folder that is not there is an error that names it") {
  SpillFile file{"/no/such/folder"};
  try {
    static_cast<void>(file.write("x", 1));
    FAIL("write should have thrown");
  } catch (const Error& e) {
    CHECK(e.code() == Errc::io);
    CHECK(std::string(e.what()).find("/no/such/folder") != std::string::npos);
  }
}

TEST_CASE("the smallest free place that is large enough is used again, and none is cut") {
  SpillFile file;
  const std::string bytes(400, 'x');
  const auto large = file.write(bytes.data(), 300), small = file.write(bytes.data(), 100),
             other = file.write(bytes.data(), 50);
  for (const auto& place : {large, small, other}) file.release(place);
  const auto again = file.write(bytes.data(), 80);
  CHECK(again.offset == small.offset);
  CHECK(again.bytes == 80);
  CHECK(again.room == 100);
  file.release(again);
  CHECK(file.write(bytes.data(), 100).offset == small.offset);
  CHECK(file.write(bytes.data(), 301).offset == 450);
  CHECK(file.size() == 751_B);
}

TEST_CASE("a spill file leaves nothing in its folder, also while it is open") {
  const reprise_test::TempDir folder;
  SpillFile file{folder / ""};
  static_cast<void>(file.write("abc", 3));
  CHECK(std::filesystem::is_empty(folder / ""));
}
