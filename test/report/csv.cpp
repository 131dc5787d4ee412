#include <reprise/report/csv.hpp>

#include <cmath>
#include <limits>
#include <sstream>

#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>

using namespace reprise;
using namespace reprise::reporting;
using reprise_test::refusal;

namespace {

struct Row {
  std::int64_t id = 0;
  std::string name{};
  double time = 0;
  bool flag = false;
  std::optional<std::int64_t> maybe{};
  std::vector<double> list{};
  bool operator==(const Row&) const = default;
};

constexpr auto columns =
    std::tuple{csv_column("id", &Row::id),        csv_column("name", &Row::name),
               csv_column("time_us", &Row::time), csv_column("flag", &Row::flag),
               csv_column("maybe", &Row::maybe),  csv_column("list", &Row::list)};

std::string written(const std::vector<Row>& rows) {
  std::ostringstream out;
  write_csv(out, rows, columns);
  return out.str();
}

std::vector<Row> read(const std::string& text) {
  std::istringstream in{text};
  return read_csv<Row>(in, columns);
}

std::string refused(const std::string& text) {
  return refusal([&] { static_cast<void>(read(text)); });
}

const std::string header = "id,name,time_us,flag,maybe,list\n";

}  // namespace

TEST_CASE("a table is written with its columns' names, and quoted where it must be") {
  CHECK(written({}) == header);
  CHECK(written({{.id = 1,
                  .name = "conv, \"same\"",
                  .time = 120.5,
                  .flag = true,
                  .maybe = 7,
                  .list = {0.5, 2}}}) == header + "1,\"conv, \"\"same\"\"\",120.5,1,7,0.5 2\n");
}

TEST_CASE("whatever is written is read back, to the last bit") {
  const std::vector<Row> rows{{.id = std::numeric_limits<std::int64_t>::min(),
                               .name = "",
                               .time = 0.1 + 0.2,
                               .flag = false,
                               .maybe = {},
                               .list = {}},
                              {.id = -1,
                               .name = "a,b\"c\"\nd\r\ne",
                               .time = 1e-300,
                               .flag = true,
                               .maybe = -5,
                               .list = {1.0 / 3, 1e22}},
                              {.id = 3,
                               .name = " spaces ",
                               .time = std::numeric_limits<double>::infinity(),
                               .flag = true,
                               .maybe = 0,
                               .list = {std::nextafter(1.0, 2.0)}},
                              {.id = 4,
                               .name = "μ 😀",
                               .time = std::numeric_limits<double>::denorm_min(),
                               .flag = false,
                               .maybe = {},
                               .list = {0}}};
  CHECK(read(written(rows)) == rows);
}

TEST_CASE("columns may stand in any order, unknown ones are passed over, lines may end in CR LF") {
  const auto rows = read("maybe,other,list,flag,time_us,name,id\r\n,x,,0,2.5,\"n\",9\r\n");
  CHECK(rows == std::vector<Row>{
                    {.id = 9, .name = "n", .time = 2.5, .flag = false, .maybe = {}, .list = {}}});
}

TEST_CASE("the last line need not end") { CHECK(read(header + "1,a,2,0,,").size() == 1); }

TEST_CASE("what cannot be read is refused with its line and column") {
  CHECK(refused("") ==
        "bad format: line 1: the table is empty; it must start with the names of its columns");
  CHECK(refused("id,name\n") == "bad format: line 1: there is no column time_us");
  CHECK(refused(header + "1,a,2,0,,\nx,a,2,0,,\n") == "bad format: line 3: id: 'x' cannot be read");
  CHECK(refused(header + "1,a,2ms,0,,\n") == "bad format: line 2: time_us: '2ms' cannot be read");
  CHECK(refused(header + "1,a,2,yes,,\n") == "bad format: line 2: flag: 'yes' cannot be read");
  CHECK(refused(header + "1,a,2,0,,1 x\n") == "bad format: line 2: list: '1 x' cannot be read");
  CHECK(refused(header + "1,a\n") == "bad format: line 2: 2 cells under 6 columns");
  CHECK(refused(header + "1,\"a\n\n\",2,0,,\n1,\"b,2,0,,\n") ==
        "bad format: line 5: a quote is not closed");
  CHECK(refused(header + "1,\"a\"b,2,0,,\n") == "bad format: line 2: text follows a quoted cell");
}

TEST_CASE("a stream that fails is an error") {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  CHECK(refusal([&] { write_csv(out, std::vector<Row>{}, columns); }) ==
        "input/output: the table could not be written: the stream has failed");
}
