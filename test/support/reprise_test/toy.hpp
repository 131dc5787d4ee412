#pragma once
// What tests on the toy of the plan format begin with.

#include <reprise/graph/builder.hpp>
#include <reprise_test/catch.hpp>
#include <reprise_test/refusal.hpp>
#include <reprise_test/schedules.hpp>
#include <reprise_test/toy_graph.hpp>

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::packing;
using namespace reprise::planning;
using namespace reprise::profiling;
using namespace reprise::reporting;
using namespace reprise::rewriting;
using namespace reprise::literals;
using reprise_test::nodes;
using reprise_test::refusal;
using reprise_test::toy_graph;
using reprise_test::toy_schedule;
