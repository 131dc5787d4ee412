// A probe whose end_op() gives one number instead of a sample is refused by one line that says what
// it must give.

#include <reprise/profile/profiler.hpp>

struct OneNumber {
  void begin_run() {}
  void begin_op() {}
#ifdef REPRISE_MUST_NOT_COMPILE
  reprise::Bytes end_op() { return {}; }
#else
  reprise::MemorySample end_op() { return {}; }
#endif
  reprise::Bytes end_run() { return {}; }
};

int main() {
  const reprise::Profiler<reprise::SteadyTimer, OneNumber> profiler;
  static_cast<void>(profiler);
}
