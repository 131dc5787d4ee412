#pragma once
// ResidentProbe reads the process's resident memory, as the kernel counts it and `top` shows it.
// The number is coarse (whole pages, and freed memory may remain) and includes everything in the
// process. Bytes in addition to the allocator's were allocated elsewhere. Linux only: all samples
// are 0 on other systems.

#include <cstdio>
#include <cstring>

#include <reprise/profile/concepts.hpp>

namespace reprise::profiling {

class ResidentProbe {
 public:
  void begin_run() { run_peak_ = read("VmRSS:"); }
  void begin_op() { sample_.before = read("VmRSS:"); }
  [[nodiscard]] MemorySample end_op() {
    sample_.after = read("VmRSS:");
    sample_.peak = sample_.after > sample_.before ? sample_.after : sample_.before;
    if (sample_.peak > run_peak_) run_peak_ = sample_.peak;
    return sample_;
  }
  [[nodiscard]] Bytes end_run() { return run_peak_; }

  /// The largest size of the process so far.
  [[nodiscard]] static Bytes process_peak() { return read("VmHWM:"); }

 private:
  static Bytes read(const char* field) {
    std::FILE* status = std::fopen("/proc/self/status", "r");
    if (status == nullptr) return {};
    char line[256];
    long long kib = 0;
    while (std::fgets(line, sizeof line, status) != nullptr) {
      if (std::strncmp(line, field, std::strlen(field)) != 0) continue;
      if (std::sscanf(line + std::strlen(field), "%lld", &kib) != 1) kib = 0;
      break;
    }
    std::fclose(status);
    return {kib * 1024};
  }

  MemorySample sample_{};
  Bytes run_peak_{};
};

static_assert(MemProbe<ResidentProbe>);

}  // namespace reprise::profiling

namespace reprise {
using profiling::ResidentProbe;
}  // namespace reprise
