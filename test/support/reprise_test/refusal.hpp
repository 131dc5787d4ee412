#pragma once
// What a call is refused with: "bad graph: values: 2 (h): bytes is negative", or "accepted".

#include <string>

#include <reprise/base/error.hpp>

namespace reprise_test {

template <class Call>
[[nodiscard]] std::string refusal(Call&& call) {
  try {
    call();
  } catch (const reprise::Error& e) {
    return std::string(to_string(e.code())) + ": " + e.what();
  }
  return "accepted";
}

}  // namespace reprise_test
