#pragma once
// frontier() plans a series of budgets: time against budget, from the graph's own order down to the
// smallest peak that is found.
//
// ```cpp
// std::vector<Plan> curve = frontier(graph, {.keep_order = true}, 12);
// write_frontier_svg(std::cout, graph, curve);
// ```
//
//   budget  100 %  85 %  71 %  56 %  …          extra time  0 %  0.4 %  1.3 %  4.9 %  …
//
// A plan for a smaller budget also fits a larger one, so the curve is made monotone: no point is
// slower than its left neighbour.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <vector>

#include <reprise/plan/planner.hpp>

namespace reprise::planning {

/// The largest budget first. `points` budgets between the floor and the baseline peak; budgets
/// without a plan are left out.
template <class Cost = MeasuredCost, class Policy = Anneal>
[[nodiscard]] std::vector<Plan> frontier(const StepGraph& graph, PlanRequest request,
                                         std::size_t points = 12,
                                         const Planner<Cost, Policy>& planner = {}) {
  const Simulation baseline = simulate(graph, own_order(graph));
  if (!baseline.valid)
    throw Error(Errc::bad_graph,
                "nodes: the graph's own order cannot be run: " + baseline.violation->message);
  const Bytes floor = floor_bytes(graph);
  std::vector<Plan> curve;
  for (std::size_t i = 0; i < points; ++i) {
    const double share =
        points > 1 ? static_cast<double>(points - 1 - i) / static_cast<double>(points - 1) : 1;
    request.budget = {floor.count +
                      static_cast<std::int64_t>(std::ceil(
                          share * static_cast<double>(baseline.peak.count - floor.count)))};
    if (request.budget <= Bytes{0}) break;
    if (!curve.empty() && curve.back().budget == request.budget) break;
    Plan plan = planner.plan(graph, request);
    if (!plan.within_budget()) break;
    curve.push_back(std::move(plan));
  }
  for (std::size_t i = curve.size(); i > 1; --i) {
    const Plan& right = curve[i - 1];
    Plan& left = curve[i - 2];
    if (right.time >= left.time) continue;
    const Bytes budget = left.budget;
    left = right;
    left.budget = budget;
  }
  return curve;
}

inline std::string svg_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

/// Extra time (per cent) over peak (per cent of the baseline's), as one SVG picture.
inline void write_frontier_svg(std::ostream& out, const StepGraph& graph,
                               std::span<const Plan> curve) {
  constexpr double width = 640, height = 400, left = 60, right = 20, top = 40, bottom = 50;
  double most = 1;
  for (const Plan& p : curve) most = std::max(most, 100 * p.overhead());
  const auto x = [&](const Plan& p) {
    return left + (width - left - right) * static_cast<double>(p.budget.count) /
                      static_cast<double>(std::max<std::int64_t>(1, p.baseline_peak.count));
  };
  const auto y = [&](double percent) {
    return height - bottom - (height - top - bottom) * percent / most;
  };
  char text[256];
  const auto print = [&](const char* format, auto... values) {
    std::snprintf(text, sizeof text, format, values...);
    out << text;
  };
  print(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n",
      width, height);
  out << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"60\" y=\"20\">"
      << svg_text(graph.name()) << ": extra time against budget</text>\n";
  for (int i = 0; i <= 4; ++i) {
    const double px = left + (width - left - right) * i / 4, py = y(most * i / 4);
    print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", px, top, px,
          height - bottom);
    print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", left, py,
          width - right, py);
    print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d %%</text>\n", px,
          height - bottom + 18, 25 * i);
    print("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.1f %%</text>\n", left - 6, py + 4,
          most * i / 4);
  }
  print(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">budget, share of the baseline's "
      "peak</text>\n",
      (left + width - right) / 2, height - 12);
  out << "<polyline fill=\"none\" stroke=\"#0b62a4\" stroke-width=\"2\" points=\"";
  for (const Plan& p : curve) print("%.1f,%.1f ", x(p), y(100 * p.overhead()));
  out << "\"/>\n";
  for (const Plan& p : curve)
    print("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"#0b62a4\"/>\n", x(p),
          y(100 * p.overhead()));
  out << "</svg>\n";
}

}  // namespace reprise::planning

namespace reprise {
using planning::frontier;
using planning::write_frontier_svg;
}  // namespace reprise
