#pragma once
// print_stats() prints a profile for a terminal: the step's time and memory, and its ten most
// expensive nodes.
//
// ```cpp
// print_stats(std::cout, profile);
// ```
//
//   toy: 6 nodes, median of 3 runs (1 dropped as warm-up)
//
//     nodes         188.5 us   sum of their times
//     run           205.0 us   wall time
//     overhead       16.5 us   8.0 % of the run: between nodes (dispatch, freeing, the profiler itself)
//     base          4.06 KiB   held when the runs started
//     peak         28.07 KiB   held at most
//
//   The most expensive nodes
//
//     node      time   share       peak  name
//        0  120.5 us  63.9 %  12.31 KiB  norm
//        3   30.0 us  15.9 %  28.06 KiB  wide
//
// Numbers that were not measured have no line. `node` is the number in files.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include <reprise/profile/profile.hpp>

namespace reprise::profiling {

struct StatsRow {
  std::string label, value, meaning;
};

// Not the stream's own widths, because they depend on the caller's settings.
[[nodiscard]] inline std::string at_right(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}
[[nodiscard]] inline std::string at_left(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, text.size()), ' ');
}

[[nodiscard]] inline std::string format_percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", whole > 0 ? 100 * part / whole : 0.0);
  return text;
}

[[nodiscard]] inline std::string format_rate(double bytes_a_second) {
  return format_bytes({static_cast<std::int64_t>(bytes_a_second)}) + "/s";
}

/// The run's time in addition to its nodes' times. Nodes and runs are aggregated separately and
/// need not add up.
[[nodiscard]] inline StatsRow overhead_row(Microseconds nodes, Microseconds run) {
  const Microseconds between = run - nodes;
  if (between.count < 0)
    return {"overhead", format_time(between),
            "none to be seen: nodes and run are aggregated each on their own"};
  return {"overhead", format_time(between),
          format_percent(between.count, run.count) +
              " of the run: between nodes (dispatch, freeing, the profiler itself)"};
}

[[nodiscard]] inline std::string stats_title(const Profile& profile) {
  std::string title = profile.graph.name().empty() ? "step" : profile.graph.name();
  title += ": " + std::to_string(profile.nodes.size()) + " nodes, " +
           (profile.aggregate == Aggregate::median ? "median" : "mean") + " of ";
  title += std::to_string(profile.runs) + (profile.runs == 1 ? " run" : " runs");
  if (profile.warmup > 0) title += " (" + std::to_string(profile.warmup) + " dropped as warm-up)";
  return title;
}

[[nodiscard]] inline std::vector<StatsRow> stats_rows(const Profile& profile) {
  const Microseconds nodes = profile.total_time();
  std::vector<StatsRow> rows{{"nodes", format_time(nodes), "sum of their times"}};
  if (!profile.run_times.empty()) {
    const Microseconds run = aggregate(profile.run_times, profile.aggregate);
    rows.push_back({"run", format_time(run), "wall time"});
    rows.push_back(overhead_row(nodes, run));
  }
  if (profile.isolated_ops > 0) {
    std::string meaning = "sum where each of " + std::to_string(profile.isolated_ops) +
                          " distinct ops is measured on its own";
    if (profile.isolated_failed > 0)
      meaning += ", " + std::to_string(profile.isolated_failed) + " of them only while capturing";
    rows.push_back({"isolated", format_time(profile.isolated_time), meaning});
  }
  if (profile.peak > Bytes{0}) {
    rows.push_back({"base", format_bytes(profile.base), "held when the runs started"});
    rows.push_back({"peak", format_bytes(profile.peak), "held at most"});
  }
  if (profile.bandwidth_out > 0)
    rows.push_back({"out", format_rate(profile.bandwidth_out), "moving storages out of memory"});
  if (profile.bandwidth_in > 0)
    rows.push_back({"in", format_rate(profile.bandwidth_in), "bringing them back"});
  return rows;
}

/// The longest first; equally long ones in the graph's order.
[[nodiscard]] inline std::vector<std::size_t> most_expensive_nodes(const Profile& profile,
                                                                   std::size_t count) {
  std::vector<std::size_t> order(profile.nodes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t n) { return profile.nodes[n].time; });
  order.resize(std::min(count, order.size()));
  return order;
}

/// All columns are right-aligned except the last, which is text.
inline void print_table(std::ostream& out, const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size() - 1, 0);
  for (const auto& cells : lines)
    for (std::size_t c = 0; c < widths.size(); ++c)
      widths[c] = std::max(widths[c], cells[c].size());
  for (const auto& cells : lines) {
    for (std::size_t c = 0; c < widths.size(); ++c) out << "  " + at_right(cells[c], widths[c]);
    out << "  " + cells.back() + '\n';
  }
}

inline void print_stats(std::ostream& out, const Profile& profile, std::size_t expensive = 10) {
  out << stats_title(profile) + "\n\n";
  for (const StatsRow& row : stats_rows(profile))
    out << "  " + at_left(row.label, 8) + "  " + at_right(row.value, 12) + "   " + row.meaning +
               '\n';

  const Microseconds total = profile.total_time();
  const bool memory = profile.peak > Bytes{0};
  std::vector<std::vector<std::string>> lines{{"node", "time", "share"}};
  if (memory) lines[0].emplace_back("peak");
  lines[0].emplace_back("name");
  for (const std::size_t i : most_expensive_nodes(profile, expensive)) {
    const Node& node = profile.graph.node(NodeId{i});
    const Microseconds time = profile.nodes[i].time;
    lines.push_back(
        {std::to_string(node.id), format_time(time), format_percent(time.count, total.count)});
    if (memory) lines.back().push_back(format_bytes(profile.nodes[i].memory.peak));
    lines.back().push_back(node.name);
  }
  out << "\nThe most expensive nodes\n\n";
  print_table(out, lines);
}

}  // namespace reprise::profiling

namespace reprise {
using profiling::print_stats;
}  // namespace reprise
