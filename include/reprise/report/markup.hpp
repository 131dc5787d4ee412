#pragma once
// markup_text() turns any text into valid text for XML and HTML.
//
// ```cpp
// markup_text("a < b & \"c\"");   // a &lt; b &amp; &quot;c&quot;
// markup_text("\x01\xff");        // ??: XML has no control characters, and text must be UTF-8
// ```

#include <cstddef>
#include <string>
#include <string_view>

#include <reprise/base/utf8.hpp>

namespace reprise::reporting {

/// For the content of an element and for attributes in double quotes.
[[nodiscard]] inline std::string markup_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '&') out += "&amp;";
    else if (c == '"') out += "&quot;";
    else if (c == '\n' || c == '\t' || c == '\r') out += ' ';
    // U+FFFE and U+FFFF are no characters
    else if (length == 0 || static_cast<unsigned char>(c) < 0x20 || c == 0x7F ||
             text.starts_with("\xEF\xBF\xBE") || text.starts_with("\xEF\xBF\xBF"))
      out += '?';
    else out += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

/// At most `most` characters; the last one is an ellipsis if something was cut.
[[nodiscard]] inline std::string shortened(std::string_view text, std::size_t most) {
  std::size_t bytes = 0, characters = 0, cut = 0;
  while (bytes < text.size()) {
    if (characters + 1 == most) cut = bytes;
    const std::size_t length = utf8_length(text.substr(bytes));
    bytes += length == 0 ? 1 : length;
    ++characters;
  }
  return characters <= most ? std::string(text) : std::string(text.substr(0, cut)) + "…";
}

}  // namespace reprise::reporting
