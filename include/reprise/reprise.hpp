#pragma once
// Everything that needs no LibTorch, in the order in which data flows. Programs that train include <reprise/libtorch.hpp>.

#include <reprise/concepts.hpp>
#include <reprise/error.hpp>
#include <reprise/ids.hpp>
#include <reprise/units.hpp>
#include <reprise/version.hpp>

#include <reprise/graph/adapter.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/graph/builder.hpp>
#include <reprise/graph/dependency.hpp>
#include <reprise/graph/diff.hpp>
#include <reprise/graph/dot.hpp>
#include <reprise/graph/json.hpp>
#include <reprise/graph/json_records.hpp>
#include <reprise/graph/json_text.hpp>
#include <reprise/graph/read_graph.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/graph/write_graph.hpp>

#include <reprise/profile/concepts.hpp>
#include <reprise/profile/mem_probes/null_probe.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/print_stats.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/profile/profiler.hpp>
#include <reprise/profile/timers/fixed_timer.hpp>
#include <reprise/profile/timers/steady_timer.hpp>
#include <reprise/profile/transfer_times.hpp>

#include <reprise/plan/assign_offsets.hpp>
#include <reprise/plan/cost_models/byte_cost.hpp>
#include <reprise/plan/cost_models/measured_cost.hpp>
#include <reprise/plan/decisions.hpp>
#include <reprise/plan/frontier.hpp>
#include <reprise/plan/lazy_recompute.hpp>
#include <reprise/plan/live_schedule.hpp>
#include <reprise/plan/peak_tree.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/plan/recompute_search.hpp>
#include <reprise/plan/request.hpp>
#include <reprise/plan/schedule.hpp>
#include <reprise/plan/simulate.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/plan/strategies/anneal.hpp>
#include <reprise/plan/strategies/chain_dp.hpp>
#include <reprise/plan/strategies/exhaustive.hpp>
#include <reprise/plan/strategies/min_cut.hpp>
#include <reprise/plan/strategies/mu_two.hpp>
#include <reprise/plan/strategies/portfolio.hpp>

#include <reprise/rewrite/backends/ir_backend.hpp>
#include <reprise/rewrite/backends/null_backend.hpp>
#include <reprise/rewrite/concepts.hpp>
#include <reprise/rewrite/extract.hpp>
#include <reprise/rewrite/extraction_dot.hpp>
#include <reprise/rewrite/lint.hpp>
#include <reprise/rewrite/listing.hpp>
#include <reprise/rewrite/names.hpp>
#include <reprise/rewrite/pictures.hpp>
#include <reprise/rewrite/rewriter.hpp>
#include <reprise/rewrite/rewriting.hpp>
#include <reprise/rewrite/write_order.hpp>

#include <reprise/report/batch_plots.hpp>
#include <reprise/report/csv.hpp>
#include <reprise/report/html.hpp>
#include <reprise/report/html_assets.hpp>
#include <reprise/report/markup.hpp>
#include <reprise/report/palette.hpp>
#include <reprise/report/plots.hpp>
#include <reprise/report/stats.hpp>
#include <reprise/report/svg.hpp>
#include <reprise/report/trace.hpp>
