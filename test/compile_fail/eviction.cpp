// An eviction policy without erase() is refused by one line that names what is missing.

#include <cstdint>
#include <optional>

#include <reprise/plan/eviction.hpp>

struct Eraseless {
  void touch(std::uint32_t, const reprise::EvictionCandidate&) {}
#ifndef REPRISE_MUST_NOT_COMPILE
  void erase(std::uint32_t) {}
#endif
  template <class Evictable>
  std::optional<std::uint32_t> pick(std::uint64_t, Evictable&&) const {
    return std::nullopt;
  }
};

int main() { return reprise::is_eviction_policy<Eraseless>() ? 0 : 1; }
