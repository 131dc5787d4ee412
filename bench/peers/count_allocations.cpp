// The counting allocator as a shared object, so that a Python process is measured by the same
// means: loaded before the first tensor. And the digest of examples/support/compare_run.hpp, so
// that bits can be compared across languages.

#include <reprise/libtorch/device/device.hpp>

extern "C" {
long long reprise_live() { return reprise::device_memory().live().count; }
long long reprise_peak() { return reprise::device_memory().peak().count; }
void reprise_reset_peak() { reprise::device_memory().reset_peak(); }

unsigned long long reprise_digest(unsigned long long state, const unsigned char* bytes,
                                  long long count) {
  for (long long i = 0; i < count; ++i) state = (state ^ bytes[i]) * 1099511628211ULL;
  return state;
}
}
