#pragma once
// Everything that needs no LibTorch, in the order in which data flows. Programs that train include <reprise/libtorch.hpp>.

#include <reprise/error.hpp>
#include <reprise/ids.hpp>
#include <reprise/units.hpp>
#include <reprise/version.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/graph/builder.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/graph/diff.hpp>
#include <reprise/graph/json.hpp>
#include <reprise/graph/step_graph.hpp>

#include <reprise/plan/live_schedule.hpp>
#include <reprise/plan/peak_tree.hpp>
#include <reprise/plan/recompute_search.hpp>
#include <reprise/plan/schedule.hpp>
#include <reprise/plan/simulate.hpp>

#include <reprise/rewrite/listing.hpp>
#include <reprise/rewrite/rewriting.hpp>
