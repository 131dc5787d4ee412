// The file that holds spilled blocks: what it holds, and who has it open.

#ifdef __linux__

#include <fcntl.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include <reprise/libtorch/device/cpu/spill_file.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::literals;

TEST_CASE("a spill file says what it holds, and no other process has it open") {
  const auto open_files = [] {
    std::set<int> files;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
      files.insert(std::stoi(entry.path().filename()));
    std::erase_if(files, [](int file) { return ::fcntl(file, F_GETFD) < 0; });  // the listing's own
    return files;
  };
  const std::set<int> before = open_files();
  SpillFile file;
  const std::string a(1000, 'a'), b(600, 'b');
  const auto first = file.write(a.data(), a.size());
  int opened = 0;
  for (const int descriptor : open_files())
    if (!before.contains(descriptor)) {
      ++opened;
      CHECK((::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
    }
  CHECK(opened == 1);
  const auto second = file.write(b.data(), b.size());
  CHECK(file.held() == 1600_B);
  file.release(first);
  CHECK(file.held() == 600_B);
  const auto third = file.write(b.data(), b.size());  // where the first was
  CHECK(file.held() == 1200_B);
  CHECK(file.size() == 1600_B);
  file.release(second);
  file.release(third);
  CHECK(file.held() == 0_B);
}

TEST_CASE("a spill file that cannot be written says what it holds besides") {
  SpillFile file;
  const std::string a(1000, 'a');
  const auto first = file.write(a.data(), a.size());
  file.release(first);
  const auto second = file.write(a.data(), 600);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1000;  // as a full disk
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string said;
  try {
    static_cast<void>(file.write(a.data(), a.size()));
  } catch (const Error& e) {
    CHECK(e.code() == Errc::io);
    said = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  static_cast<void>(std::signal(SIGXFSZ, handler));
  CHECK_THAT(said, contains("cannot write 1000 B (the file holds 600 B already): File too large"));
  CHECK(file.held() == 600_B);
  file.release(second);
}

#endif
