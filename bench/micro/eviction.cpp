// What an eviction policy asks for one choice: the storages that could go are told again, as ops
// use them, and one of them is picked.

#include <cstdint>
#include <string>

#include <reprise/plan/eviction.hpp>
#include <reprise_test/random_graphs.hpp>

#include "micro.hpp"

namespace micro {

namespace {

using namespace reprise;

template <class Policy>
void measure(ankerl::nanobench::Bench& bench, const char* name, std::uint32_t storages) {
  testing::Rng rng{1};
  Policy policy;
  std::uint64_t clock = 0;
  const auto use = [&](std::uint32_t storage) {
    policy.touch(storage, {.bytes = Bytes{static_cast<std::int64_t>(64 + rng.below(1 << 20))},
                           .cost = Microseconds{1 + 100 * rng.uniform()},
                           .clock = ++clock});
  };
  for (std::uint32_t s = 0; s < storages; ++s) use(s);
  const auto any = [](std::uint32_t) { return true; };
  doNotOptimizeAway(&policy);  // or a pick from what does not change is made once
  const std::string among = ", " + std::to_string(storages) + " storages";
  bench.run(name + (": touch" + among),
            [&] { use(static_cast<std::uint32_t>(rng.below(storages))); });
  bench.run(name + (": pick" + among), [&] { doNotOptimizeAway(policy.pick(clock, any)); });
}

}  // namespace

void measure_eviction() {
  auto bench = table("eviction", "choice");
  for (const std::uint32_t storages : {1'000u, 100'000u}) {
    measure<CostSizeStaleness>(bench, "CostSizeStaleness", storages);
    measure<LeastRecentlyUsed>(bench, "LeastRecentlyUsed", storages);
  }
}

}  // namespace micro
