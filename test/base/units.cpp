#include <reprise/base/units.hpp>

#include <reprise_test/catch.hpp>

using namespace reprise;
using namespace reprise::literals;

namespace {

std::string refusal(std::string_view text) {
  try {
    static_cast<void>(parse_size(text));
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("sizes are read, resolved and printed as the header's example says") {
  CHECK(format_bytes(4_GiB) == "4.00 GiB");
  CHECK(parse_size("50%").resolve(Bytes{1000}) == Bytes{500});
}

TEST_CASE("binary units count in 1024, decimal ones in 1000, and a bare number in bytes") {
  CHECK(parse_size("1500000").resolve({}) == 1500000_B);
  CHECK(parse_size("512KiB").resolve({}) == 512_KiB);
  CHECK(parse_size("4 GiB").resolve({}) == 4_GiB);
  CHECK(parse_size("2GB").resolve({}) == 2000000000_B);
  CHECK(parse_size("3mb").resolve({}) == 3000000_B);
  CHECK(parse_size("1.5KiB").resolve({}) == 1536_B);
}

TEST_CASE("a share is rounded up to a whole byte") {
  CHECK(parse_size("50 %").resolve(1001_B) == 501_B);
  // never a byte more
  for (std::int64_t n = 1; n < 2000; ++n)
    CHECK(parse_size("55%").resolve(Bytes{n * 100}) == Bytes{n * 55});
  CHECK(parse_size("0.1%").resolve(1_B) == 1_B);
}

TEST_CASE("what is no size is refused with the text that was given") {
  const std::string hint = "; write bytes, 512MiB, 4GiB, 2GB or 50%";
  CHECK(refusal("") == "bad argument: size '': does not start with a number" + hint);
  CHECK(refusal("much") == "bad argument: size 'much': does not start with a number" + hint);
  CHECK(refusal("inf") == "bad argument: size 'inf': does not start with a number" + hint);
  CHECK(refusal("0") == "bad argument: size '0': must be greater than zero" + hint);
  CHECK(refusal("-4GiB") == "bad argument: size '-4GiB': must be greater than zero" + hint);
  CHECK(refusal("4 parsecs") == "bad argument: size '4 parsecs': has an unknown unit" + hint);
  CHECK(refusal("1e30") == "bad argument: size '1e30': is larger than any memory" + hint);
  CHECK(refusal("0.5") == "bad argument: size '0.5': is less than one byte" + hint);
}

TEST_CASE(
    "bytes are printed in the largest binary unit that they fill, times in the largest metric "
    "one") {
  CHECK(format_bytes(0_B) == "0 B");
  CHECK(format_bytes(1023_B) == "1023 B");
  CHECK(format_bytes(1536_B) == "1.50 KiB");
  CHECK(format_bytes(Bytes{-3 << 20}) == "-3.00 MiB");
  CHECK(format_time({12.34}) == "12.3 us");
  CHECK(format_time({12340}) == "12.34 ms");
  CHECK(format_time({1234567}) == "1.235 s");
}
