#pragma once
// Ctrl-C as a stop_token: the first one asks the running work to stop in order, the second one ends
// the program.
//
//   examples::Interrupt interrupt;
//   profiler.run(captured, {.stop = interrupt.token(), .progress = [&](auto, auto) { interrupt.poll(); }});
//
// A signal handler may not call request_stop(): it sets a flag, and poll() passes it on. A library
// installs no handler; a program may.

#include <csignal>
#include <stop_token>

namespace examples {

class Interrupt {
 public:
  Interrupt() { before_ = std::signal(SIGINT, &Interrupt::on_signal); }
  ~Interrupt() { std::signal(SIGINT, before_); }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }
  void poll() {
    if (asked_ != 0) source_.request_stop();
  }

 private:
  static void on_signal(int) {
    asked_ = 1;
    std::signal(SIGINT, SIG_DFL);
  }

  static inline volatile std::sig_atomic_t asked_ = 0;
  void (*before_)(int) = SIG_DFL;
  std::stop_source source_;
};

}  // namespace examples
