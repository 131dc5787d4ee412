#include <reprise/graph/json_parser.hpp>

#include <random>

#include <nlohmann/json.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
using reprise_test::refusal;

namespace {

// Writes down what it is told.
struct Listener {
  std::string heard{};

  void null() { heard += "null "; }
  void boolean(bool b) { heard += b ? "true " : "false "; }
  void integer(std::int64_t i) { heard += std::to_string(i) + " "; }
  void number(double d, std::string_view text) {
    append_json_number(heard, d), (heard += "=") += std::string(text) + " ";
  }
  void string(const std::string& s) { append_json_string(heard, s), heard += ' '; }
  void key(const std::string& s) { append_json_string(heard, s), heard += ": "; }
  void start_object() { heard += "{ "; }
  void end_object() { heard += "} "; }
  void start_array() { heard += "[ "; }
  void end_array() { heard += "] "; }
};

// The same, told by nlohmann_json.
struct Reference : nlohmann::json_sax<nlohmann::json> {
  Listener told{};

  bool null() override { return told.null(), true; }
  bool boolean(bool b) override { return told.boolean(b), true; }
  bool number_integer(std::int64_t i) override { return told.integer(i), true; }
  bool number_unsigned(std::uint64_t u) override {
    if (u <= static_cast<std::uint64_t>(INT64_MAX)) told.integer(static_cast<std::int64_t>(u));
    else told.number(static_cast<double>(u), std::to_string(u));
    return true;
  }
  bool number_float(double d, const std::string& text) override {
    return told.number(d, text), true;
  }
  bool string(std::string& s) override { return told.string(s), true; }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return told.start_object(), true; }
  bool key(std::string& s) override { return told.key(s), true; }
  bool end_object() override { return told.end_object(), true; }
  bool start_array(std::size_t) override { return told.start_array(), true; }
  bool end_array() override { return told.end_array(), true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }
};

std::string hear(std::string_view text) {
  Listener listener;
  parse_json(text, listener);
  return listener.heard;
}

std::string refused(std::string_view text) {
  return refusal([&] { hear(text); });
}

// What both say of a text: the events, or "refused".
std::string by_us(const std::string& text) {
  try {
    return hear(text);
  } catch (const Error&) {
    return "refused";
  }
}
std::string by_reference(const std::string& text) {
  Reference reference;
  return nlohmann::json::sax_parse(text, &reference) ? reference.told.heard : "refused";
}

}  // namespace

TEST_CASE("a text is told event by event") {
  CHECK(hear(R"({"bytes": [4096, 1e3]})") == R"({ "bytes": [ 4096 1000=1e3 ] } )");
  CHECK(hear(" [ ] ") == "[ ] ");
  CHECK(hear("{}") == "{ } ");
  CHECK(hear("\xEF\xBB\xBF\"text\"") == "\"text\" ");
  CHECK(hear(R"([null,true,false,-0,[[]],{"a":{}}])") ==
        R"([ null true false 0 [ [ ] ] { "a": { } } ] )");
}

TEST_CASE("strings are handed over unescaped") {
  CHECK(hear(R"("\"\\\/\b\f\n\r\t")") == "\"\\\"\\\\/\\u0008\\u000c\\n\\r\\t\" ");
  CHECK(hear(R"("\u0041\u00e9\u20ac\ud83d\ude00\u0000")") ==
        "\"A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\\u0000\" ");
}

TEST_CASE("integers are those that 64 bits hold, and other numbers keep their text") {
  CHECK(hear("9223372036854775807") == "9223372036854775807 ");
  CHECK(hear("-9223372036854775808") == "-9223372036854775808 ");
  CHECK(hear("9223372036854775808").ends_with("=9223372036854775808 "));
  CHECK(hear("2.50") == "2.5=2.50 ");
}

TEST_CASE("a number too small for a double is 0, and one too large is refused") {
  CHECK(hear("1e-400") == "0=1e-400 ");
  CHECK(hear("-1e-99999999999999999999") == "-0=-1e-99999999999999999999 ");
  CHECK(hear("0." + std::string(500, '0') + "1e+5").starts_with("0="));
  CHECK(refused("1e400") ==
        "bad format: line 1, column 1 (offset 0): no double is as large as 1e400");
  CHECK(refused("[-1e+99999999999999999999]")
            .starts_with("bad format: line 1, column 2 (offset 1): no double is as large as"));
  CHECK(refused(std::string(400, '9')).find("no double is as large as 999") != std::string::npos);
  CHECK(hear("0." + std::string(500, '0') + "1e501").starts_with("1="));
  CHECK(hear("0e99999999999999999999").starts_with("0="));
  CHECK(refused("1e9223372036854775807").find("no double is as large as 1e92") !=
        std::string::npos);
  CHECK(hear("0.01e-9223372036854775808").starts_with("0="));
}

TEST_CASE("what is not JSON is refused with its place and what was expected there") {
  CHECK(refused(" \n ") == "bad format: line 2, column 2 (offset 3): the document is empty");
  CHECK(refused("[1 2]") ==
        "bad format: line 1, column 4 (offset 3): '2' where ',' or ']' is expected");
  CHECK(refused("{\"a\" 1}") ==
        "bad format: line 1, column 6 (offset 5): '1' where ':' is expected");
  CHECK(refused("{\"a\":1,}") ==
        "bad format: line 1, column 8 (offset 7): '}' where a member's name is expected");
  CHECK(refused("[1,]") ==
        "bad format: line 1, column 4 (offset 3): ']' where a value is expected");
  CHECK(refused("[") ==
        "bad format: line 1, column 2 (offset 1): the text ends where a value is expected");
  CHECK(refused("1.") ==
        "bad format: line 1, column 3 (offset 2): the text ends where a digit is expected");
  CHECK(refused("\"\\x\"") ==
        "bad format: line 1, column 2 (offset 1): there is no such escape in JSON");
  CHECK(refused("\"\\u12g4\"") ==
        "bad format: line 1, column 2 (offset 1): \\u needs four hexadecimal digits");
  CHECK(refused("\"\\u-123\"") ==
        "bad format: line 1, column 2 (offset 1): \\u needs four hexadecimal digits");
  CHECK(refused("\"abc") == "bad format: line 1, column 1 (offset 0): this string has no end");
  CHECK(refused(std::string("[\0]", 3)) ==
        "bad format: line 1, column 2 (offset 1): '?' where a value is expected");
}

TEST_CASE("nesting takes no stack") {
  CHECK(hear(std::string(1'000'000, '[') + std::string(1'000'000, ']')).size() == 4'000'000);
}

TEST_CASE("texts are read and refused as by nlohmann_json, whatever happens to them") {
  const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
  CAPTURE(seed);
  std::mt19937 random{seed};
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>{0, n - 1}(random);
  };
  const std::string seeds[] = {
      R"({"format":"reprise.graph","values":[{"id":0,"bytes":4096,"shape":[32,-1.5e3]}],"ok":true,"no":null})",
      R"(["\u00e9\ud83d\ude00\n\\", 0.25, 1E-7, 18446744073709551615, -0, [], {}, "é€😀"])",
      R"({"a":{"b":[[1],[2,[3,{"c":false}]]]},"z":1e308})"};
  const std::string pieces[] = {"{",
                                "}",
                                "[",
                                "]",
                                ",",
                                ":",
                                "\"",
                                "\\",
                                "\\u",
                                "\\ud83d",
                                "0",
                                "1",
                                "-",
                                "+",
                                ".",
                                "e",
                                "E5",
                                "true",
                                "nul",
                                " ",
                                "\n",
                                "\x01",
                                "\xC3",
                                "\xA9",
                                "\xED\xA0\x80",
                                "\xF4\x90\x80\x80",
                                "\xEF\xBB\xBF",
                                "1e400",
                                "1e-400"};
  for (int round = 0; round < 20'000; ++round) {
    std::string text = seeds[below(std::size(seeds))];
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(text.size() + 1);
      if (below(2) == 0) text.insert(at, pieces[below(std::size(pieces))]);
      else text.erase(at, 1 + below(3));
    }
    CAPTURE(round, text);
    REQUIRE(by_us(text) == by_reference(text));
  }
}
