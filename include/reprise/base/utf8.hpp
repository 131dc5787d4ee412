#pragma once
// Checks UTF-8, and makes any text printable in a message.
//
//   is_utf8("\xff")                false: such a name has no JSON form
//   printable("a\nb")              a?b

#include <cstddef>
#include <string>
#include <string_view>

#include <reprise/base/rooms.hpp>

namespace reprise::base {

/// Length of the UTF-8 sequence at the start of the text; 0 if it is invalid (truncated, overlong,
/// a surrogate, past U+10FFFF).
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

/// For messages: control characters and bytes that are not UTF-8 become '?', and the text is cut at
/// `most` bytes.
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

/// The text itself if it is UTF-8. Otherwise invalid bytes and control characters become '?'.
[[nodiscard]] inline std::string as_utf8(std::string_view text) {
  return is_utf8(text) ? std::string(text) : printable(text, text.size());
}

}  // namespace reprise::base
