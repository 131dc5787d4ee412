// The examples at the tops of headers, compiled as they stand (cmake/RepriseDocs.cmake takes them
// out). What an example takes for granted, a graph, a plan, a file, is declared here.

#include <fstream>
#include <iostream>
#include <sstream>
#include <stop_token>
#include <string>
#include <vector>

#include <reprise/base/flat_index.hpp>
#include <reprise/graph/dependency_order.hpp>
#include <reprise/graph/json.hpp>
#include <reprise/pack/assign_offsets.hpp>
#include <reprise/pack/hole_list.hpp>
#include <reprise/pack/skyline.hpp>
#include <reprise/plan/advice.hpp>
#include <reprise/plan/background_planner.hpp>
#include <reprise/plan/buffers_of.hpp>
#include <reprise/plan/eviction.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/shares.hpp>
#include <reprise/plan/step_plans.hpp>
#include <reprise/report.hpp>
#include <reprise/reprise.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/fake_step.hpp>

#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-result"
#pragma GCC diagnostic ignored "-Wunused-local-typedefs"
#pragma GCC diagnostic ignored "-Wshadow"

namespace {

using namespace reprise;
using namespace reprise::literals;

void my_logger(const std::string&) {}
void use(const Schedule&) {}

/// Compiled, never made. Nodes and values are those of the toy graph of the plan format.
struct HeaderExamples {
  std::uint64_t key;
  StepGraph graph, graph_of_4, graph_of_8;
  GraphAdapter<StepGraph> adapter{graph};
  GraphAdapter<StepGraph>::edge_descriptor e;
  Schedule schedule;
  PlanRequest request;
  reprise::planning::PlanFunction planner;
  Plan plan;
  reprise_test::FakeStep captured;
  Profile profile;
  std::vector<ActivationMetrics> metrics;
  std::vector<reprise::reporting::BatchMemory> batches;
  std::vector<Microseconds> measured;
  std::vector<std::byte> first, second;
  std::ofstream file, dot_file, svg_file;
  std::istringstream csv;
  NodeId norm, relu, flat, wide, sum, grad;
  ValueId h, h_relu, h_flat;

#include "header_examples.inc"
};

}  // namespace

TEST_CASE("the examples at the tops of headers compile") {
  CHECK(HeaderExamples::blocks_in_documents >= 50);  // fewer: the fence is no longer found
}
