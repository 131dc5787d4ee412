#pragma once
// How much memory a step may use, as people say it.
//
//   Budget{4_GiB}                    all bytes that LibTorch's allocator holds in the process during the step, base included
//   Budget::share(50)                50 % of what the step would take without a budget
//   Budget::savable(50)              F + 50 % of (E − F): half of what can be saved at all (E: eager's peak, F: the floor)
//   Budget::of_free_memory(80, device_memory().live())   80 % of what the machine has free now, with what LibTorch holds already
//   Budget::extra_time(10)           as small as at most 10 % extra time allows
//   Budget::costs_at_most(0.1)       the same
//   MemoryBudget budget{fit};        as of_free_memory(80), when the budget is made
//
// A step's budget in bytes is known once the step has been captured: resolve(what was measured).

#include <cmath>
#include <cstdint>
#include <string>

#include <reprise/base/error.hpp>
#include <reprise/base/free_memory.hpp>
#include <reprise/base/units.hpp>

namespace reprise::options {

/// For a MemoryBudget that takes what the machine has free, and says how much that is.
struct Fit {};
inline constexpr Fit fit{};

struct Budget {
  enum class Kind : std::uint8_t { none, bytes, share, savable, extra_time } kind = Kind::none;
  Bytes bytes{};
  double percent = 0;

  Budget() = default;
  Budget(Bytes limit) : kind(Kind::bytes), bytes(limit) {
    if (limit <= Bytes{0})
      throw Error(Errc::bad_argument,
                  "budget: " + std::to_string(limit.count) + " bytes; must be greater than zero");
  }
  [[nodiscard]] static Budget share(double percent) { return Budget(Kind::share, percent); }
  /// Resolved here and now. `held` is what LibTorch's allocator holds already: a budget bounds that
  /// as well.
  [[nodiscard]] static Budget of_free_memory(double percent, Bytes held) {
    const Budget share(Kind::share, percent);
    const Bytes free = free_memory();
    if (free <= Bytes{0})
      throw Error(Errc::bad_argument,
                  "budget: the system does not say how much memory is free; name bytes");
    return Budget(held + share_of(share.percent, free));
  }
  [[nodiscard]] static Budget savable(double percent) { return Budget(Kind::savable, percent); }
  [[nodiscard]] static Budget extra_time(double percent) {
    return Budget(Kind::extra_time, percent);
  }
  /// As a share: 0.05 for 5 % of extra time.
  [[nodiscard]] static Budget costs_at_most(double share) { return extra_time(100 * share); }
  /// "4GiB" or "50%".
  [[nodiscard]] static Budget parse(std::string_view text) {
    const Size size = parse_size(text);
    return size.relative ? share(size.percent) : Budget(size.bytes);
  }

  [[nodiscard]] bool given() const { return kind != Kind::none; }

  /// In bytes, for a step that takes `eager` without a budget and cannot go below `floor`. Not for
  /// extra_time.
  [[nodiscard]] Bytes resolve(Bytes eager, Bytes floor) const {
    switch (kind) {
      case Kind::bytes: return bytes;
      case Kind::share: return share_of(percent, eager);
      case Kind::savable: return floor + share_of(percent, eager - floor);
      case Kind::none:
      case Kind::extra_time: break;
    }
    return eager;
  }

 private:
  Budget(Kind which, double value) : kind(which), percent(value) {
    if (!std::isfinite(value) || value <= 0)
      throw Error(Errc::bad_argument,
                  "budget: " + std::to_string(value) + " %; must be greater than zero");
  }
};

}  // namespace reprise::options

namespace reprise {
using options::Budget;
using options::Fit;
using options::fit;
}  // namespace reprise
