#pragma once
// The two tables of a profile: what every node costs, what every activation is worth.
//
// ```cpp
// write_stats_files("out", "bs16_", profile);   // bs16_node_stats.csv, bs16_activation_stats.csv
// using namespace reporting;
// read_csv<NodeStats>(csv, node_stats_columns);    // the rows again, to the last bit
// ```
//
//   rank,id,name,op,phase,time_us,samples_us,output_bytes,workspace_bytes,active_before_bytes,active_peak_bytes,active_after_bytes,
//   live_bytes
//   0,0,norm,aten::native_batch_norm,forward,120.5,121 119 120.5,8192,256,4160,12608,12352,12608
//
//   id,name,memory_bytes,created_rank,created_node,last_fw_node,first_bw_node,last_bw_node,inactive_time_us,recomputable,recomp_time_us,
//   recomp_memory_bytes,recompute_ratio,swap_time_us,recompute_nodes,recompute_sources
//   2,h,8192,0,0,2,5,5,38,1,130.5,8448,62.77,0,0 1,0
//
// Ids are those of the graph's file. `rank` is the place in the graph's own order. `live_bytes` is
// what the simulator says stands while the node runs, `active_*` what the probe saw. An activation
// that costs nothing has the ratio inf. docs/tables.md explains every column.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <range/v3/view/zip.hpp>

#include <reprise/base/error.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/report/csv.hpp>

namespace reprise::reporting {

struct NodeStats {
  std::int64_t rank = 0, id = 0;
  std::string name{}, op{}, phase{};
  double time_us = 0;
  std::vector<double> samples_us{};
  std::int64_t output_bytes = 0, workspace_bytes = 0;
  std::int64_t active_before_bytes = 0, active_peak_bytes = 0, active_after_bytes = 0;
  std::int64_t live_bytes = 0;
  bool operator==(const NodeStats&) const = default;
};

inline constexpr auto node_stats_columns =
    std::tuple{csv_column("rank", &NodeStats::rank),
               csv_column("id", &NodeStats::id),
               csv_column("name", &NodeStats::name),
               csv_column("op", &NodeStats::op),
               csv_column("phase", &NodeStats::phase),
               csv_column("time_us", &NodeStats::time_us),
               csv_column("samples_us", &NodeStats::samples_us),
               csv_column("output_bytes", &NodeStats::output_bytes),
               csv_column("workspace_bytes", &NodeStats::workspace_bytes),
               csv_column("active_before_bytes", &NodeStats::active_before_bytes),
               csv_column("active_peak_bytes", &NodeStats::active_peak_bytes),
               csv_column("active_after_bytes", &NodeStats::active_after_bytes),
               csv_column("live_bytes", &NodeStats::live_bytes)};

struct ActivationStats {
  std::int64_t id = 0;
  std::string name{};
  std::int64_t memory_bytes = 0;
  std::optional<std::int64_t> created_rank{}, created_node{}, last_fw_node{}, first_bw_node{},
      last_bw_node{};
  double inactive_time_us = 0;
  bool recomputable = false;
  double recomp_time_us = 0;
  std::int64_t recomp_memory_bytes = 0;
  double recompute_ratio = 0;
  double swap_time_us = 0;
  std::vector<std::int64_t> recompute_nodes{}, recompute_sources{};
  bool operator==(const ActivationStats&) const = default;
};

inline constexpr auto activation_stats_columns =
    std::tuple{csv_column("id", &ActivationStats::id),
               csv_column("name", &ActivationStats::name),
               csv_column("memory_bytes", &ActivationStats::memory_bytes),
               csv_column("created_rank", &ActivationStats::created_rank),
               csv_column("created_node", &ActivationStats::created_node),
               csv_column("last_fw_node", &ActivationStats::last_fw_node),
               csv_column("first_bw_node", &ActivationStats::first_bw_node),
               csv_column("last_bw_node", &ActivationStats::last_bw_node),
               csv_column("inactive_time_us", &ActivationStats::inactive_time_us),
               csv_column("recomputable", &ActivationStats::recomputable),
               csv_column("recomp_time_us", &ActivationStats::recomp_time_us),
               csv_column("recomp_memory_bytes", &ActivationStats::recomp_memory_bytes),
               csv_column("recompute_ratio", &ActivationStats::recompute_ratio),
               csv_column("swap_time_us", &ActivationStats::swap_time_us),
               csv_column("recompute_nodes", &ActivationStats::recompute_nodes),
               csv_column("recompute_sources", &ActivationStats::recompute_sources)};

/// In the graph's own order. Throws Errc::bad_schedule where that cannot be run.
[[nodiscard]] inline std::vector<NodeStats> node_stats(const Profile& profile) {
  const StepGraph& graph = profile.graph;
  const MemoryAnalysis memory = analyse_memory(graph);
  std::vector<NodeStats> rows;
  for (const auto& [n, node, measured, live] :
       ranges::views::zip(graph.node_ids(), graph.nodes(), profile.nodes, memory.live_during)) {
    NodeStats& row = rows.emplace_back();
    row.rank = n.index;
    row.id = node.id;
    row.name = node.name;
    row.op = node.op;
    row.phase = to_string(node.phase);
    row.time_us = node.time.count;
    for (Microseconds sample : measured.samples) row.samples_us.push_back(sample.count);
    for (ValueId v : graph.outputs(n)) row.output_bytes += graph.value(v).bytes.count;
    row.workspace_bytes = node.workspace.count;
    row.active_before_bytes = measured.memory.before.count;
    row.active_peak_bytes = measured.memory.peak.count;
    row.active_after_bytes = measured.memory.after.count;
    row.live_bytes = live.count;
  }
  return rows;
}

/// In the order of creation.
[[nodiscard]] inline std::vector<ActivationStats> activation_stats(
    const StepGraph& graph, const std::vector<ActivationMetrics>& metrics) {
  const auto id_of = [&](NodeId n) {
    return n.valid() ? std::optional{graph.node(n).id} : std::nullopt;
  };
  std::vector<ActivationStats> rows;
  for (const ActivationMetrics& m : metrics) {
    const Value& value = graph.value(m.use.value);
    ActivationStats& row = rows.emplace_back();
    row.id = value.id;
    row.name = value.name;
    row.memory_bytes = m.use.bytes.count;
    if (m.use.created.valid()) row.created_rank = m.use.created.index;
    row.created_node = id_of(m.use.created);
    row.last_fw_node = id_of(m.use.last_forward);
    row.first_bw_node = id_of(m.use.first_backward);
    row.last_bw_node = id_of(m.use.last_backward);
    row.inactive_time_us = m.inactive_time.count;
    row.recomputable = m.recomputable;
    row.recomp_time_us = m.recomp_time.count;
    row.recomp_memory_bytes = m.recomp_memory.count;
    row.recompute_ratio = m.recompute_ratio;
    row.swap_time_us = m.swap_time.count;
    for (NodeId n : m.recompute_nodes) row.recompute_nodes.push_back(graph.node(n).id);
    for (ValueId v : m.recompute_sources) row.recompute_sources.push_back(graph.value(v).id);
  }
  return rows;
}

/// Writes both tables into a folder, which is made where it does not exist. Throws Errc::io.
inline void write_stats_files(const std::filesystem::path& folder, const std::string& prefix,
                              const Profile& profile,
                              const std::vector<ActivationMetrics>& metrics) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const auto write = [&](const std::string& name, const auto& rows, const auto& columns) {
    const std::string path = (folder / (prefix + name)).string();
    std::ofstream out{path, std::ios::binary};
    if (!out) throw Error(Errc::io, path + ": cannot be opened for writing");
    try {
      write_csv(out, rows, columns);
    } catch (const Error& e) {
      throw Error(e.code(), path + ": " + e.what());
    }
  };
  write("node_stats.csv", node_stats(profile), node_stats_columns);
  write("activation_stats.csv", activation_stats(profile.graph, metrics), activation_stats_columns);
}

inline void write_stats_files(const std::filesystem::path& folder, const std::string& prefix,
                              const Profile& profile) {
  write_stats_files(folder, prefix, profile, activation_metrics(profile));
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::activation_stats;
using reporting::node_stats;
using reporting::write_stats_files;
}  // namespace reprise
