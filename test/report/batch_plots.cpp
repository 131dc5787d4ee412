#include <reprise/report/batch_plots.hpp>

#include <reprise_test/catch.hpp>
#include <reprise_test/toy_graph.hpp>
#include <reprise_test/well_formed.hpp>

using namespace reprise;
using namespace reprise::reporting;
using namespace reprise::literals;
using reprise_test::xml_fault;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<BatchMemory> two_batches() {
  BatchMemory small = batch_memory(4, reprise_test::toy_graph()), large = small;
  large.batch = 8;
  large.peak += large.peak;
  large.live.clear();
  large.estimated = true;
  return {small, large};
}

}  // namespace

TEST_CASE("a batch's memory is the simulator's") {
  const BatchMemory b = batch_memory(4, reprise_test::toy_graph());
  CHECK(b.peak == 28740_B);
  CHECK(b.by_role[static_cast<std::size_t>(Role::activation)] == 24576_B);
  CHECK(b.live.size() == 6);
  CHECK_FALSE(b.estimated);
}

TEST_CASE("bars say which batch sizes fit, and what was estimated") {
  const std::string svg = batch_peaks_svg(two_batches(), 40000_B);
  CHECK(xml_fault(svg).empty());
  CHECK(has(svg, ">8 (estimated)</text>"));
  CHECK(has(svg, ">28.07 KiB</text>"));
  CHECK(has(svg, "limit 39.06 KiB"));
  CHECK(has(svg, "<rect fill=\"#4e79a7\""));    // fits
  CHECK(has(svg, "<rect fill=\"#e1575999\""));  // does not, and is estimated
  CHECK_FALSE(has(batch_peaks_svg(two_batches()), "limit"));
}

TEST_CASE("stacks add up to the peak, with everything that has no colour of its own under other") {
  const std::string svg = batch_stacks_svg({batch_memory(4, reprise_test::toy_graph())});
  CHECK(xml_fault(svg).empty());
  CHECK(has(svg, "<title>batch 4, activation: 24.00 KiB</title>"));
  CHECK(has(svg, "<title>batch 4, other: 4.07 KiB</title>"));  // 28740 - 24576 = 4164
}

TEST_CASE("curves are drawn for those that have one") {
  const std::string svg = batch_curves_svg(two_batches(), 40000_B);
  CHECK(xml_fault(svg).empty());
  CHECK(has(svg, ">batch 4</text>"));
  CHECK_FALSE(has(svg, ">batch 8"));
  CHECK(xml_fault(batch_curves_svg({})).empty());
}
