#pragma once
// Charts of one model at several batch sizes: the memory of each, over the step and at its peak.
//
// ```cpp
// std::vector<BatchMemory> sizes = {batch_memory(4, graph_of_4), batch_memory(8, graph_of_8)};
// file << batch_peaks_svg(sizes, 8_GiB);    // a bar for each size, a line for 8 GiB
// file << batch_curves_svg(sizes, 8_GiB);   // memory over the step, a curve for each
// file << batch_stacks_svg(sizes, 8_GiB);   // the peak by role
// ```
//
// Estimated values are drawn pale, and the chart says so.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/graph/analysis.hpp>
#include <reprise/report/palette.hpp>
#include <reprise/report/svg.hpp>

namespace reprise::reporting {

struct BatchMemory {
  std::int64_t batch = 0;
  Bytes peak{};
  std::array<Bytes, role_count> by_role{};  ///< at the peak
  Bytes workspace{};                        ///< at the peak
  /// while each node runs; may be empty if the peak was estimated
  std::vector<Bytes> live{};
  bool estimated = false;
};

/// The simulator's numbers for the graph of one batch size.
[[nodiscard]] inline BatchMemory batch_memory(std::int64_t batch, const StepGraph& graph) {
  MemoryAnalysis m = analyse_memory(graph);
  return {.batch = batch,
          .peak = m.peak,
          .by_role = m.peak_by_role,
          .workspace = m.peak_workspace,
          .live = std::move(m.live_during)};
}

// The roles with a colour of their own; the rest is "other".
inline constexpr std::array batch_roles = {Role::parameter, Role::optimizer_state, Role::gradient,
                                           Role::activation};

// Space between bars in a chart with one place per batch size.
inline constexpr double bar_margin = 0.2;

[[nodiscard]] inline Chart batch_chart(std::string title, const std::vector<BatchMemory>& batches,
                                       std::optional<Bytes> cap) {
  Bytes most = cap.value_or(Bytes{});
  for (const BatchMemory& b : batches) most = std::max(most, b.peak);
  Chart chart{
      {.title = std::move(title), .subtitle = "", .x_label = "batch size", .unit = AxisUnit::bytes},
      {.x_max = static_cast<double>(batches.size()),
       .y_max = static_cast<double>(most.count) * 1.05}};
  if (cap) chart.horizontal(static_cast<double>(cap->count), "limit " + format_bytes(*cap));
  std::vector<std::string> names;
  names.reserve(batches.size());
  for (const BatchMemory& b : batches)
    names.push_back(std::to_string(b.batch) + (b.estimated ? " (estimated)" : ""));
  chart.categories(std::move(names));
  return chart;
}

[[nodiscard]] inline std::string tone(std::string_view color, const BatchMemory& b) {
  return std::string(color) + (b.estimated ? "99" : "");
}

[[nodiscard]] inline std::string batch_peaks_svg(const std::vector<BatchMemory>& batches,
                                                 std::optional<Bytes> cap = {}) {
  Chart chart = batch_chart("Peak memory by batch size", batches, cap);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const BatchMemory& b = batches[i];
    const bool fits = !cap || b.peak <= *cap;
    const auto x = static_cast<double>(i), y = static_cast<double>(b.peak.count);
    chart.box(x + bar_margin, x + 1 - bar_margin, 0, y, tone(fits ? "#4e79a7" : "#e15759", b),
              "batch " + std::to_string(b.batch) + ": " + format_bytes(b.peak));
    chart.label(x + 0.5, y, format_bytes(b.peak));
  }
  if (cap) chart.legend({{"#4e79a7", "fits"}, {"#e15759", "does not fit"}});
  return chart.svg();
}

[[nodiscard]] inline std::string batch_stacks_svg(const std::vector<BatchMemory>& batches,
                                                  std::optional<Bytes> cap = {}) {
  constexpr std::string_view other_color = "#8a8d91";
  Chart chart = batch_chart("Peak memory by batch size and role", batches, cap);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const BatchMemory& b = batches[i];
    Bytes below{};
    const auto stack = [&](std::string_view name, std::string_view color, Bytes bytes) {
      const auto x = static_cast<double>(i);
      if (bytes > Bytes{0})
        chart.box(x + bar_margin, x + 1 - bar_margin, static_cast<double>(below.count),
                  static_cast<double>((below + bytes).count), tone(color, b),
                  "batch " + std::to_string(b.batch) + ", " + std::string(name) + ": " +
                      format_bytes(bytes));
      below += bytes;
    };
    for (Role role : batch_roles)
      stack(to_string(role), color_of(role), b.by_role[static_cast<std::size_t>(role)]);
    stack("other", other_color, b.peak - below);
    chart.label(static_cast<double>(i) + 0.5, static_cast<double>(b.peak.count),
                format_bytes(b.peak));
  }
  std::vector<LegendEntry> legend;
  legend.reserve(batch_roles.size() + 1);
  for (Role role : batch_roles)
    legend.push_back({std::string(color_of(role)), std::string(to_string(role))});
  legend.push_back({std::string(other_color), "other"});
  chart.legend(std::move(legend));
  return chart.svg();
}

[[nodiscard]] inline std::string batch_curves_svg(const std::vector<BatchMemory>& batches,
                                                  std::optional<Bytes> cap = {}) {
  constexpr std::array<std::string_view, 8> colors = {"#4e79a7", "#f28e2b", "#59a14f", "#e15759",
                                                      "#b07aa1", "#76b7b2", "#9c755f", "#8a8d91"};
  Bytes most = cap.value_or(Bytes{});
  for (const BatchMemory& b : batches) most = std::max(most, b.peak);
  Chart chart{{.title = "Memory over the step by batch size",
               .subtitle = "",
               .x_label = "share of the step's nodes, in %",
               .unit = AxisUnit::bytes},
              {.x_max = 100, .y_max = static_cast<double>(most.count) * 1.05}};
  std::vector<LegendEntry> legend;
  std::vector<double> values;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    values.clear();
    for (Bytes b : batches[i].live) values.push_back(static_cast<double>(b.count));
    if (values.empty()) continue;
    chart.curve(values, colors[i % colors.size()]);
    legend.push_back(
        {std::string(colors[i % colors.size()]), "batch " + std::to_string(batches[i].batch) +
                                                     (batches[i].estimated ? " (estimated)" : "")});
  }
  chart.legend(std::move(legend));
  if (cap) chart.horizontal(static_cast<double>(cap->count), "limit " + format_bytes(*cap));
  return chart.svg();
}

}  // namespace reprise::reporting
