#include <reprise/graph/json_text.hpp>

#include <limits>

#include <reprise_test/catch.hpp>

using namespace reprise;

namespace {

std::string quoted(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

std::string number(auto value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

}  // namespace

TEST_CASE("JSON strings escape quotes, backslashes and control characters and leave UTF-8 alone") {
  CHECK(quoted("a \"b\"\n") == R"("a \"b\"\n")");
  CHECK(quoted("\\\t\r") == R"("\\\t\r")");
  CHECK(quoted(std::string_view("\0\x1f", 2)) == R"("\u0000\u001f")");
  CHECK(quoted("μ-TWO\x7f") == "\"μ-TWO\x7f\"");
}

TEST_CASE("JSON numbers are the shortest text that reads back the same") {
  CHECK(number(120.5) == "120.5");
  CHECK(number(10.0) == "10");
  CHECK(number(0.1) == "0.1");
  CHECK(number(1e300) == "1e+300");
  CHECK(number(std::numeric_limits<double>::denorm_min()) == "5e-324");
  CHECK(number(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
}

TEST_CASE("UTF-8 is told from what is not") {
  CHECK(is_utf8("plain, μ, €, 😀"));
  CHECK(is_utf8(std::string_view("\0", 1)));
  CHECK_FALSE(is_utf8("\xff"));
  CHECK_FALSE(is_utf8("\x80"));              // a continuation byte on its own
  CHECK_FALSE(is_utf8("\xc3"));              // truncated
  CHECK_FALSE(is_utf8("\xe2\x82"));          // truncated
  CHECK_FALSE(is_utf8("\xc0\xaf"));          // overlong
  CHECK_FALSE(is_utf8("\xe0\x80\xaf"));      // overlong
  CHECK_FALSE(is_utf8("\xed\xa0\x80"));      // a surrogate
  CHECK_FALSE(is_utf8("\xf4\x90\x80\x80"));  // past U+10FFFF
}

TEST_CASE("text in messages is cut and cleaned") {
  CHECK(printable("a\nb\xff"
                  "c") == "a?b?c");
  CHECK(printable("abcdef", 3) == "abc...");
  CHECK(printable("aμ", 2) == "a...");  // never in the middle of a character
}
