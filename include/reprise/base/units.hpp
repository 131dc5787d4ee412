#pragma once
// Bytes and Microseconds are typed numbers: typed in interfaces, plain in large arrays, printed
// with units.
//
// ```cpp
// Bytes budget = 4_GiB;
// format_bytes(budget);                      // "4.00 GiB"
// parse_size("50%").resolve(Bytes{1000});    // Bytes{500}
// ```

#include <charconv>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <ostream>
#include <string>
#include <string_view>

#include <reprise/base/error.hpp>

namespace reprise::base {

struct Bytes {
  std::int64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
};

/// Measured or predicted time. A plain double, so that sums and ratios stay readable in files.
struct Microseconds {
  double count = 0;

  constexpr auto operator<=>(const Microseconds&) const = default;
  constexpr Microseconds& operator+=(Microseconds other) {
    count += other.count;
    return *this;
  }
  friend constexpr Microseconds operator+(Microseconds a, Microseconds b) {
    return {a.count + b.count};
  }
  friend constexpr Microseconds operator-(Microseconds a, Microseconds b) {
    return {a.count - b.count};
  }
};

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return {static_cast<std::int64_t>(n)}; }
constexpr Bytes operator""_KiB(unsigned long long n) {
  return {static_cast<std::int64_t>(n << 10)};
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return {static_cast<std::int64_t>(n << 20)};
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return {static_cast<std::int64_t>(n << 30)};
}
}  // namespace literals

[[nodiscard]] inline std::string format_bytes(Bytes bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto x = static_cast<double>(bytes.count);
  int unit = 0;
  while (std::abs(x) >= 1024 && unit < 6) {
    x /= 1024;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", x, units[unit]);
  return text;
}

[[nodiscard]] inline std::string format_time(Microseconds time) {
  char text[48];
  const double us = time.count;
  if (std::abs(us) < 1e3) std::snprintf(text, sizeof text, "%.1f us", us);
  else if (std::abs(us) < 1e6) std::snprintf(text, sizeof text, "%.2f ms", us / 1e3);
  else std::snprintf(text, sizeof text, "%.3f s", us / 1e6);
  return text;
}

/// Exact, with the unit, for failed tests and log lines.
inline std::ostream& operator<<(std::ostream& out, Bytes bytes) {
  return out << bytes.count << " B";
}
inline std::ostream& operator<<(std::ostream& out, Microseconds time) {
  return out << time.count << " us";
}

/// `percent` % of `whole`, rounded up. Multiplies before it divides: 80 % of 1000 is 800, not the
/// 801 that 0.8 × 1000 may round up to.
[[nodiscard]] inline Bytes share_of(double percent, Bytes whole) {
  // more than any machine has, and the sum of two still fits
  constexpr auto most = static_cast<long double>(std::int64_t{1} << 62);
  return {static_cast<std::int64_t>(std::min(
      most,
      std::ceil(static_cast<long double>(percent) * static_cast<long double>(whole.count) / 100)))};
}

/// A size as people write it: a number of bytes, or a share of a number that is known later.
struct Size {
  Bytes bytes{};
  double percent = 0;
  bool relative = false;

  /// `whole` is 100 %. A share is rounded up, as the plan format requires.
  [[nodiscard]] Bytes resolve(Bytes whole) const {
    if (!relative) return bytes;
    return share_of(percent, whole);
  }
};

/// Reads "1500000", "512KiB", "4 GiB", "2GB" or "50%". Throws Errc::bad_argument with the given
/// text.
[[nodiscard]] inline Size parse_size(std::string_view text) {
  const auto fail = [&](const char* why) {
    return Error(Errc::bad_argument, "size '" + std::string(text) + "': " + why +
                                         "; write bytes, 512MiB, 4GiB, 2GB or 50%");
  };
  double number = 0;
  const char* end = text.data() + text.size();
  auto [rest, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc{} || !std::isfinite(number)) throw fail("does not start with a number");
  std::string unit;
  for (const char* c = rest; c != end; ++c)
    if (*c != ' ') unit += *c >= 'A' && *c <= 'Z' ? static_cast<char>(*c - 'A' + 'a') : *c;
  if (number <= 0) throw fail("must be greater than zero");
  if (unit == "%") return {.bytes = {}, .percent = number, .relative = true};
  double factor = 0;
  if (unit.empty() || unit == "b") factor = 1;
  else if (unit == "kib" || unit == "k") factor = 0x1p10;
  else if (unit == "mib" || unit == "m") factor = 0x1p20;
  else if (unit == "gib" || unit == "g") factor = 0x1p30;
  else if (unit == "tib" || unit == "t") factor = 0x1p40;
  else if (unit == "kb") factor = 1e3;
  else if (unit == "mb") factor = 1e6;
  else if (unit == "gb") factor = 1e9;
  else if (unit == "tb") factor = 1e12;
  else throw fail("has an unknown unit");
  const double bytes = number * factor;
  if (bytes >= 0x1p62) throw fail("is larger than any memory");
  if (bytes < 1) throw fail("is less than one byte");
  return {.bytes = {static_cast<std::int64_t>(bytes)}, .percent = 0, .relative = false};
}

}  // namespace reprise::base

namespace reprise {
namespace literals = base::literals;
}  // namespace reprise

namespace reprise {
using base::Bytes;
using base::format_bytes;
using base::format_time;
using base::Microseconds;
using base::parse_size;
using base::share_of;
using base::Size;
}  // namespace reprise
