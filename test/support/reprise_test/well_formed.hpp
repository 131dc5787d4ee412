#pragma once
// Whether a text is well-formed XML, as far as our pictures use it: tags that close, attributes in
// double quotes, no stray & or <.

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/base/utf8.hpp>

namespace reprise_test {

/// Empty where it is, else what is wrong.
[[nodiscard]] inline std::string xml_fault(std::string_view text) {
  std::vector<std::string> open;
  std::size_t roots = 0;
  const auto entity_ends = [&](std::size_t i) {
    for (std::string_view e : {"&lt;", "&gt;", "&amp;", "&quot;"})
      if (text.substr(i).starts_with(e)) return true;
    return false;
  };
  if (!reprise::base::is_utf8(text)) return "not UTF-8";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 && byte != '\n' && byte != '\t')
      return "control character at " + std::to_string(i);
    if (text[i] == '&' && !entity_ends(i)) return "stray & at " + std::to_string(i);
    if (text[i] != '<') {
      if (open.empty() && !std::isspace(byte)) return "text outside at " + std::to_string(i);
      continue;
    }
    const bool closing = i + 1 < text.size() && text[i + 1] == '/';
    std::size_t j = i + (closing ? 2 : 1);
    std::string name;
    while (j < text.size() && std::isalnum(static_cast<unsigned char>(text[j]))) name += text[j++];
    if (name.empty()) return "no tag at " + std::to_string(i);
    bool quoted = false;
    for (; j < text.size() && (quoted || text[j] != '>'); ++j) {
      if (text[j] == '"') quoted = !quoted;
      if (text[j] == '<') return "< in a tag at " + std::to_string(j);
      if (text[j] == '&' && !entity_ends(j)) return "stray & at " + std::to_string(j);
    }
    if (j == text.size()) return "tag " + name + " does not end";
    const bool empty = text[j - 1] == '/';
    if (open.empty() && !closing && ++roots > 1) return "two roots";
    if (closing) {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes nothing at " + std::to_string(i);
      open.pop_back();
    } else if (!empty) {
      open.push_back(name);
    }
    i = j;
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

}  // namespace reprise_test
