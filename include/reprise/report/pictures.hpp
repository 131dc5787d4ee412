#pragma once
// Pictures of before and after: the graph around a recomputation, and the memory of both schedules.
//
// ```cpp
// const Extraction e = extract(graph, schedule);
// write_before_and_after(dot_file, graph, schedule, e.recomputations[0]);  // dot -Tsvg both.dot
// svg_file << memory_before_and_after(graph, schedule, 24000_B);
// ```
//
//   before                                              after
//   (x) ▶ [norm] ▶ [relu] ▶ [flat] ────▶ [grad]         (x) ▶ [norm] ▶ [relu] ▶ [flat]
//                                                        └──▶ [norm#1] ▶ [relu#1] ▶ [flat#1] ▶ [grad]        clones dashed, in orange
//
// Memory is drawn over time, not over occurrences: the width shows the cost of recomputation.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/report/dot.hpp>
#include <reprise/report/palette.hpp>
#include <reprise/report/svg.hpp>
#include <reprise/rewrite/extract.hpp>
#include <reprise/rewrite/names.hpp>

namespace reprise::reporting {

/// The colour of recomputed nodes in both pictures.
inline constexpr std::string_view clone_color = "#d9480f";

// --- The graph around a recomputation ------------------------------------------------------------

/// Some occurrences of a schedule as one cluster of a DOT graph, with the instances that they read
/// from elsewhere.
class OccurrenceCluster {
 public:
  OccurrenceCluster(std::ostream& out, const StepGraph& graph, std::span<const NodeId> schedule,
                    std::string name)
      : out_(out),
        graph_(graph),
        schedule_(schedule),
        name_(std::move(name)),
        resolution_(resolve(graph, schedule)),
        clones_(clone_numbers(graph, schedule)),
        drawn_(schedule.size(), false) {}

  void write(std::span<const std::uint32_t> occurrences) {
    for (std::uint32_t o : occurrences) drawn_[o] = true;
    out_ << "  subgraph cluster_" << name_ << " {\n    label=" << name_
         << "; color=\"#d0d7de\"; style=rounded;\n";
    for (std::uint32_t o : occurrences) write_run(o);
    for (std::uint32_t o : occurrences) write_reads(o);
    out_ << "  }\n";
  }

 private:
  void write_run(std::uint32_t o) {
    const Node& n = graph_.node(schedule_[o]);
    const std::string label =
        name_of(n, clones_[o]) + "\nstep " + std::to_string(o) + ", " + format_time(n.time);
    out_ << "    " << name_ << o << " [label=" << dot_quoted(label);
    if (clones_[o] > 0)
      out_ << ", style=\"rounded,filled,dashed\", color=\"" << clone_color << "\", fillcolor=\""
           << clone_color << "22\", penwidth=2";
    out_ << "];\n";
  }

  void write_reads(std::uint32_t o) {
    std::vector<std::uint32_t> read(resolution_.inputs[o].begin(), resolution_.inputs[o].end());
    for (std::uint32_t i : resolution_.targets[o])
      if (i != no_index && resolution_.values[i].made_by != o) read.push_back(i);
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (std::uint32_t i : read) write_edge(i, o);
  }

  void write_edge(std::uint32_t instance, std::uint32_t reader) {
    const ValueInstance& v = resolution_.values[instance];
    const Value& value = graph_.value(v.value);
    const bool inside = v.made_by != no_index && drawn_[v.made_by];
    const std::string from =
        inside ? name_ + std::to_string(v.made_by) : name_ + "v" + std::to_string(instance);
    if (!inside && std::find(sources_.begin(), sources_.end(), instance) == sources_.end()) {
      sources_.push_back(instance);
      out_ << "    " << from << " [label=" << dot_quoted(name_of(value))
           << ", shape=ellipse, style=filled, fillcolor=\"" << color_of(value.role) << "55\"];\n";
    }
    out_ << "    " << from << " -> " << name_ << reader;
    if (inside)
      out_ << " [label=" << dot_quoted(name_of(value)) << ", color=\"" << color_of(value.role)
           << "\"];\n";
    else out_ << " [color=\"" << color_of(value.role) << "\"];\n";
  }

  std::ostream& out_;
  const StepGraph& graph_;
  std::span<const NodeId> schedule_;
  std::string name_;
  Resolution resolution_;
  std::vector<std::uint32_t> clones_;   // by occurrence
  std::vector<bool> drawn_;             // by occurrence
  std::vector<std::uint32_t> sources_;  // instances drawn as ellipses
};

/// The recomputed nodes, the nodes that need the result and those that read it the first time: once
/// as in the graph, once as in the schedule. Throws Errc::io if the stream fails.
inline void write_before_and_after(std::ostream& out, const StepGraph& graph,
                                   std::span<const NodeId> schedule, const Recomputation& r) {
  std::vector<bool> shown(graph.node_count(), false);
  for (NodeId n : r.nodes) shown[n.index] = true;
  for (NodeId n : graph.readers(r.value)) shown[n.index] = true;
  for (std::uint32_t use : r.uses)
    if (use < schedule.size()) shown[schedule[use].index] = true;
  const std::vector<std::uint32_t> clones = clone_numbers(graph, schedule);
  std::vector<std::uint32_t> before, after;
  for (std::uint32_t i = 0; i < graph.node_count(); ++i)
    if (shown[i]) before.push_back(i);
  for (std::uint32_t o = 0; o < schedule.size(); ++o)
    if (clones[o] == 0 ? shown[schedule[o].index]
                       : std::binary_search(r.occurrences.begin(), r.occurrences.end(), o))
      after.push_back(o);
  out << "digraph " << dot_quoted(name_of(graph.value(r.value)) + " before and after")
      << " {\n  rankdir=TB; fontname=\"sans-serif\";\n"
      << "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=\"sans-serif\", "
         "fontsize=10];\n"
      << "  edge [fontname=\"sans-serif\", fontsize=8];\n";
  const Schedule own = own_order(graph);
  OccurrenceCluster{out, graph, own, "before"}.write(before);
  OccurrenceCluster{out, graph, schedule, "after"}.write(after);
  out << "}\n";
  if (!out.flush())
    throw Error(Errc::io, "the picture could not be written: the stream has failed");
}

// --- The memory of both -------------------------------------------------------------------------

/// The maximum of the live bytes in each of `places` equal parts of the time from 0 to `end`. If
/// all times are 0, parts of the occurrences.
[[nodiscard]] inline std::vector<double> live_over_time(const StepGraph& graph,
                                                        std::span<const NodeId> schedule,
                                                        const Simulation& cost, double end,
                                                        std::size_t places) {
  std::vector<double> most(places, 0);
  const bool timed = cost.time.count > 0;
  const double scale = static_cast<double>(places) / end;
  double now = 0;
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    const double next = now + (timed ? graph.node(schedule[i]).time.count : 1);
    const auto first = std::min(places - 1, static_cast<std::size_t>(now * scale));
    const auto last =
        std::max(first + 1, std::min(places, static_cast<std::size_t>(std::ceil(next * scale))));
    for (std::size_t p = first; p < last; ++p)
      most[p] = std::max(most[p], static_cast<double>(cost.live_during[i].count));
    now = next;
  }
  return most;
}

/// Both peaks, and the cost of the lower one.
[[nodiscard]] inline std::string before_and_after_line(const Simulation& before,
                                                       const Simulation& after, std::size_t again) {
  std::string line = "peak " + format_bytes(before.peak) + " before, " + format_bytes(after.peak) +
                     " after; " + std::to_string(again) + " runs again";
  if (before.time.count > 0)
    line +=
        ", " + short_number(100 * (after.time.count / before.time.count - 1), 1) + " % more time";
  return line;
}

/// An SVG: the graph's own order as an area, the schedule as a line, the budget as a horizontal
/// line. Throws Errc::bad_schedule if one of the two cannot be run.
[[nodiscard]] inline std::string memory_before_and_after(const StepGraph& graph,
                                                         std::span<const NodeId> schedule,
                                                         std::optional<Bytes> budget = {}) {
  constexpr std::string_view before_color = "#b6bcc4";
  const Schedule own = own_order(graph);
  const Simulation before = simulate(graph, own), after = simulate(graph, schedule);
  for (const Simulation* s : {&before, &after})
    if (!s->valid) throw Error(Errc::bad_schedule, s->violation->message);
  const bool timed = after.time.count > 0;
  const double end =
      timed ? after.time.count : static_cast<double>(std::max<std::size_t>(schedule.size(), 1));
  const double unit = !timed || end < 1e3 ? 1 : end < 1e6 ? 1e3 : 1e6;
  const Bytes top = std::max({before.peak, after.peak, budget.value_or(Bytes{0})});
  Chart chart{
      {.title = "Memory before and after: " + (graph.name().empty() ? "the step" : graph.name()),
       .subtitle = before_and_after_line(before, after, recomputations(graph, schedule)),
       .x_label = !timed        ? "step"
                  : unit == 1   ? "time (us)"
                  : unit == 1e3 ? "time (ms)"
                                : "time (s)",
       .unit = AxisUnit::bytes},
      {.x_max = end / unit, .y_max = static_cast<double>(top.count)}};
  constexpr std::size_t places = Chart::room / 2;
  chart.stacked_steps({live_over_time(graph, own, before, end, places)}, {before_color});
  chart.curve(live_over_time(graph, schedule, after, end, places), clone_color);
  if (budget)
    chart.horizontal(static_cast<double>(budget->count), "budget " + format_bytes(*budget));
  chart.legend({{std::string(before_color), "before"}, {std::string(clone_color), "after"}});
  return chart.svg();
}

}  // namespace reprise::reporting
