#pragma once
// Eviction policies for tests: one that evicts at random whether memory runs out or not, and one
// type for all, chosen at run time.
//
//   BasicMemoryBudget<AnyPolicy> budget{4_GiB, options, AnyPolicy(EvictAtRandom{{}, 0.3, Rng{seed}})};

#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include <reprise/plan/eviction.hpp>
#include <reprise_test/random_graphs.hpp>

namespace reprise::testing {

using namespace planning;

/// Evicts any storage that it is asked about with this chance, after every op.
struct EvictAtRandom : CostSizeStaleness {
  double chance = 1;
  Rng rng{1};
  bool drops_unasked(std::uint32_t /*storage*/) { return rng.chance(chance); }
};

/// Any of the policies, chosen when the program runs: one instance of the guided step serves all.
class AnyPolicy {
 public:
  using Policies =
      std::variant<CostSizeStaleness, LargestFirst, LeastRecentlyUsed, NullEviction, EvictAtRandom>;
  AnyPolicy() = default;
  explicit AnyPolicy(Policies policy) : policy_(std::move(policy)) {}

  void touch(std::uint32_t s, const EvictionCandidate& candidate) {
    std::visit([&](auto& policy) { policy.touch(s, candidate); }, policy_);
  }
  void erase(std::uint32_t s) {
    std::visit([&](auto& policy) { policy.erase(s); }, policy_);
  }
  template <class Evictable>
  [[nodiscard]] std::optional<std::uint32_t> pick(std::uint64_t clock,
                                                  Evictable&& evictable) const {
    return std::visit([&](const auto& policy) { return policy.pick(clock, evictable); }, policy_);
  }
  bool drops_unasked(std::uint32_t s) {
    auto* at_random = std::get_if<EvictAtRandom>(&policy_);
    return at_random != nullptr && at_random->drops_unasked(s);
  }

 private:
  Policies policy_;
};
static_assert(EvictionPolicy<AnyPolicy> && EvictsWithoutPressure<AnyPolicy>);

}  // namespace reprise::testing
