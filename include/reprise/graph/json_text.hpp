#pragma once
// Builds JSON text member by member, for a StepGraph's `extra`. The strings and the numbers are
// written by nlohmann_json.
//
//   std::string out;
//   append_json_string(out, "a \"b\"\n");          // "a \"b\"\n" with its quotes and escapes
//   append_json_number(out, 120.5);                // 120.5: reads back as the same double
//   std::string object;
//   add_json_member(object, "shape", "[8,256]");   // {"shape":[8,256]}

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <reprise/base/utf8.hpp>

namespace reprise::graphs {

/// The text must be UTF-8: see as_utf8.
inline void append_json_string(std::string& out, std::string_view text) {
  out += nlohmann::json(text).dump();
}

/// The number must be finite, because JSON has no other numbers.
inline void append_json_number(std::string& out, auto number) {
  out += nlohmann::json(number).dump();
}

/// Adds a member to the text of a JSON object; an empty text is the object without members.
inline void add_json_member(std::string& object, std::string_view key, std::string_view json) {
  if (object.empty()) object = '{';
  else object.back() = ',';
  append_json_string(object, key);
  ((object += ':') += json) += '}';
}

}  // namespace reprise::graphs
