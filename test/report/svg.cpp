#include <reprise/report/svg.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/well_formed.hpp>

using namespace reprise;
using namespace reprise::reporting;
using reprise_test::xml_fault;

namespace {

std::vector<std::string> labels(double max, AxisUnit unit) {
  const AxisTicks t = axis_ticks(max, unit);
  std::vector<std::string> all;
  for (std::size_t i = 0; i < t.at.size(); ++i) all.push_back(t.label(i));
  return all;
}

using Strings = std::vector<std::string>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("marks on an axis are round numbers in the unit that suits") {
  CHECK(labels(120.5, AxisUnit::microseconds) == Strings{"0 us", "50 us", "100 us", "150 us"});
  CHECK(labels(1700, AxisUnit::microseconds) ==
        Strings{"0 ms", "0.5 ms", "1 ms", "1.5 ms", "2 ms"});
  CHECK(labels(28740, AxisUnit::bytes) ==
        Strings{"0 KiB", "5 KiB", "10 KiB", "15 KiB", "20 KiB", "25 KiB", "30 KiB"});
  CHECK(labels(3.0 * (1 << 30), AxisUnit::bytes) ==
        Strings{"0 GiB", "0.5 GiB", "1 GiB", "1.5 GiB", "2 GiB", "2.5 GiB", "3 GiB"});
  CHECK(labels(3, AxisUnit::none) == Strings{"0", "1", "2", "3"});
  CHECK(labels(0, AxisUnit::bytes) == Strings{"0 B", "1 B"});
  CHECK(labels(0.003, AxisUnit::microseconds).back() == "0.003 us");
}

TEST_CASE("the axis always reaches the largest value") {
  for (double max = 1e-3; max < 1e18; max *= 1.37)
    for (AxisUnit unit : {AxisUnit::none, AxisUnit::bytes, AxisUnit::microseconds}) {
      const AxisTicks t = axis_ticks(max, unit);
      INFO(max);
      REQUIRE(t.end() >= max * (1 - 1e-9));
      REQUIRE(t.at.size() >= 2);
      REQUIRE(t.at.size() <= 8);
    }
}

TEST_CASE("numbers are as short as they can be") {
  CHECK(short_number(3.0, 1) == "3");
  CHECK(short_number(3.14, 1) == "3.1");
  CHECK(short_number(-0.01, 1) == "0");
  CHECK(short_number(100, 0) == "100");
  CHECK(short_number(1e300, 1) == "1e+300");
}

TEST_CASE("where points share a place the largest is drawn") {
  const std::vector<double> values{1, 9, 2, 3, 8, 1};
  CHECK(largest_in_each(values, 6) == std::vector<std::size_t>{0, 1, 2, 3, 4, 5});
  CHECK(largest_in_each(values, 100).size() == 6);
  CHECK(largest_in_each(values, 2) == std::vector<std::size_t>{1, 4});
  CHECK(largest_in_each({}, 5).empty());
}

TEST_CASE("the header's example is a picture with three columns") {
  Chart chart{{.title = "Node runtime", .x_label = "rank", .unit = AxisUnit::microseconds},
              {.x_max = 3, .y_max = 120.5}};
  chart.columns(std::vector{120.5, 10.0, 30.0}, {"#4e79a7"});
  chart.vertical(2, "backward");
  const std::string svg = chart.svg();
  CHECK(xml_fault(svg).empty());
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(has(svg, "aria-label=\"Node runtime\""));
  CHECK(has(svg, ">backward</text>"));
  CHECK(has(svg, ">150 us</text>"));
  // The plot is 1084 wide from 92 and 306 high from 62; a column has 80 % of its third; 120.5 of
  // 150 us is 245.8 high.
  CHECK(has(svg, "<path fill=\"#4e79a7\" d=\"M128.1 368V122.2h289.1V368M489.5 368V347.6"));
}

TEST_CASE("a stack's upper edges are drawn from the top layer down") {
  Chart chart{{.title = "t", .unit = AxisUnit::bytes}, {.x_max = 2, .y_max = 10}};
  chart.stacked_steps({{4, 2}, {6, 2}}, {"#111111", "#222222"});
  const std::string svg = chart.svg();
  CHECK(has(svg, "<path fill=\"#222222\" d=\"M92 368H92V62H634V245.6H1176V368\"/>"));
  CHECK(has(svg, "<path fill=\"#111111\" d=\"M92 368H92V245.6H634V306.8H1176V368\"/>"));
  CHECK(svg.find("#222222") < svg.find("#111111"));
}

TEST_CASE("text of any kind leaves a picture well-formed") {
  Chart chart{{.title = "<&\"'\x01\xff", .subtitle = "]]>", .x_label = "<b>"},
              {.x_max = 1, .y_max = 1}};
  chart.legend({{"#000", "<x>"}});
  chart.categories({"a&b", "\""});
  chart.horizontal(0.5, "<cap>");
  chart.vertical(0.9, "&");
  chart.label(0.5, 0.5, "<");
  chart.box(0, 1, 0, 1, "#000", "\"<&");
  CHECK(xml_fault(chart.svg()).empty());
}

TEST_CASE(
    "a legend that does not fit beside the title has a line of its own, and the picture is higher "
    "by it") {
  const auto picture = [](std::size_t entries) {
    Chart chart{{.title = "A title of some length"}, {.x_max = 1, .y_max = 1}};
    std::vector<LegendEntry> legend;
    for (std::size_t i = 0; i < entries; ++i) legend.push_back({"#000", "an entry of its own"});
    chart.legend(std::move(legend));
    return chart.svg();
  };
  const std::string few = picture(2), many = picture(6);
  CHECK(has(few, "viewBox=\"0 0 1200 420\""));
  CHECK(has(few, "y=\"24\">an entry"));
  CHECK(!has(few, "translate"));
  CHECK(has(many, "viewBox=\"0 0 1200 442\""));
  CHECK(has(many, "y=\"65\">an entry"));
  CHECK(has(many, "<g transform=\"translate(0 22)\">"));
  CHECK(xml_fault(many).empty());
}

TEST_CASE("an empty picture is a picture") {
  Chart chart{{.title = "nothing"}, {.x_max = 0, .y_max = 0}};
  chart.columns({}, {"#000"});
  chart.stacked_steps({}, {});
  chart.curve({}, "#000");
  CHECK(xml_fault(chart.svg()).empty());
}

TEST_CASE("pictures stay small: a hundred thousand points take no more than the pixels there are") {
  std::vector<double> values;
  for (int i = 0; i < 100'000; ++i) values.push_back((i * 7919) % 1000);
  Chart chart{{.title = "many"}, {.x_max = 1e5, .y_max = 1000}};
  chart.columns(values, {"#000"});
  chart.stacked_steps({values, values, values, values, values}, {"#1", "#2", "#3", "#4", "#5"});
  chart.curve(values, "#000");
  const std::string svg = chart.svg();
  CHECK(svg.size() < 150'000);
  CHECK(count(svg, "h1V") <= Chart::room);
}
