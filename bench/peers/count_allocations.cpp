// The counting allocator as a shared object, so that a Python process is measured by the same means: loaded before the first tensor.

#include <reprise/libtorch/counting_allocator.hpp>

extern "C" {
long long reprise_live() { return reprise::cpu_memory().live().count; }
long long reprise_peak() { return reprise::cpu_memory().peak().count; }
void reprise_reset_peak() { reprise::cpu_memory().reset_peak(); }
}
