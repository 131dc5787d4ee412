#pragma once
// Writes and reads tables as CSV (RFC 4180); cells read back exactly as written.
//
//   struct Row { std::int64_t id = 0; std::string name{}; double time = 0; };
//   constexpr std::tuple columns{csv_column("id", &Row::id), csv_column("name", &Row::name), csv_column("time_us", &Row::time)};
//
//   write_csv(std::cout, rows, columns);        id,name,time_us
//                                               1,"conv, ""same""",120.5
//   read_csv<Row>(std::cin, columns)            the same rows
//
// A column is a member of the row: integers, doubles (in the shortest text that reads back the
// same; inf is allowed), booleans, strings, optional integers (empty for none), and lists of
// integers or doubles (separated by spaces). Reading finds columns by name, in any order, and
// ignores unknown columns. It refuses invalid cells with line and column.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/base/utf8.hpp>

namespace reprise::reporting {

// --- Cells ---------------------------------------------------------------------------------------

template <class Number>
requires std::is_arithmetic_v<Number>
void append_cell(std::string& out, Number number) {
  if constexpr (std::is_same_v<Number, bool>) {
    out += number ? '1' : '0';
  } else {
    std::array<char, 32> text;
    out.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
  }
}

/// Quoted if necessary.
inline void append_cell(std::string& out, const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) {
    out += text;
    return;
  }
  out += '"';
  for (char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

inline void append_cell(std::string& out, std::optional<std::int64_t> number) {
  if (number) append_cell(out, *number);
}

template <class Number>
void append_cell(std::string& out, const std::vector<Number>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) append_cell(i == 0 ? out : out += ' ', list[i]);
}

/// False if the text is no value of the member's type.
template <class Number>
requires std::is_arithmetic_v<Number>
[[nodiscard]] bool parse_cell(std::string_view text, Number& number) {
  if constexpr (std::is_same_v<Number, bool>) {
    number = text == "1";
    return text == "0" || text == "1";
  } else {
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    return status == std::errc{} && end == text.data() + text.size();
  }
}

[[nodiscard]] inline bool parse_cell(std::string_view text, std::string& out) {
  out = text;
  return true;
}

[[nodiscard]] inline bool parse_cell(std::string_view text, std::optional<std::int64_t>& number) {
  number.reset();
  return text.empty() || parse_cell(text, number.emplace());
}

template <class Number>
[[nodiscard]] bool parse_cell(std::string_view text, std::vector<Number>& list) {
  list.clear();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (!parse_cell(text.substr(0, end), list.emplace_back())) return false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return true;
}

// --- Tables --------------------------------------------------------------------------------------

template <class Row, class Member>
struct CsvColumn {
  std::string_view name{};
  Member Row::*member = nullptr;
};

template <class Row, class Member>
[[nodiscard]] constexpr CsvColumn<Row, Member> csv_column(std::string_view name,
                                                          Member Row::*member) {
  return {name, member};
}

/// Throws Errc::io if the stream fails.
template <class Row, class... Members>
void write_csv(std::ostream& out, const std::vector<Row>& rows,
               const std::tuple<CsvColumn<Row, Members>...>& columns) {
  std::string text;
  const auto line = [&](const auto& cell) {
    std::apply([&](const auto&... column) { ((cell(column), text += ','), ...); }, columns);
    text.back() = '\n';
  };
  line([&](const auto& column) { text += column.name; });
  for (const Row& row : rows)
    line([&](const auto& column) { append_cell(text, row.*column.member); });
  if (!(out << text << std::flush))
    throw Error(Errc::io, "the table could not be written: the stream has failed");
}

/// Splits CSV into records, without the quotes. Lines end in LF or CR LF; quoted cells may contain
/// both.
class CsvRecords {
 public:
  explicit CsvRecords(std::istream& in) : in_(in) {}

  /// False at the end. Throws Errc::bad_format if a quote is not closed or is followed by text.
  bool next(std::vector<std::string>& cells) {
    if (in_.peek() == std::istream::traits_type::eof()) return false;
    cells.assign(1, "");
    line_ += std::exchange(lines_in_record_, 1);
    for (int c = in_.get();; c = in_.get()) {
      if (c == '"' && cells.back().empty()) c = quoted(cells.back());
      if (c == ',') cells.emplace_back();
      else if (c == '\r' && in_.peek() == '\n') continue;
      else if (c == '\n' || c == std::istream::traits_type::eof()) return true;
      else cells.back() += static_cast<char>(c);
    }
  }
  /// The first line of the last record, counted from 1.
  [[nodiscard]] std::size_t line() const { return line_; }

 private:
  // The quoted part of a cell; returns the next character.
  int quoted(std::string& cell) {
    for (;;) {
      int c = in_.get();
      if (c == std::istream::traits_type::eof())
        throw Error(Errc::bad_format, "line " + std::to_string(line_) + ": a quote is not closed");
      if (c == '\n') ++lines_in_record_;
      if (c != '"') {
        cell += static_cast<char>(c);
        continue;
      }
      c = in_.get();
      if (c == '"') {
        cell += '"';
        continue;
      }
      if (c == '\r' && in_.peek() == '\n') c = in_.get();
      if (c == ',' || c == '\n' || c == std::istream::traits_type::eof()) return c;
      throw Error(Errc::bad_format,
                  "line " + std::to_string(line_) + ": text follows a quoted cell");
    }
  }

  std::istream& in_;
  std::size_t line_ = 0, lines_in_record_ = 1;
};

/// Throws Errc::bad_format with the line, and the column if there is one.
template <class Row, class... Members>
[[nodiscard]] std::vector<Row> read_csv(std::istream& in,
                                        const std::tuple<CsvColumn<Row, Members>...>& columns) {
  CsvRecords records{in};
  std::vector<std::string> header, cells;
  if (!records.next(header))
    throw Error(Errc::bad_format,
                "line 1: the table is empty; it must start with the names of its columns");
  const auto place = [&](std::string_view name) {
    const auto it = std::find(header.begin(), header.end(), name);
    if (it == header.end())
      throw Error(Errc::bad_format, "line 1: there is no column " + std::string(name));
    return static_cast<std::size_t>(it - header.begin());
  };
  const auto places =
      std::apply([&](const auto&... column) { return std::array{place(column.name)...}; }, columns);
  std::vector<Row> rows;
  while (records.next(cells)) {
    const auto fail = [&](const std::string& what) {
      return Error(Errc::bad_format, "line " + std::to_string(records.line()) + ": " + what);
    };
    if (cells.size() != header.size())
      throw fail(std::to_string(cells.size()) + " cells under " + std::to_string(header.size()) +
                 " columns");
    Row& row = rows.emplace_back();
    std::size_t i = 0;
    const auto set = [&](const auto& column) {
      const std::string& cell = cells[places[i++]];
      if (!parse_cell(cell, row.*column.member))
        throw fail(std::string(column.name) + ": '" + printable(cell) + "' cannot be read");
    };
    std::apply([&](const auto&... column) { (set(column), ...); }, columns);
  }
  return rows;
}

}  // namespace reprise::reporting
