#include <reprise/report/markup.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::reporting;

TEST_CASE("any text becomes valid markup") {
  CHECK(markup_text("a < b & \"c\" > d") == "a &lt; b &amp; &quot;c&quot; &gt; d");
  CHECK(markup_text("\x01\xff") == "??");
  CHECK(markup_text("two\nlines") == "two lines");
  CHECK(markup_text("μ 😀") == "μ 😀");
  CHECK(markup_text("\xEF\xBF\xBF") == "?");
}

TEST_CASE("long text is cut between characters") {
  CHECK(shortened("abc", 3) == "abc");
  CHECK(shortened("abcd", 3) == "ab…");
  CHECK(shortened("μμμμ", 3) == "μμ…");
  CHECK(shortened("", 3).empty());
}
