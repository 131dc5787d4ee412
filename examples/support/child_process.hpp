#pragma once
// A program that runs itself again, in a process of its own and under a limit on memory: what does
// not fit fails there, and is a fact.
//
//   const ChildEnd end = run_self({"--child", "eager"}, "child.log", [&] { return interrupt_was_asked_for; });
//   if (end.signal == SIGKILL) …                  the system ended it
//   limit_memory(8_GiB);                          in the child, before it takes any
//
// The child ends with its parent, whatever ends that one. POSIX; the limit is Linux's.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>

namespace examples {

/// A number of KiB that /proc tells; 0 where it does not.
[[nodiscard]] inline reprise::Bytes kib_in(const char* file, const std::string& field) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field)) return {std::stoll(line.substr(field.size())) * 1024};
  return {};
}

/// Private memory beyond what the process has now. Unlike the address space, it is what must really
/// be there.
inline void limit_memory(reprise::Bytes cap) {
  const auto limit = static_cast<rlim_t>((kib_in("/proc/self/status", "VmData:") + cap).count);
  const rlimit both{limit, limit};
  if (setrlimit(RLIMIT_DATA, &both) != 0)
    throw reprise::Error(reprise::Errc::io, "the limit on memory could not be set");
}

struct ChildEnd {
  int code = 0;    ///< what it returned
  int signal = 0;  ///< what ended it; 0 where it returned
};

/// Runs this program again with these arguments, its stderr going to `log`. Where `stop` says so,
/// the child is ended.
template <class Stop>
[[nodiscard]] ChildEnd run_self(const std::vector<std::string>& arguments,
                                const std::filesystem::path& log, const Stop& stop) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<char*> argv{const_cast<char*>(self.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw reprise::Error(reprise::Errc::io, "no child process could be started");
  if (child == 0) {  // only what is allowed between fork and exec
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (getppid() != parent || file < 0 || dup2(file, STDERR_FILENO) < 0) _exit(127);
    execv(self.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (stop()) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

/// The last line of a file that has anything in it.
[[nodiscard]] inline std::string last_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) last = line;
  return last;
}

}  // namespace examples
