#pragma once
// A Budget says how much memory a step may use: in bytes, as a share, or by its cost in time.
//
//   Budget{4_GiB}                    all live bytes of LibTorch's allocator in the process during the step, start bytes included
//   Budget::share(50)                50 % of the eager peak
//   Budget::savable(50)              F + 50 % of (E − F): half of the savable bytes (E: eager peak, F: floor)
//   Budget::of_free_memory(80, cpu_memory().live())   80 % of the memory that the machine has free now, plus LibTorch's live bytes
//   Budget::extra_time(10)           the smallest budget with at most 10 % extra time
//   Budget::costs_at_most(0.1)       the same
//   MemoryBudget budget{fit};        as of_free_memory(80), when the budget is made
//
// A step's budget in bytes is known after its capture: resolve(measured bytes).

#include <cmath>
#include <cstdint>
#include <string>

#include <reprise/base/error.hpp>
#include <reprise/base/free_memory.hpp>
#include <reprise/base/units.hpp>

namespace reprise::options {

/// For a MemoryBudget that uses the machine's free memory and reports the number of bytes.
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
  /// Resolved when it is called. `held`: the live bytes of LibTorch's allocator, which a budget
  /// bounds too.
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
  /// By a share of the step's time: 0.05 for 5 % of extra time.
  [[nodiscard]] static Budget costs_at_most(double share) { return extra_time(100 * share); }
  /// "4GiB" or "50%".
  [[nodiscard]] static Budget parse(std::string_view text) {
    const Size size = parse_size(text);
    return size.relative ? share(size.percent) : Budget(size.bytes);
  }

  [[nodiscard]] bool given() const { return kind != Kind::none; }

  /// In bytes, for a step with the eager peak `eager` and the floor `floor`. Not for extra_time.
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
