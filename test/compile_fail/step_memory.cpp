// A memory that does not say what it holds is refused by one line that names what is missing.

#include <reprise/libtorch/replay/step_memory.hpp>

struct Mine {
  static constexpr bool plans_addresses = false;
  void start(const reprise::ArenaLayout&) {}
  void begin(std::size_t) {}
  void end() {}
  void hand_over(const std::vector<at::Tensor>&) {}
  void settle() {}
  void release() {}
#ifndef REPRISE_MUST_NOT_COMPILE
  reprise::Bytes capacity() { return {}; }
#endif
  reprise::ArenaUse use() { return {}; }
};

int main() { return reprise::replaying::is_step_memory<Mine>() ? 0 : 1; }
