// An eviction policy of one's own: what is cheapest to have back goes first, whatever its size.

#include <iostream>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include <reprise/plan/eviction.hpp>

class CheapestFirst {
 public:
  void touch(std::uint32_t storage, const reprise::EvictionCandidate& candidate) {
    erase(storage);
    order_.emplace(candidate.cost.count, storage);
    cost_[storage] = candidate.cost.count;
  }
  void erase(std::uint32_t storage) {
    const auto it = cost_.find(storage);
    if (it == cost_.end()) return;
    order_.erase({it->second, storage});
    cost_.erase(it);
  }
  template <class Evictable>
  std::optional<std::uint32_t> pick(std::uint64_t, Evictable&& evictable) const {
    for (const auto& [cost, storage] : order_)
      if (evictable(storage)) return storage;
    return std::nullopt;
  }

 private:
  std::set<std::pair<double, std::uint32_t>> order_;
  std::unordered_map<std::uint32_t, double> cost_;
};

static_assert(reprise::EvictionPolicy<CheapestFirst>);

int main() {
  using namespace reprise::literals;
  CheapestFirst policy;
  policy.touch(1, {.bytes = 8_MiB, .cost = {120}, .clock = 1});
  policy.touch(2, {.bytes = 1_MiB, .cost = {15}, .clock = 2});
  policy.touch(3, {.bytes = 4_MiB, .cost = {40}, .clock = 3});
  // Storage 2 is what the running op reads.
  const auto victim = policy.pick(4, [](std::uint32_t storage) { return storage != 2; });
  std::cout << "storage " << victim.value() << " goes\n";
  return victim == 3 ? 0 : 1;
}
