// An observer that looks at what is read alone is refused by one line that names what is missing.

#include <reprise/libtorch/replay/observer.hpp>

struct Mine {
  void before(std::size_t, reprise::NodeId, const auto&) {}
#ifndef REPRISE_MUST_NOT_COMPILE
  void after(std::size_t, reprise::NodeId, const auto&) {}
#endif
};

int main() { return reprise::is_observer<Mine>() ? 0 : 1; }
