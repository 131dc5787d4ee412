#pragma once
// As much of a test framework as is needed where there may be neither a device nor Catch2.

#include <iostream>
#include <string_view>

namespace reprise_test {

inline int failures = 0;

inline void expect(bool holds, std::string_view what, int line) {
  if (holds) return;
  ++failures;
  std::cerr << "   line " << line << ": not so: " << what << '\n';
}

/// Runs one test, and says that it did.
inline void test(std::string_view name, void (*body)()) {
  const int before = failures;
  body();
  std::cout << (failures == before ? "   passed  " : "   FAILED  ") << name << '\n';
}

}  // namespace reprise_test

#define EXPECT(...) ::reprise_test::expect(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__, __LINE__)
