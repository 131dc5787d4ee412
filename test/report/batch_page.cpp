#include <reprise/report/batch_page.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::reporting;
using namespace reprise::literals;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a page of batch sizes has the three charts and a row for each") {
  BatchMemory small = batch_memory(4, reprise_test::toy_graph()), large = small;
  large.batch = 8;
  large.peak += large.peak;
  large.estimated = true;
  const std::string page = batch_page("a <model>", {small, large}, 40000_B);
  CHECK(has(page, "<h1>a &lt;model&gt;</h1>"));
  for (const char* chart : {"Peak memory by batch size<", "Memory over the step by batch size<",
                            "Peak memory by batch size and role<"})
    CHECK(has(page, chart));
  CHECK(has(page, "<tr><th scope=\"row\">4</th><td title=\"28740\">28.07 KiB</td>"));
  // activations
  CHECK(has(page, "<td title=\"24576\">24.00 KiB</td>"));
  // other: 28740 - 24576
  CHECK(has(page, "<td title=\"4164\">4.07 KiB</td><td class=\"text\">fits</td></tr>"));
  CHECK(has(page, "<td class=\"text\">does not fit, estimated</td></tr>"));
  for (const char* loads : {" src=", "@import", "url(", "<link", "<script"})
    CHECK_FALSE(has(page, loads));
  CHECK(has(batch_page("m", {large}), "<td class=\"text\">estimated</td>"));
}
