#pragma once
// The eager copy in a process of its own, as users run it: LibTorch's own allocator, and a heap
// that no other copy keeps warm.
//
//   if (!eager.empty()) return serve_eager(…);            in the child, which is this program again
//   EagerProcess eager({"--eager", "resnet50"});          in the parent
//   eager.step().seconds                                  one step there, while this process waits
//   first_difference(eager, ours)                         compares digests of everything that was trained
//
// In one process with a copy of ours eager takes fewer page faults than it would alone (ResNet-50,
// batch 8: a thousand a step instead of a hundred thousand), since what the other copy holds keeps
// glibc from giving the top of its heap back: it would be measured too fast.

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <c10/core/CPUAllocator.h>

#include <reprise/base/error.hpp>
#include <reprise/base/hash_bytes.hpp>

#include "support/cli.hpp"
#include "support/trainer.hpp"

namespace bench {

/// Of every gradient, buffer and parameter and of the random stream, bit for bit.
[[nodiscard]] inline std::string digest_of(const examples::Trainer& trainer) {
  std::uint64_t hash = 1;
  const auto add = [&](const torch::Tensor& tensor) {
    if (!tensor.defined()) return;
    const torch::Tensor t = tensor.detach().contiguous();
    hash = reprise::base::hash_bytes(
        {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()}, hash);
  };
  for (const auto& parameter : trainer.task().module->parameters()) {
    add(parameter);
    add(parameter.grad());
  }
  for (const auto& buffer : trainer.task().module->buffers()) add(buffer);
  add(trainer.stream().get_state());
  return std::to_string(hash);
}

/// In the child, before it makes any tensor.
inline void use_stock_allocator() { c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 255); }

/// In the child: does what it is asked for until nobody asks any more.
inline int serve_eager(examples::Trainer& trainer) {
  const auto batch = trainer.make_batch(0);
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "step") std::cout << trainer.step(batch).seconds << std::endl;
    else std::cout << digest_of(trainer) << std::endl;
  }
  return examples::done;
}

class EagerProcess {
 public:
  /// This program again, with these arguments.
  explicit EagerProcess(const std::vector<std::string>& arguments) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    std::vector<char*> argv{const_cast<char*>(self.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    std::array<int, 2> to{}, from{};
    if (pipe2(to.data(), O_CLOEXEC) != 0 || pipe2(from.data(), O_CLOEXEC) != 0)
      throw reprise::Error(reprise::Errc::io, "no pipe to a child process");
    signal(SIGPIPE, SIG_IGN);
    child_ = fork();
    if (child_ < 0) throw reprise::Error(reprise::Errc::io, "no child process could be started");
    if (child_ == 0) {  // only what is allowed between fork and exec
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      execv(self.c_str(), argv.data());
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    ask_ = fdopen(to[1], "w");
    answer_ = fdopen(from[0], "r");
  }
  ~EagerProcess() {
    std::fclose(ask_);
    std::fclose(answer_);
    waitpid(child_, nullptr, 0);
  }
  EagerProcess(const EagerProcess&) = delete;
  EagerProcess& operator=(const EagerProcess&) = delete;

  /// Its seconds alone: nobody counts its memory.
  examples::StepRecord step(const std::vector<torch::Tensor>& /*batch*/ = {},
                            reprise::Bytes /*others*/ = {}) {
    return {.seconds = std::stod(asked("step"))};
  }
  /// Of this process: nothing.
  [[nodiscard]] static reprise::Bytes held() { return {}; }
  [[nodiscard]] std::string digest() { return asked("digest"); }

 private:
  std::string asked(const char* what) {
    std::fprintf(ask_, "%s\n", what);
    std::fflush(ask_);
    std::array<char, 256> line{};
    if (std::fgets(line.data(), line.size(), answer_) == nullptr)
      throw reprise::Error(reprise::Errc::io,
                           "the process of the eager copy has ended; what it said is above");
    std::string text = line.data();
    text.pop_back();
    return text;
  }

  pid_t child_ = -1;
  std::FILE* ask_ = nullptr;
  std::FILE* answer_ = nullptr;
};

[[nodiscard]] inline std::optional<std::string> first_difference(EagerProcess& eager,
                                                                 const examples::Trainer& ours) {
  if (eager.digest() == digest_of(ours)) return std::nullopt;
  return "what was trained differs";
}

}  // namespace bench
