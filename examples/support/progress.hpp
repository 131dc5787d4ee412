#pragma once
// One line on stderr that says how far a long run is: only on a terminal, only from the third
// second on, gone at the end.
//
//   Progress progress("training", steps);
//   for (…) { …; progress.advance(); }        // training 3/5, 4.2 s

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include <unistd.h>

namespace examples {

class Progress {
 public:
  Progress(std::string label, std::int64_t total)
      : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}
  ~Progress() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance() { at(done_ + 1, total_); }
  /// Where the work itself knows how much there is.
  void at(std::int64_t now, std::int64_t total) {
    done_ = now;
    total_ = total;
    if (!terminal_) return;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    // ten times a second is enough, and does not disturb what is measured
    if (seconds < 2 || seconds < last_ + 0.1) return;
    last_ = seconds;
    shown_ = true;
    std::fprintf(stderr, "\r\033[K%s %lld/%lld, %.1f s", label_.c_str(),
                 static_cast<long long>(done_), static_cast<long long>(total_), seconds);
    std::fflush(stderr);
  }

 private:
  std::string label_;
  std::int64_t total_;
  std::int64_t done_ = 0;
  bool terminal_;
  bool shown_ = false;
  double last_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace examples
