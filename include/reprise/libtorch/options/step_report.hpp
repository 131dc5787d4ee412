#pragma once
// StepPage writes a page about a step: its profile, memory before and after, recomputed ops, and
// extra time by budget.
//
//   step.report("step.html");                                               of a TrainStep or a MemoryBudget
//   StepPage::write("step.html", graph, plan, request, 6, summary);         with a frontier of six budgets
//
// The fronts do not include this header: few programs write pages, and what draws them takes long
// to compile.

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/libtorch/options/reports.hpp>
#include <reprise/plan/frontier.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/profile.hpp>
#include <reprise/report/html.hpp>
#include <reprise/report/markup.hpp>
#include <reprise/report/pictures.hpp>

namespace reprise::options {

/// The plan's part of the page: both memory curves, a table of recomputed ops, and the frontier if
/// there is one.
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
      "<h3>Recomputed</h3>\n<table><thead><tr><th>node</th><th>name</th><th>op</th><th>times</"
      "th><th>extra "
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

/// What the fronts' report() calls.
struct StepPage {
  /// The page in a file, whole or not at all, with a frontier of `points` budgets (0: without).
  /// Throws Errc::io where it cannot be written.
  static void write(const std::filesystem::path& file, const StepGraph& graph, const Plan& plan,
                    PlanRequest request, std::size_t points, const std::string& summary) {
    request.effort = std::min(request.effort, 0.3);
    const std::vector<Plan> curve =
        points > 0 ? frontier(graph, request, points) : std::vector<Plan>{};
    write_file_atomically(file.string(), step_report(graph, plan, curve, summary));
  }
};

}  // namespace reprise::options
