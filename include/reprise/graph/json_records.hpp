#pragma once
// Reads a JSON document that is one object with a few long lists of objects in it, record by
// record, without a tree of it all.
//
//   {"format": "reprise.graph", "values": [{"id": 0, "bytes": 4096, "shape": [32, 32]}, ...]}
//
//   read_json_records(text, visitor) calls
//     visitor.member(field)                  field.key == "format", field.text == "reprise.graph"
//     visitor.begin_list("values")           true: a list of records; false: a member like any other
//     visitor.record("values", 0, fields)    fields.find("id")->integer == 0, json_text(*fields.find("shape")) == "[32,32]"
//
// Whatever a field holds can be written again without loss: numbers keep the text that they had,
// nested members their order. Refused with Errc::bad_format and the place: what is not JSON (RFC
// 8259) in UTF-8, numbers that no double can hold (1e400), arrays and objects nested deeper than
// `max_json_depth`, and a member that stands twice in the document or in a record (readers disagree
// on which one counts; deeper down, such members are kept as they are).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/json_parser.hpp>
#include <reprise/graph/json_text.hpp>

namespace reprise {

inline constexpr std::size_t max_json_depth = 128;

enum class JsonKind : std::uint8_t { null, boolean, integer, number, string, array, object };

/// One member of an object.
struct JsonField {
  std::string key{};
  JsonKind kind = JsonKind::null;
  bool boolean = false;
  /// where kind is integer: written without point or exponent, and fits
  std::int64_t integer = 0;
  double number = 0;                     ///< where kind is integer or number
  std::vector<std::int64_t> integers{};  ///< where only_integers: the array's elements
  bool only_integers = false;            ///< an array of nothing but integers; `text` is then empty
  std::string text{};                    ///< a string's content; a number, array or object as JSON
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

/// The members of one object, in the order in which they stand there.
struct JsonFields {
  std::vector<JsonField> list{};

  [[nodiscard]] const JsonField* find(std::string_view key) const {
    for (const JsonField& f : list)
      if (f.key == key) return &f;
    return nullptr;
  }
};

/// A key that stands twice; none where all are different. Sorts the keys, in time n log n: a record
/// may have a million members.
[[nodiscard]] inline const std::string* repeated_key(std::vector<const std::string*>& keys) {
  std::sort(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(keys.begin(), keys.end(), [](auto* a, auto* b) { return *a == *b; });
  return twice == keys.end() ? nullptr : *twice;
}

/// Takes the parser's events and hands whole fields and records to the visitor.
template <class Visitor>
class JsonRecordReader {
 public:
  JsonRecordReader(Visitor& visitor, std::size_t max_depth)
      : visitor_(visitor), max_depth_(max_depth) {}

  void null() {
    if (nested_ > 0) return element("null");
    begin_value();
    end_value(JsonKind::null);
  }
  void boolean(bool value) {
    if (nested_ > 0) return element(value ? "true" : "false");
    begin_value().boolean = value;
    end_value(JsonKind::boolean);
  }
  void integer(std::int64_t value) {
    if (nested_ == 1 && field().only_integers) {
      field().integers.push_back(value);
      return;
    }
    if (nested_ > 0) return element(std::to_string(value));
    JsonField& f = begin_value();
    f.integer = value;
    f.number = static_cast<double>(value);
    end_value(JsonKind::integer);
  }
  void number(double value, std::string_view text) {
    if (nested_ > 0) return element(text);
    JsonField& f = begin_value();
    f.number = value;
    f.text = text;
    end_value(JsonKind::number);
  }
  void string(std::string& value) {
    if (nested_ > 0) {
      std::string quoted;
      append_json_string(quoted, value);
      return element(quoted);
    }
    begin_value().text = std::move(value);
    end_value(JsonKind::string);
  }

  void start_object() {
    deeper();
    if (nested_ > 0) return open('{');
    if (where_ == Where::outside) {
      where_ = Where::document;
    } else if (where_ == Where::list) {
      where_ = Where::record;
      record_.list.clear();
    } else {
      begin_value().kind = JsonKind::object;
      open('{');
    }
  }
  void key(std::string& name) {
    if (nested_ > 0) {
      append_json_string(separate(), name);
      field().text += ':';
      return;
    }
    if (where_ == Where::document) keys_.push_back(name);
    else record_.list.emplace_back();
    field().key = std::move(name);
  }
  void end_object() {
    --depth_;
    if (nested_ > 0) close('}');
    else if (where_ == Where::record) end_record();
    else end_document();
  }

  void start_array() {
    deeper();
    if (nested_ > 0) return open('[');
    if (where_ == Where::document && visitor_.begin_list(member_.key)) {
      where_ = Where::list;
      count_ = 0;
      return;
    }
    JsonField& f = begin_value();
    f.kind = JsonKind::array;
    f.only_integers = true;
    nested_ = 1;
  }
  void end_array() {
    --depth_;
    if (nested_ > 0) close(']');
    else where_ = Where::document;
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
  void end_value(JsonKind kind) {
    field().kind = kind;
    if (where_ == Where::document) end_member();
  }
  void end_member() { visitor_.member(std::exchange(member_, JsonField{})); }

  // The text of an array or object that is one field's value. A comma is due unless something has
  // just been opened.
  std::string& separate() {
    JsonField& f = field();
    if (f.only_integers) {  // no longer: text from here on, without the bracket that is still open
      f.text = json_text(f);
      f.text.pop_back();
      f.only_integers = false;
      f.integers.clear();
    }
    const char last = f.text.empty() ? '[' : f.text.back();
    if (last != '[' && last != '{' && last != ':') f.text += ',';
    return f.text;
  }
  void element(std::string_view text) { separate() += text; }
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

  Visitor& visitor_;
  std::size_t max_depth_;
  Where where_ = Where::outside;
  std::size_t depth_ = 0;          // open arrays and objects
  std::size_t nested_ = 0;         // those of them inside the current field
  std::size_t count_ = 0;          // records of the current list that are complete
  std::vector<std::string> keys_;  // of the document's members so far
  std::vector<const std::string*> pointers_;
  JsonField member_;
  JsonFields record_;
};

template <class Visitor>
void read_json_records(std::string_view text, Visitor& visitor,
                       std::size_t max_depth = max_json_depth) {
  JsonRecordReader<Visitor> reader{visitor, max_depth};
  parse_json(text, reader);
}

}  // namespace reprise
