#pragma once
// Includes the pipeline without LibTorch, in the order in which data flows: graph, profile, plan,
// rewrite.
//
// Headers that are expensive to compile, or that few programs need, are separate
// (docs/results/compile_time.md has the cost of each header):
//   reprise/report.hpp                     pages, plots, tables, pictures, listings
//   reprise/graph/json.hpp                 graphs in files: nlohmann_json
//   reprise/profile/transfer_times.hpp     transfer times in graph files: nlohmann_json
//   reprise/plan/plan_file.hpp             plans in files: nlohmann_json, <filesystem>
//   reprise/base/free_memory.hpp           the machine's memory: <filesystem>
//   reprise/graph/dependency_order.hpp     an order in which all nodes can run
//   reprise/pack/                          a plan's buffers in one arena
//   reprise/plan/step_plans.hpp            plans that need several calls of a planner
//   reprise/plan/eviction.hpp              EvictionPolicy: what to evict without a plan
//
// Programs that train include <reprise/libtorch.hpp>, which includes what it needs of these.

#include <reprise/base/error.hpp>
#include <reprise/base/hash_bytes.hpp>
#include <reprise/base/ids.hpp>
#include <reprise/base/log.hpp>
#include <reprise/base/units.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/base/version.hpp>
#include <reprise/plan/concepts.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/graph/builder.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/graph/step_graph.hpp>

#include <reprise/profile/concepts.hpp>
#include <reprise/profile/mem_probes/null_probe.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>
#include <reprise/profile/print_stats.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/profile/profiler.hpp>
#include <reprise/profile/timers/fixed_timer.hpp>
#include <reprise/profile/timers/steady_timer.hpp>

#include <reprise/graph/schedule.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/plan/cost_models/byte_cost.hpp>
#include <reprise/plan/cost_models/measured_cost.hpp>
#include <reprise/plan/decisions.hpp>
#include <reprise/plan/frontier.hpp>
#include <reprise/plan/least_extra.hpp>
#include <reprise/plan/pins.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/plan/request.hpp>
#include <reprise/plan/search/chain_blocks.hpp>
#include <reprise/plan/search/lazy_recompute.hpp>
#include <reprise/plan/search/live_schedule.hpp>
#include <reprise/plan/search/max_flow.hpp>
#include <reprise/plan/search/overload_sum.hpp>
#include <reprise/plan/search/peak_tree.hpp>
#include <reprise/plan/search/penalised_search.hpp>
#include <reprise/plan/search/recompute_search.hpp>
#include <reprise/plan/search/repeated_blocks.hpp>
#include <reprise/plan/search/schedule_facts.hpp>
#include <reprise/plan/search/undoable_schedule.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/plan/strategies/anneal.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>
#include <reprise/plan/strategies/portfolio.hpp>

#include <reprise/pipeline/analysis_stage.hpp>
#include <reprise/pipeline/pipeline.hpp>

#include <reprise/rewrite/backends/ir_backend.hpp>
#include <reprise/rewrite/backends/null_backend.hpp>
#include <reprise/rewrite/concepts.hpp>
#include <reprise/rewrite/lint.hpp>
#include <reprise/rewrite/names.hpp>
#include <reprise/rewrite/rewriter.hpp>
#include <reprise/rewrite/rewriting.hpp>
#include <reprise/rewrite/write_order.hpp>
