#pragma once
// Reads JSON text (RFC 8259, UTF-8) from beginning to end, and tells what stands there, event by
// event.
//
//   {"bytes": [4096, 1e3]}          events.start_object()  events.key("bytes")  events.start_array()
//                                   events.integer(4096)   events.number(1000.0, "1e3")
//                                   events.end_array()     events.end_object()
//
// And events.null(), events.boolean(true), events.string("text"). An integer is what is written as
// one and fits into 64 bits; any other number is a double, with its own text beside it. Strings are
// handed over unescaped, for the taking.
//
// Refused with Errc::bad_format and the place: what is not JSON, and numbers that are too large for
// a double. Nothing recurses: how deep a text may be nested, the events decide, by throwing.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

#include <reprise/base/error.hpp>
#include <reprise/graph/json_text.hpp>

namespace reprise {

/// "line 2, column 7 (offset 31)" of a byte in the text.
[[nodiscard]] inline std::string place_in_text(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 == 0: the first line
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - start + 1) +
         " (offset " + std::to_string(before.size()) + ")";
}

/// Appends a character by its number, as UTF-8.
inline void append_utf8(std::string& out, std::uint32_t character) {
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80 | ((character >> shift) & 0x3F));
  };
  if (character < 0x80) {
    out += static_cast<char>(character);
  } else if (character < 0x800) {
    out += static_cast<char>(0xC0 | (character >> 6));
    tail(0);
  } else if (character < 0x10000) {
    out += static_cast<char>(0xE0 | (character >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | (character >> 18));
    tail(12), tail(6), tail(0);
  }
}

template <class Events>
class JsonParser {
 public:
  JsonParser(std::string_view text, Events& events) : text_(text), events_(events) {}

  void parse() {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark, which some editors write
    skip_space();
    if (at_ == text_.size()) refuse(at_, "the document is empty");
    do
      while (!begin_value()) {
      }
    while (!end_values());
  }

 private:
  [[noreturn]] void refuse(std::size_t at, std::string_view why) const {
    throw Error(Errc::bad_format, place_in_text(text_, at) + ": " + std::string(why));
  }
  [[noreturn]] void refuse_instead_of(std::string_view expected) const {
    refuse(at_, at_ == text_.size()
                    ? "the text ends where " + std::string(expected) + " is expected"
                    : "'" +
                          printable(text_.substr(
                              at_, std::max<std::size_t>(1, utf8_length(text_.substr(at_))))) +
                          "' where " + std::string(expected) + " is expected");
  }

  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\n\r", at_), text_.size()); }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  // False where something was opened whose first value is due.
  bool begin_value() {
    switch (peek()) {
      case '{': events_.start_object(); return open('}');
      case '[': events_.start_array(); return open(']');
      case '"':
        read_string();
        events_.string(string_);
        return true;
      case 't':
        read_word("true");
        events_.boolean(true);
        return true;
      case 'f':
        read_word("false");
        events_.boolean(false);
        return true;
      case 'n':
        read_word("null");
        events_.null();
        return true;
      default: read_number(); return true;
    }
  }

  bool open(char end) {
    ++at_;
    open_ += end;
    skip_space();
    if (peek() == end) return true;
    if (end == '}') read_key();
    return false;
  }

  // Closes what ends here; false where another value is due, true where the document ends.
  bool end_values() {
    for (;;) {
      skip_space();
      if (open_.empty() && at_ == text_.size()) return true;
      if (open_.empty()) refuse_instead_of("the end of the document");
      const bool object = open_.back() == '}';
      if (take(open_.back())) {
        open_.pop_back();
        object ? events_.end_object() : events_.end_array();
        continue;
      }
      if (!take(',')) refuse_instead_of(object ? "',' or '}'" : "',' or ']'");
      skip_space();
      if (object) read_key();
      return false;
    }
  }

  void read_key() {
    if (peek() != '"') refuse_instead_of("a member's name");
    read_string();
    events_.key(string_);
    skip_space();
    if (!take(':')) refuse_instead_of("':'");
    skip_space();
  }

  void read_word(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) refuse_instead_of("a value");
    at_ += word.size();
  }

  // --- Strings -----------------------------------------------------------------------------------

  void read_string() {
    const std::size_t start = at_++;
    string_.clear();
    for (;;) {
      if (at_ == text_.size()) refuse(start, "this string has no end");
      const char c = text_[at_];
      if (c == '"') break;
      if (c == '\\') {
        read_escape();
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20)
        refuse(at_, "a control character in a string must be written as \\u00..");
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0) refuse(at_, "this is not UTF-8");
      string_ += text_.substr(at_, length);
      at_ += length;
    }
    ++at_;
  }

  void read_escape() {
    constexpr std::string_view names = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    const char name = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (const std::size_t which = names.find(name); which != names.npos) {
      string_ += meant[which];
      at_ += 2;
    } else if (name == 'u') {
      append_utf8(string_, read_character());
    } else {
      refuse(at_, "there is no such escape in JSON");
    }
  }

  // \u0041, or a pair \ud83d\ude00 of surrogates.
  std::uint32_t read_character() {
    const std::size_t start = at_;
    const std::uint32_t first = read_unit();
    if (first < 0xD800 || first > 0xDFFF) return first;
    const std::uint32_t second = first < 0xDC00 && text_.substr(at_, 2) == "\\u" ? read_unit() : 0;
    if (second < 0xDC00 || second > 0xDFFF) refuse(start, "half of a pair of surrogates");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  std::uint32_t read_unit() {
    const std::string_view digits = text_.substr(at_ + 2, 4);
    std::uint32_t unit = 0;
    const auto [end, status] =
        std::from_chars(digits.data(), digits.data() + digits.size(), unit, 16);
    if (status != std::errc{} || end != digits.data() + 4)
      refuse(at_, "\\u needs four hexadecimal digits");
    at_ += 6;
    return unit;
  }

  // --- Numbers -----------------------------------------------------------------------------------

  std::size_t skip_digits() {
    const std::size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ - start;
  }

  void read_number() {
    const std::size_t start = at_;
    take('-');
    const bool leading_zero = peek() == '0';
    const std::size_t digits = skip_digits();
    if (digits == 0) refuse_instead_of(at_ == start ? "a value" : "a digit");
    if (leading_zero && digits > 1) refuse(start, "a number does not start with 0");
    bool whole = true;
    if (take('.')) {
      whole = false;
      if (skip_digits() == 0) refuse_instead_of("a digit");
    }
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      if (skip_digits() == 0) refuse_instead_of("a digit");
    }
    const std::string_view text = text_.substr(start, at_ - start);
    std::int64_t integer = 0;
    if (whole && std::from_chars(text.data(), text.data() + text.size(), integer).ec == std::errc{})
      events_.integer(integer);
    else events_.number(double_of(text, start), text);
  }

  // std::from_chars gives no number where it is out of range, to either side.
  double double_of(std::string_view text, std::size_t start) const {
    double number = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), number).ec == std::errc{})
      return number;
    const std::size_t e = std::min(text.find_first_of("eE"), text.size()),
                      point = std::min(text.find('.'), e);
    const std::size_t first = text.find_first_of("123456789");
    // what the digits add to it does not overflow
    constexpr std::int64_t most = std::int64_t{1} << 62;
    std::int64_t power = 0;
    if (e < text.size()) {
      const std::string_view written = text.substr(e + (text[e + 1] == '+' ? 2 : 1));
      if (std::from_chars(written.data(), written.data() + written.size(), power).ec != std::errc{})
        power = (written[0] == '-' ? -1 : 1) * most;
      power = std::clamp(power, -most, most);
    }
    if (static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first) + power > 0)
      refuse(start, "no double is as large as " + printable(text));
    return text[0] == '-' ? -0.0 : 0.0;
  }

  std::string_view text_;
  Events& events_;
  std::size_t at_ = 0;
  std::string open_{};    // the ends that are due, innermost last
  std::string string_{};  // the one that was read last
};

template <class Events>
void parse_json(std::string_view text, Events& events) {
  JsonParser<Events>{text, events}.parse();
}

}  // namespace reprise
