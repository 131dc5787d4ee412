#pragma once
// Accesses to memory that may not be accessed: whoever protects pages is asked, in the middle of
// the code that touched them; a fault that is not theirs goes to whoever handled the signal before.
//
//   FaultHandler::install([](std::byte* address, bool writes) { return opened(address, writes); });
//
// True: the access is tried again. The handler runs where the fault happened, synchronously. System
// calls do not fault: write(fd, p, n) fails with EFAULT.

#include <atomic>
#include <cerrno>
#include <cstddef>

#ifdef __linux__
#include <ucontext.h>
#include <csignal>
#endif

#include <reprise/base/one_per_process.hpp>
#include <reprise/base/rooms.hpp>

namespace reprise::cpu {

class FaultHandler {
 public:
  using Handle = bool (*)(std::byte* address, bool writes);

#ifdef __linux__
  /// Again where somebody has put another handler in our place, which is then the one before.
  static void install(Handle handle) {
    asked() = handle;
    struct sigaction now {};
    ::sigaction(SIGSEGV, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_signal) return;
    before() = now;
    struct sigaction ours {};
    ours.sa_sigaction = &on_signal;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    ::sigemptyset(&ours.sa_mask);
    ::sigaction(SIGSEGV, &ours, nullptr);
  }

 private:
  REPRISE_ONE_PER_PROCESS static std::atomic<Handle>& asked() {
    static std::atomic<Handle> handle{nullptr};
    return handle;
  }
  REPRISE_ONE_PER_PROCESS static struct sigaction& before() {
    static struct sigaction action {};
    return action;
  }

  REPRISE_ONE_PER_PROCESS static void on_signal(int number, siginfo_t* info, void* context) {
    const int error = errno;
    const bool sent = info->si_code <= 0;
    if (sent || !asked().load()(static_cast<std::byte*>(info->si_addr), is_write(context)))
      hand_on(number, info, context);
    errno = error;
  }

  static bool is_write([[maybe_unused]] void* context) {
#if defined(__x86_64__) && defined(__GLIBC__)
    constexpr std::size_t error_code = 19;  // REG_ERR, a name that only _GNU_SOURCE brings
    return (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[error_code] & 2) != 0;
#else
    return true;  // the more careful of the two
#endif
  }

  static void hand_on(int number, siginfo_t* info, void* context) {
    thread_local bool handing_on = false;  // whoever came before us may hand it on to us
    const struct sigaction& action = before();
    if (!handing_on && (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction != nullptr) {
      handing_on = true;
      action.sa_sigaction(number, info, context);
      handing_on = false;
      return;
    }
    if (!handing_on && (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN) {
      handing_on = true;
      action.sa_handler(number);
      handing_on = false;
      return;
    }
    const bool was_sent = info->si_code <= 0;  // by kill(): nothing faults again
    if (was_sent && action.sa_handler == SIG_IGN) return;
    struct sigaction plain {};
    plain.sa_handler = SIG_DFL;
    ::sigaction(number, &plain, nullptr);
    if (was_sent) ::raise(number);
  }
#else
  static void install(Handle) {}
#endif
};

}  // namespace reprise::cpu
