#pragma once
// ProfilePlots draws the pictures of a profile, each a self-contained SVG.
//
// ```cpp
// const ProfilePlots plots{profile, metrics};
// file << plots.live_memory(4_GiB);   // memory over the step by role, with the budget as a line
// write_plot_files("out", "bs16_", plots);   // all of them
// ```
//
//   node_runtime        the time of every node, by rank
//   node_memory         the live bytes while every node runs
//   activation_size     every activation, in the order of creation
//   inactive_time       the time of each activation between its forward and its backward use
//   live_memory         memory over the step, stacked by role
//   peak_breakdown      the live bytes at the peak, as one bar
//
//   write_plot_files("out", "bs16_", plots)       all of them

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/analysis.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/report/palette.hpp>
#include <reprise/report/svg.hpp>

namespace reprise::reporting {

[[nodiscard]] constexpr std::string_view color_of(Phase phase) {
  constexpr std::string_view colors[] = {"#3a86ff", "#8f5bd6", "#06a77d"};
  return colors[static_cast<std::size_t>(phase)];
}

/// The roles in the order in which they are stacked, the longest-lived at the bottom; the workspace
/// comes last.
inline constexpr std::array<Role, role_count> stacking_order = {
    Role::parameter, Role::buffer,     Role::optimizer_state, Role::input,
    Role::constant,  Role::activation, Role::gradient,        Role::other};

/// "2 nodes", "1 node".
[[nodiscard]] inline std::string counted(std::size_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

struct BreakdownPart {
  std::string name{}, color{};
  Bytes bytes{};
};

/// One bar over the whole width, its parts below with their sizes and shares.
[[nodiscard]] inline std::string breakdown_svg(std::string_view title, std::string_view subtitle,
                                               const std::vector<BreakdownPart>& parts) {
  constexpr double width = 1200, left = 16, bar_width = width - 2 * left, line = 22;
  constexpr std::size_t columns = 3;
  const std::size_t lines = (parts.size() + columns - 1) / columns;
  std::string out = svg_begin(width, 120 + line * static_cast<double>(lines), title, subtitle);
  Bytes sum;
  for (const BreakdownPart& p : parts) sum += p.bytes;
  double x = left;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double share = static_cast<double>(parts[i].bytes.count) / static_cast<double>(sum.count);
    const std::string text = parts[i].name + " " + format_bytes(parts[i].bytes) + ", " +
                             short_number(share * 100, 1) + " %";
    out += "<rect x=\"" + short_number(x, 1) + "\" y=\"60\" width=\"" +
           short_number(share * bar_width, 1) + "\" height=\"34\" fill=\"" + parts[i].color +
           "\"><title>" + markup_text(text) + "</title></rect>\n";
    x += share * bar_width;
    const double legend_x = left + bar_width / columns * static_cast<double>(i % columns);
    const std::size_t row = i / columns;
    const double legend_y = 120 + line * static_cast<double>(row);
    out += "<rect x=\"" + short_number(legend_x, 1) + "\" y=\"" + short_number(legend_y - 11, 1) +
           "\" width=\"12\" height=\"12\" rx=\"2\" fill=\"" + parts[i].color + "\"/><text x=\"" +
           short_number(legend_x + 18, 1) + "\" y=\"" + short_number(legend_y, 1) + "\">" +
           markup_text(text) + "</text>\n";
  }
  return out + "</svg>\n";
}

class ProfilePlots {
 public:
  /// Both must outlive the plots. Throws Errc::bad_schedule if the graph's own order cannot be run.
  ProfilePlots(const Profile& profile, const std::vector<ActivationMetrics>& metrics)
      : profile_(profile),
        metrics_(metrics),
        memory_(analyse_memory(profile.graph)),
        by_role_(bytes_by_role(profile.graph, own_order(profile.graph))) {}

  [[nodiscard]] const MemoryAnalysis& memory() const { return memory_; }
  /// Bytes while a node runs, by role.
  [[nodiscard]] const std::vector<std::array<Bytes, role_count>>& by_role() const {
    return by_role_;
  }

  [[nodiscard]] std::string node_runtime() const {
    std::vector<double> times;
    for (const Node& n : graph().nodes()) times.push_back(n.time.count);
    std::string subtitle = format_time(memory_.time) + " in " + counted(times.size(), "node");
    if (largest(times) > 0)
      subtitle += "; the longest, " + node_name(place_of_largest(times)) + ", takes " +
                  format_time({largest(times)});
    Chart chart =
        node_chart("Node runtime", std::move(subtitle), AxisUnit::microseconds, largest(times));
    chart.columns(times, phase_colors());
    return chart.svg();
  }

  [[nodiscard]] std::string node_memory() const {
    std::vector<double> bytes;
    for (Bytes b : memory_.live_during) bytes.push_back(static_cast<double>(b.count));
    Chart chart = node_chart("Memory while each node runs",
                             "peak " + format_bytes(memory_.peak) + peak_place(), AxisUnit::bytes,
                             largest(bytes));
    chart.columns(bytes, phase_colors());
    return chart.svg();
  }

  [[nodiscard]] std::string activation_size() const {
    std::vector<double> bytes;
    Bytes sum;
    for (const ActivationMetrics& m : metrics_) {
      bytes.push_back(static_cast<double>(m.use.bytes.count));
      sum += m.use.bytes;
    }
    std::string subtitle = format_bytes(sum) + " in " + counted(bytes.size(), "activation");
    if (sum > Bytes{0})
      subtitle += "; the largest, " + activation_name(place_of_largest(bytes)) + ", has " +
                  format_bytes(metrics_[place_of_largest(bytes)].use.bytes);
    return activation_chart("Activation size", std::move(subtitle), AxisUnit::bytes, bytes);
  }

  [[nodiscard]] std::string inactive_time() const {
    std::vector<double> times;
    for (const ActivationMetrics& m : metrics_) times.push_back(m.inactive_time.count);
    std::string subtitle = "from the last forward use of an activation to its first backward use";
    if (largest(times) > 0)
      subtitle += "; the longest, of " + activation_name(place_of_largest(times)) + ", is " +
                  format_time({largest(times)});
    return activation_chart("Inactive time", std::move(subtitle), AxisUnit::microseconds, times);
  }

  /// `budget` is drawn as a line if it is given.
  [[nodiscard]] std::string live_memory(std::optional<Bytes> budget = {}) const {
    std::vector<std::vector<double>> series;
    std::vector<std::string_view> colors;
    std::vector<LegendEntry> legend;
    for_each_layer([&](std::string_view name, std::string_view color, const auto& bytes_at) {
      std::vector<double>& layer = series.emplace_back();
      for (std::size_t i = 0; i < by_role_.size(); ++i)
        layer.push_back(static_cast<double>(bytes_at(i).count));
      if (largest(layer) == 0) {
        series.pop_back();
        return;
      }
      colors.push_back(color);
      legend.push_back({std::string(color), std::string(name)});
    });
    const double top = static_cast<double>(std::max(memory_.peak, budget.value_or(Bytes{})).count);
    Chart chart = node_chart("Live memory", "peak " + format_bytes(memory_.peak) + peak_place(),
                             AxisUnit::bytes, top, false);
    chart.stacked_steps(series, colors);
    chart.legend(std::move(legend));
    if (budget)
      chart.horizontal(static_cast<double>(budget->count), "budget " + format_bytes(*budget));
    return chart.svg();
  }

  [[nodiscard]] std::string peak_breakdown() const {
    std::vector<BreakdownPart> parts;
    for_each_layer([&](std::string_view name, std::string_view color, const auto& bytes_at) {
      const Bytes bytes = memory_.peak_node.valid() ? bytes_at(memory_.peak_node.index) : Bytes{};
      if (bytes > Bytes{0}) parts.push_back({std::string(name), std::string(color), bytes});
    });
    return breakdown_svg("What stands at the peak", format_bytes(memory_.peak) + peak_place(),
                         parts);
  }

 private:
  [[nodiscard]] const StepGraph& graph() const { return profile_.graph; }

  [[nodiscard]] static double largest(const std::vector<double>& values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  }
  [[nodiscard]] static std::size_t place_of_largest(const std::vector<double>& values) {
    return static_cast<std::size_t>(std::max_element(values.begin(), values.end()) -
                                    values.begin());
  }
  [[nodiscard]] std::string node_name(std::size_t i) const {
    const Node& n = graph().node(NodeId{i});
    return n.name.empty() ? "node " + std::to_string(n.id) : shortened(n.name, 48);
  }
  [[nodiscard]] std::string activation_name(std::size_t i) const {
    const Value& v = graph().value(metrics_[i].use.value);
    return v.name.empty() ? "value " + std::to_string(v.id) : shortened(v.name, 48);
  }
  [[nodiscard]] std::string peak_place() const {
    return memory_.peak_node.valid() ? " at " + node_name(memory_.peak_node.index) : "";
  }

  [[nodiscard]] std::vector<std::string_view> phase_colors() const {
    std::vector<std::string_view> colors;
    for (const Node& n : graph().nodes()) colors.push_back(color_of(n.phase));
    if (colors.empty()) colors.push_back(color_of(Phase::forward));
    return colors;
  }

  // A chart over the ranks of nodes, with a mark at the begin of backward.
  [[nodiscard]] Chart node_chart(std::string title, std::string subtitle, AxisUnit unit,
                                 double y_max, bool phase_legend = true) const {
    Chart chart{{.title = std::move(title),
                 .subtitle = std::move(subtitle),
                 .x_label = "node, by rank",
                 .unit = unit},
                {.x_max = static_cast<double>(graph().node_count()), .y_max = y_max}};
    if (const NodeId n = first_backward_node(graph()); n.valid())
      chart.vertical(n.index, "backward");
    std::vector<LegendEntry> legend;
    for (Phase phase : {Phase::forward, Phase::backward, Phase::optimizer}) {
      const auto has_phase = [&](const Node& n) { return n.phase == phase; };
      if (std::any_of(graph().nodes().begin(), graph().nodes().end(), has_phase))
        legend.push_back({std::string(color_of(phase)), std::string(to_string(phase))});
    }
    if (phase_legend) chart.legend(std::move(legend));
    return chart;
  }

  // A chart over activations in the order of creation.
  [[nodiscard]] static std::string activation_chart(std::string title, std::string subtitle,
                                                    AxisUnit unit,
                                                    const std::vector<double>& values) {
    Chart chart{{.title = std::move(title),
                 .subtitle = std::move(subtitle),
                 .x_label = "activation, in the order of creation",
                 .unit = unit},
                {.x_max = static_cast<double>(values.size()), .y_max = largest(values)}};
    chart.columns(values, {color_of(Role::activation)});
    return chart.svg();
  }

  // Visits what is stacked: each role, and the workspace. `visit` gets a name, a colour, and a
  // function from rank to bytes.
  template <class Visit>
  void for_each_layer(const Visit& visit) const {
    for (Role role : stacking_order)
      visit(to_string(role), color_of(role),
            [&, role](std::size_t i) { return by_role_[i][static_cast<std::size_t>(role)]; });
    visit(std::string_view("workspace"), workspace_color,
          [&](std::size_t i) { return graph().node(NodeId{i}).workspace; });
  }

  const Profile& profile_;
  const std::vector<ActivationMetrics>& metrics_;
  MemoryAnalysis memory_;
  std::vector<std::array<Bytes, role_count>> by_role_;
};

/// Writes all plots into a folder, and makes the folder if it does not exist. Throws Errc::io.
inline void write_plot_files(const std::filesystem::path& folder, const std::string& prefix,
                             const ProfilePlots& plots, std::optional<Bytes> budget = {}) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const auto write = [&](const char* name, const std::string& svg) {
    const std::string path = (folder / (prefix + name)).string();
    std::ofstream out{path, std::ios::binary};
    if (!(out << svg << std::flush)) throw Error(Errc::io, path + ": could not be written");
  };
  write("node_runtime.svg", plots.node_runtime());
  write("node_memory.svg", plots.node_memory());
  write("activation_size.svg", plots.activation_size());
  write("inactive_time.svg", plots.inactive_time());
  write("live_memory.svg", plots.live_memory(budget));
  write("peak_breakdown.svg", plots.peak_breakdown());
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::ProfilePlots;
using reporting::write_plot_files;
}  // namespace reprise
