#pragma once
// What a TrainStep did, for people: a few lines, and a page with the profile, both memory curves,
// what is recomputed and the frontier.
//
//   step_summary("resnet50", counters, last)
//     resnet50: 100 steps: 1 captured, 95 replayed, 4 checked, 0 eagerly, 0 by moving out
//     budget 3.1 GiB: peak 2.9 GiB (predicted 2.9 GiB), held 3.1 GiB with an arena of 2.4 GiB; without a budget 5.7 GiB, floor 1.0 GiB
//     the process has grown by 3.2 GiB (resident, at most)
//     120 ops computed again, 6.1 % extra time predicted; planned 2 times

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/options/step_options.hpp>
#include <reprise/plan/frontier.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/report/html.hpp>
#include <reprise/report/markup.hpp>
#include <reprise/report/pictures.hpp>

namespace reprise {

namespace detail {
inline std::string percent_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}
}  // namespace detail

/// `resident`: what the process has grown by, as the system counts it; 0 leaves it out.
[[nodiscard]] inline std::string step_summary(const std::string& name, const StepCounters& counters,
                                              const StepMeasurement& last, Bytes resident = {}) {
  std::ostringstream out;
  out << name << ": "
      << counters.captures + counters.replays + counters.rechecks + counters.eager_runs +
             counters.verified
      << " steps: " << counters.captures << " captured, " << counters.replays << " replayed, "
      << counters.rechecks << " checked, " << counters.eager_runs << " eagerly, "
      << counters.fallbacks << " by moving out\n";
  if (last.budget > Bytes{0}) out << "budget " << format_bytes(last.budget) << ": ";
  out << "peak " << format_bytes(last.peak) << " (predicted " << format_bytes(last.predicted_peak)
      << "), held " << format_bytes(last.reserved_peak);
  if (last.arena > Bytes{0}) out << " with an arena of " << format_bytes(last.arena);
  out << "; without a budget " << format_bytes(last.eager_peak) << ", floor "
      << format_bytes(last.floor) << '\n';
  if (resident > Bytes{0})
    out << "the process has grown by " << format_bytes(resident) << " (resident, at most)\n";
  out << last.recomputed << " ops computed again, "
      << detail::percent_text(last.extra_time_predicted) << " extra time predicted; planned "
      << counters.plans << " times\n";
  if (last.arena_misses > 0)
    out << last.arena_misses << " allocations did not match the arena's plan\n";
  if (counters.verified > 0)
    out << counters.verified << " replays compared with eager, " << counters.differences
        << " not equal\n";
  return out.str();
}

/// The plan's part of the page: both memory curves, a table of what runs again, and the frontier
/// where there is one.
[[nodiscard]] inline std::string plan_section(const StepGraph& graph, const Plan& plan,
                                              const std::vector<Plan>& curve) {
  std::string out =
      "<section aria-labelledby=\"plan\"><h2 id=\"plan\">Plan</h2>\n<div class=\"plot\" "
      "tabindex=\"0\" role=\"group\" "
      "aria-label=\"Memory before and after\">" +
      memory_before_and_after(graph, plan.schedule, plan.budget) + "</div>\n";
  const std::vector<std::uint32_t> counts = run_counts(graph, plan.schedule);
  std::vector<NodeId> again;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 1) again.push_back(NodeId{i});
  const auto cost = [&](NodeId n) {
    return graph.node(n).time.count * static_cast<double>(counts[n.index] - 1);
  };
  std::stable_sort(again.begin(), again.end(),
                   [&](NodeId a, NodeId b) { return cost(a) > cost(b); });
  out +=
      "<h3>Computed "
      "again</h3>\n<table><thead><tr><th>node</th><th>name</th><th>op</th><th>times</th><th>extra "
      "time</th></tr></thead><tbody>\n";
  for (NodeId n : again)
    out += "<tr><td>" + std::to_string(graph.node(n).id) + "</td><td>" +
           markup_text(graph.node(n).name) + "</td><td>" + markup_text(graph.node(n).op) +
           "</td><td>" + std::to_string(counts[n.index] - 1) + "</td><td>" +
           format_time({cost(n)}) + "</td></tr>\n";
  out += "</tbody></table>\n";
  if (!curve.empty()) {
    std::ostringstream svg;
    write_frontier_svg(svg, graph, curve);
    out +=
        "<h3>Frontier</h3>\n<div class=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"Extra "
        "time against budget\">" +
        svg.str() + "</div>\n";
  }
  return out + "</section>\n";
}

/// The whole page.
[[nodiscard]] inline std::string step_report(const StepGraph& graph, const Plan& plan,
                                             const std::vector<Plan>& curve,
                                             const std::string& summary) {
  const Profile profile = unmeasured_profile(graph);
  const std::vector<ActivationMetrics> metrics = activation_metrics(profile);
  HtmlReportOptions options{.note = summary};
  if (plan.budget > Bytes{0}) options.budget = plan.budget;
  std::ostringstream page;
  write_html_report(page, profile, metrics, options);
  std::string text = page.str();
  const std::string main = "<main id=\"main\">\n";
  const auto at = text.find(main);
  text.insert(at == std::string::npos ? text.size() : at + main.size(),
              plan_section(graph, plan, curve));
  return text;
}

/// The page in a file, whole or not at all, with a frontier of `points` budgets (0: without).
/// Throws Errc::io where it cannot be written.
inline void write_step_report(const std::filesystem::path& file, const StepGraph& graph,
                              const Plan& plan, PlanRequest request, std::size_t points,
                              const std::string& summary) {
  request.effort = std::min(request.effort, 0.3);
  const std::vector<Plan> curve =
      points > 0 ? frontier(graph, request, points) : std::vector<Plan>{};
  write_file_atomically(file.string(), step_report(graph, plan, curve, summary));
}

}  // namespace reprise
