#pragma once
// read_json_records() reads a JSON document that is one object with a few long lists of objects,
// record by record, without a tree of the whole document.
//
//   {"format": "reprise.graph", "values": [{"id": 0, "bytes": 4096, "shape": [32, 32]}, ...]}
//
//   read_json_records(text, visitor) calls
//     visitor.member(field)                  field.key == "format", field.text == "reprise.graph"
//     visitor.begin_list("values")           true: a list of records; false: a member like any other
//     visitor.record("values", 0, fields)    fields.find("id")->integer == 0, json_text(*fields.find("shape")) == "[32,32]"
//
// nlohmann_json parses the text and reports events, without recursion. A field's content can be
// written again without loss: numbers keep their text, nested members their order. These are
// refused with Errc::bad_format and the position:
// - text that is not JSON (RFC 8259) in UTF-8;
// - numbers too large for a double (1e400);
// - nesting deeper than `max_json_depth`;
// - a member that occurs twice in the document or in a record, because readers disagree on which of
//   both counts. (Deeper in the document, such members are kept.)

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/json_text.hpp>

namespace reprise::graphs {

inline constexpr std::size_t max_json_depth = 128;

/// "line 2, column 7 (offset 31)" for a byte of the text.
[[nodiscard]] inline std::string place_in_text(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 == 0: the first line
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - start + 1) +
         " (offset " + std::to_string(before.size()) + ")";
}

/// nlohmann_json's message about a text, without the position and without the text.
[[nodiscard]] inline std::string json_complaint(const std::string& token,
                                                const nlohmann::json::exception& e) {
  std::string what = e.what();
  what.erase(0, what.find("] ") + 2);  // [json.exception.parse_error.101]
  if (what.starts_with("parse error at ")) what.erase(0, what.find(": ") + 2);
  const std::string last_read = "; last read: '" + token + "'";
  if (const std::size_t at = what.find(last_read); at != what.npos)
    what.erase(at, last_read.size());
  return printable(what, 200);
}

enum class JsonKind : std::uint8_t { null, boolean, integer, number, string, array, object };

/// One member of an object.
struct JsonField {
  std::string key{};
  JsonKind kind = JsonKind::null;
  bool boolean = false;
  /// if kind is integer: written without point or exponent, and representable
  std::int64_t integer = 0;
  double number = 0;                     ///< if kind is integer or number
  std::vector<std::int64_t> integers{};  ///< if only_integers: the array's elements
  bool only_integers = false;  ///< an array that contains only integers; `text` is then empty
  std::string text{};          ///< a string's content; a number, array or object as JSON
};

/// The field's value as JSON.
[[nodiscard]] inline std::string json_text(const JsonField& field) {
  std::string out;
  switch (field.kind) {
    case JsonKind::null: return "null";
    case JsonKind::boolean: return field.boolean ? "true" : "false";
    case JsonKind::integer: return std::to_string(field.integer);
    case JsonKind::string: append_json_string(out, field.text); return out;
    case JsonKind::number:
    case JsonKind::object: return field.text;
    case JsonKind::array: break;
  }
  if (!field.only_integers) return field.text;
  for (std::int64_t i : field.integers) append_json_number(out += out.empty() ? '[' : ',', i);
  return out.empty() ? "[]" : out + ']';
}

/// The members of one object, in the order of the text.
struct JsonFields {
  std::vector<JsonField> list{};

  [[nodiscard]] const JsonField* find(std::string_view key) const {
    for (const JsonField& f : list)
      if (f.key == key) return &f;
    return nullptr;
  }
};

/// A key that occurs twice; null if all are different. Sorts the keys, in time n log n, because a
/// record may have a million members.
[[nodiscard]] inline const std::string* repeated_key(std::vector<const std::string*>& keys) {
  const auto text = [](const std::string* key) { return std::string_view(*key); };
  std::ranges::sort(keys, {}, text);
  const auto twice = std::ranges::adjacent_find(keys, {}, text);
  return twice == keys.end() ? nullptr : *twice;
}

/// Receives nlohmann_json's events (its interface json_sax) and passes whole fields and records to
/// the visitor.
template <class Visitor>
class JsonRecordReader {
 public:
  JsonRecordReader(std::string_view text, Visitor& visitor, std::size_t max_depth)
      : text_(text), visitor_(visitor), max_depth_(max_depth) {}

  bool null() { return scalar(JsonKind::null, "null"); }
  bool boolean(bool value) {
    if (nested_ == 0) begin_value().boolean = value;
    return scalar(JsonKind::boolean, value ? "true" : "false");
  }
  bool number_integer(std::int64_t value) {
    if (nested_ == 1 && field().only_integers) return field().integers.push_back(value), true;
    if (nested_ > 0) return element(std::to_string(value));
    JsonField& f = begin_value();
    f.integer = value;
    f.number = static_cast<double>(value);
    return end_value(JsonKind::integer);
  }
  bool number_unsigned(std::uint64_t value) {
    if (std::in_range<std::int64_t>(value)) return number_integer(static_cast<std::int64_t>(value));
    return number_float(static_cast<double>(value), std::to_string(value));
  }
  bool number_float(double value, const std::string& text) {
    if (nested_ > 0) return element(text);
    JsonField& f = begin_value();
    f.number = value;
    f.text = text;
    return end_value(JsonKind::number);
  }
  bool string(std::string& value) {
    if (nested_ > 0) return append_json_string(separate(), value), true;
    begin_value().text = std::move(value);
    return end_value(JsonKind::string);
  }
  bool binary(nlohmann::json::binary_t&) { return false; }  // for formats other than JSON

  bool start_object(std::size_t) {
    deeper();
    if (nested_ > 0) {
      open('{');
    } else if (where_ == Where::outside) {
      where_ = Where::document;
    } else if (where_ == Where::list) {
      where_ = Where::record;
      record_.list.clear();
    } else {
      begin_value().kind = JsonKind::object;
      open('{');
    }
    return true;
  }
  bool key(std::string& name) {
    if (nested_ > 0) {
      append_json_string(separate(), name);
      field().text += ':';
      return true;
    }
    if (where_ == Where::document) keys_.push_back(name);
    else record_.list.emplace_back();
    field().key = std::move(name);
    return true;
  }
  bool end_object() {
    --depth_;
    if (nested_ > 0) close('}');
    else if (where_ == Where::record) end_record();
    else end_document();
    return true;
  }

  bool start_array(std::size_t) {
    deeper();
    if (nested_ > 0) {
      open('[');
    } else if (where_ == Where::document && visitor_.begin_list(member_.key)) {
      where_ = Where::list;
      count_ = 0;
    } else {
      JsonField& f = begin_value();
      f.kind = JsonKind::array;
      f.only_integers = true;
      nested_ = 1;
    }
    return true;
  }
  bool end_array() {
    --depth_;
    if (nested_ > 0) close(']');
    else where_ = Where::document;
    return true;
  }

  /// `position` is the number of bytes that were read when the error was found.
  [[noreturn]] bool parse_error(std::size_t position, const std::string& token,
                                const nlohmann::json::exception& e) {
    throw Error(Errc::bad_format,
                place_in_text(text_, position - std::min<std::size_t>(position, 1)) + ": " +
                    json_complaint(token, e));
  }

 private:
  enum class Where : std::uint8_t { outside, document, list, record };

  void deeper() {
    if (++depth_ <= max_depth_) return;
    throw Error(Errc::bad_format, place() + "arrays and objects are nested deeper than " +
                                      std::to_string(max_depth_));
  }

  [[nodiscard]] std::string place() const {
    std::string text;
    if (where_ == Where::list || where_ == Where::record)
      text = keys_.back() + ": element " + std::to_string(count_) + ": ";
    if (where_ == Where::record && record_.list.empty()) return text;
    if (where_ == Where::document || where_ == Where::record)
      text += printable(where_ == Where::record ? field().key : member_.key) + ": ";
    return text;
  }

  JsonField& field() { return where_ == Where::document ? member_ : record_.list.back(); }
  [[nodiscard]] const JsonField& field() const {
    return where_ == Where::document ? member_ : record_.list.back();
  }

  JsonField& begin_value() {
    if (where_ == Where::outside) throw Error(Errc::bad_format, "the document is not an object");
    if (where_ == Where::list)
      throw Error(Errc::bad_format,
                  keys_.back() + ": element " + std::to_string(count_) + " is not an object");
    return field();
  }
  bool end_value(JsonKind kind) {
    field().kind = kind;
    if (where_ == Where::document) end_member();
    return true;
  }
  bool scalar(JsonKind kind, std::string_view text) {
    if (nested_ > 0) return element(text);
    begin_value();
    return end_value(kind);
  }
  void end_member() { visitor_.member(std::exchange(member_, JsonField{})); }

  // The text of an array or object that is one field's value. Adds a comma, except after an opening
  // bracket.
  std::string& separate() {
    JsonField& f = field();
    if (f.only_integers) {  // becomes text from here on, without the bracket that is still open
      f.text = json_text(f);
      f.text.pop_back();
      f.only_integers = false;
      f.integers.clear();
    }
    const char last = f.text.empty() ? '[' : f.text.back();
    if (last != '[' && last != '{' && last != ':') f.text += ',';
    return f.text;
  }
  bool element(std::string_view text) {
    separate() += text;
    return true;
  }
  void open(char bracket) {
    if (nested_++ > 0) separate();
    field().text += bracket;
  }
  void close(char bracket) {
    if (!field().only_integers) field().text += bracket;
    if (--nested_ == 0 && where_ == Where::document) end_member();
  }

  void end_record() {
    where_ = Where::list;
    pointers_.clear();
    for (const JsonField& f : record_.list) pointers_.push_back(&f.key);
    refuse_repeated(keys_.back() + ": element " + std::to_string(count_) + ": ");
    visitor_.record(keys_.back(), count_, std::as_const(record_));
    ++count_;
  }
  void end_document() {
    pointers_.clear();
    for (const std::string& k : keys_) pointers_.push_back(&k);
    refuse_repeated("");
  }
  void refuse_repeated(const std::string& where) {
    if (const std::string* twice = repeated_key(pointers_))
      throw Error(Errc::bad_format, where + "member '" + printable(*twice) + "' stands twice");
  }

  std::string_view text_;
  Visitor& visitor_;
  std::size_t max_depth_;
  Where where_ = Where::outside;
  std::size_t depth_ = 0;          // open arrays and objects
  std::size_t nested_ = 0;         // open arrays and objects inside the current field
  std::size_t count_ = 0;          // complete records of the current list
  std::vector<std::string> keys_;  // of the document's members so far
  std::vector<const std::string*> pointers_;
  JsonField member_;
  JsonFields record_;
};

template <class Visitor>
void read_json_records(std::string_view text, Visitor& visitor,
                       std::size_t max_depth = max_json_depth) {
  // nlohmann_json treats a zero byte as the end of the text.
  if (const std::size_t zero = text.find('\0'); zero != text.npos)
    throw Error(Errc::bad_format, place_in_text(text, zero) + ": a zero byte is not JSON");
  JsonRecordReader<Visitor> reader{text, visitor, max_depth};
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
}

}  // namespace reprise::graphs
