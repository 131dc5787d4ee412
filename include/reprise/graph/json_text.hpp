#pragma once
// Strings and numbers as JSON text, appended to a buffer.
//
//   std::string out;
//   append_json_string(out, "a \"b\"\n");   // "a \"b\"\n" with its quotes and escapes
//   append_json_number(out, 120.5);         // 120.5: the shortest text that reads back as the same double
//   is_utf8("\xff");                        // false: such a name has no JSON form

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

/// Length of the UTF-8 sequence at the start of the text; 0 where it is not one (truncated,
/// overlong, a surrogate, past U+10FFFF).
[[nodiscard]] constexpr std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool too_large = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

[[nodiscard]] constexpr bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// For messages: control characters and what is not UTF-8 become '?', and the text is cut at `most`
/// bytes.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t most = 60) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (out.size() + length > most) return out + "...";
    if (length == 0 || static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7F) out += '?';
    else out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

/// The text must be UTF-8.
inline void append_json_string(std::string& out, std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') (out += '\\') += c;
    else if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (c == '\r') out += "\\r";
    else if (byte < 0x20) ((out += "\\u00") += digits[byte >> 4]) += digits[byte & 15];
    else out += c;
  }
  out += '"';
}

inline void append_json_number(std::string& out, std::int64_t number) {
  std::array<char, 24> text;
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
}

/// The number must be finite: JSON has no other.
inline void append_json_number(std::string& out, double number) {
  std::array<char, 32> text;
  out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
}

/// Adds a member to the text of a JSON object; an empty text is the object without members.
inline void add_json_member(std::string& object, std::string_view key, std::string_view json) {
  if (object.empty()) object = '{';
  else object.back() = ',';
  append_json_string(object, key);
  ((object += ':') += json) += '}';
}

}  // namespace reprise
