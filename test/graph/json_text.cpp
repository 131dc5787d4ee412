#include <reprise/graph/json_text.hpp>

#include <limits>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::graphs;

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

TEST_CASE("JSON numbers read back the same, and doubles look like doubles") {
  CHECK(number(120.5) == "120.5");
  CHECK(number(10.0) == "10.0");
  CHECK(number(0.1) == "0.1");
  CHECK(number(1e300) == "1e+300");
  CHECK(number(std::numeric_limits<double>::denorm_min()) == "5e-324");
  CHECK(number(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
}

TEST_CASE("an object grows member by member") {
  std::string object;
  add_json_member(object, "shape", "[8,256]");
  add_json_member(object, "a\"b", "{}");
  CHECK(object == R"({"shape":[8,256],"a\"b":{}})");
}
