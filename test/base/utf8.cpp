#include <reprise/base/utf8.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::base;

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
