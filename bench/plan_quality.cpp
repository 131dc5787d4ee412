// How good the plans are: one table in one run, all strategies side by side, with seeds.
//
//   plan_quality                              small graphs against the exhaustive optimum, layered graphs, generated training graphs
//   plan_quality a.json b.json                graph files instead (inspect_step writes them)
//   plan_quality --small 2000                 so many small random graphs
//   plan_quality --speed --svg FILE           planning time against nodes, with the fitted exponent, and a picture
//
// Budgets of training graphs: F + q (E - F) with F the floor and E the baseline's peak, and shares
// of E. Published averages that the last lines compare with: +7 % at half and +18 % at a quarter of
// the baseline's peak, geometric means.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <reprise/graph/json.hpp>
#include <reprise/pack/assign_offsets.hpp>
#include <reprise/plan/buffers_of.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise_test/random_graphs.hpp>

#include "support/cli.hpp"

namespace {

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::planning;
using namespace reprise::replaying;
using namespace reprise::testing;

constexpr std::string_view compared[] = {"mu-two", "mu-two-exact", "min-cut", "chain-dp", "anneal"};

// Processor seconds instead of the clock's: whatever else the machine does counts little.
Plan timed(std::string_view strategy, const StepGraph& graph, const PlanRequest& request) {
  const std::clock_t begin = std::clock();
  Plan plan = plan_with(strategy, graph, request);
  plan.seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  return plan;
}

std::string cell(const Plan& plan) {
  char text[40];
  if (plan.within_budget())
    std::snprintf(text, sizeof text, "%+.2f%% %.2fs", 100 * plan.overhead(), plan.seconds);
  else
    std::snprintf(
        text, sizeof text, "- (%.0f%%)",
        100 * static_cast<double>(plan.peak.count) / static_cast<double>(plan.baseline_peak.count));
  return text;
}

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double overhead) {
    sum += std::log1p(overhead);
    ++count;
  }
  [[nodiscard]] double percent() const { return count > 0 ? 100 * std::expm1(sum / count) : 0; }
};

// The four cases of a small graph: budgets from the least feasible peak to three quarters of the
// way to the baseline, with optima.
struct SmallCase {
  PlanRequest request{};
  double best = 0;
  bool several = false;  // two or more recomputations
};

std::vector<SmallCase> small_cases(const StepGraph& graph, bool keep) {
  const Simulation own = simulate(graph, own_order(graph));
  if (!own.valid) return {};
  const auto least =
      least_feasible_peak(graph, {.keep_order = keep}, floor_bytes(graph), own.peak, 100'000);
  if (!least || *least == own.peak) return {};
  std::vector<SmallCase> cases;
  for (int part = 0; part < 4; ++part) {
    PlanRequest request{.budget = {least->count + (own.peak.count - least->count) * part / 4},
                        .keep_order = keep};
    const auto exact = Exhaustive{}.search(graph, request);
    if (exact.verdict != Exhaustive::Verdict::optimal) return {};
    cases.push_back({request, total_time(graph, exact.schedule).count,
                     recomputations(graph, exact.schedule) >= 2});
  }
  return cases;
}

// Graphs in which fewer than two of the four cases need two recomputations are passed over: at
// least half of all cases then do.
void small_graphs(std::int64_t graphs) {
  int cases = 0, optimal = 0, feasible = 0, alone = 0, alone_feasible = 0, several = 0;
  for (std::uint64_t seed = 1; graphs > 0; ++seed) {
    Rng rng{seed};
    const StepGraph graph = random_graph(
        rng,
        {.nodes = 6 + rng.below(7), .views = 0.15, .overwrites = 0.15, .unrecomputable = 0.03});
    const auto list = small_cases(graph, seed % 2 == 0);
    if (std::count_if(list.begin(), list.end(), [](const SmallCase& c) { return c.several; }) < 2)
      continue;
    --graphs;
    for (const SmallCase& c : list) {
      PlanRequest request = c.request;
      const double best = c.best;
      ++cases;
      several += c.several ? 1 : 0;
      const Plan plan = plan_with("anneal", graph, request);
      feasible += plan.within_budget() ? 1 : 0;
      optimal += plan.within_budget() && plan.time.count <= best * (1 + 1e-9) ? 1 : 0;
      request.effort = 0.05;
      const Plan search =
          Planner<MeasuredCost, Anneal>{Anneal{Anneal::Options{.exact_states = 0}}}.plan(graph,
                                                                                         request);
      alone_feasible += search.within_budget() ? 1 : 0;
      alone += search.within_budget() && search.time.count <= best * (1 + 1e-9) ? 1 : 0;
    }
  }
  std::printf("small graphs: %d cases, %d need two or more recomputations\n", cases, several);
  std::printf("  anneal                      feasible %.2f %%  optimal %.2f %%\n",
              100.0 * feasible / cases, 100.0 * optimal / cases);
  std::printf("  anneal without exact search feasible %.2f %%  optimal %.2f %%\n\n",
              100.0 * alone_feasible / cases, 100.0 * alone / cases);
}

void layered_graphs() {
  std::printf("layered graphs, seed 1 to 3 of each size: extra time, anneal\n%8s %6s %22s %22s\n",
              "nodes", "budget", "order kept", "reordered");
  for (double percent : {90.0, 80.0, 70.0}) {
    Mean kept, free;
    for (std::size_t nodes : {100u, 250u, 500u, 1000u})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Rng rng{seed};
        const StepGraph graph = layered_graph(rng, {.nodes = nodes});
        PlanRequest request{
            .budget = Size{{}, percent, true}.resolve(simulate(graph, own_order(graph)).peak),
            .keep_order = true};
        const Plan a = timed("anneal", graph, request);
        request.keep_order = false;
        const Plan b = timed("anneal", graph, request);
        std::printf("%8zu %5.0f%% %22s %22s\n", nodes, percent, cell(a).c_str(), cell(b).c_str());
        if (a.within_budget()) kept.add(a.overhead());
        if (b.within_budget()) free.add(b.overhead());
      }
    std::printf("%8s %5.0f%% %21.2f%% %21.2f%%\n", "mean", percent, kept.percent(), free.percent());
  }
  std::printf("\n");
}

struct NamedGraph {
  std::string name;
  StepGraph graph;
};

void training_graphs(const std::vector<NamedGraph>& graphs) {
  std::printf("%-24s %9s %9s", "graph", "budget", "floor");
  for (std::string_view name : compared) std::printf(" %18s", std::string(name).c_str());
  std::printf(" %18s %8s\n", "anneal, reordered", "arena");
  Mean half, quarter;
  Mean shared[4], against[4];
  int worse = 0;
  for (const auto& [name, graph] : graphs) {
    const Bytes peak = simulate(graph, own_order(graph)).peak, floor = floor_bytes(graph);
    const auto row = [&, &label = name, &graph = graph](const std::string& what, Bytes budget) {
      std::printf("%-24s %9s %8.1f%%", label.substr(0, 24).c_str(), what.c_str(),
                  100 * static_cast<double>(floor.count) / static_cast<double>(peak.count));
      Plan best;
      std::vector<Plan> others;
      for (std::string_view strategy : compared) {
        best = timed(strategy, graph, {.budget = budget, .keep_order = true});
        others.push_back(best);
        std::printf(" %18s", cell(best).c_str());
      }
      others.pop_back();
      for (std::size_t k = 0; k < others.size(); ++k) {
        if (!others[k].within_budget()) continue;
        shared[k].add(others[k].overhead());
        against[k].add(best.overhead());
        worse +=
            best.within_budget() && best.time.count <= others[k].time.count * (1 + 1e-9) ? 0 : 1;
      }
      const Plan free = timed("anneal", graph, {.budget = budget});
      const auto arena =
          assign_offsets(buffers_of(resolve(graph, best.schedule)), {.alignment = Bytes{64}});
      std::printf(" %18s %8.4f\n", cell(free).c_str(), arena.ratio());
      return best;
    };
    for (int q : {80, 50, 35, 25})
      row("F+" + std::to_string(q) + "%", floor + Bytes{(peak - floor).count * q / 100});
    const Plan at_half = row("50%", Size{{}, 50, true}.resolve(peak)),
               at_quarter = row("25%", Size{{}, 25, true}.resolve(peak));
    if (at_half.within_budget()) half.add(at_half.overhead());
    if (at_quarter.within_budget()) quarter.add(at_quarter.overhead());
  }
  std::printf(
      "geometric mean of anneal with the order kept: "
      "+%.2f %% at 50 %% (%d graphs; published +7 %%), +%.2f %% at 25 %% (%d graphs; published +18 "
      "%%)\n\n",
      half.percent(), half.count, quarter.percent(), quarter.count);
  for (std::size_t k = 0; k < 4; ++k)
    std::printf("where %s fits (%d points): %s +%.2f %%, anneal +%.2f %%\n",
                std::string(compared[k]).c_str(), shared[k].count, std::string(compared[k]).c_str(),
                shared[k].percent(), against[k].percent());
  std::printf("points at which anneal is worse than any of them: %d\n\n", worse);
}

struct SpeedPoint {
  double nodes = 0, seconds = 0;
};

// Slope of a line through the logarithms: the exponent.
double fitted_exponent(const std::vector<SpeedPoint>& points) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  const auto n = static_cast<double>(points.size());
  for (const SpeedPoint& p : points) {
    const double x = std::log(p.nodes), y = std::log(p.seconds);
    sx += x, sy += y, sxx += x * x, sxy += x * y;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

// Both axes by powers of ten, which Chart does not have.
void write_speed_svg(const std::string& file, const std::vector<SpeedPoint>& points,
                     double exponent) {
  std::ofstream out(file);
  const auto x = [](double nodes) { return 60 + 140 * (std::log10(nodes) - 2); };
  const auto y = [](double seconds) { return 240 - 60 * (std::log10(seconds) + 2); };
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"560\" height=\"300\" "
         "font-family=\"sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"560\" height=\"300\" fill=\"white\"/>\n<text x=\"60\" y=\"20\">planning "
         "time (processor seconds) against nodes; "
         "time ~ nodes^"
      << std::round(exponent * 100) / 100 << "</text>\n";
  for (int p = 2; p <= 5; ++p)
    out << "<line x1=\"" << x(std::pow(10, p)) << "\" x2=\"" << x(std::pow(10, p))
        << "\" y1=\"40\" y2=\"250\" stroke=\"#ddd\"/><text x=\"" << x(std::pow(10, p)) - 12
        << "\" y=\"268\">1e" << p << "</text>\n";
  for (int p = -2; p <= 1; ++p)
    out << "<line x1=\"60\" x2=\"500\" y1=\"" << y(std::pow(10, p)) << "\" y2=\""
        << y(std::pow(10, p)) << "\" stroke=\"#ddd\"/><text x=\"14\" y=\"" << y(std::pow(10, p)) + 4
        << "\">1e" << p << " s</text>\n";
  out << "<polyline fill=\"none\" stroke=\"#4e79a7\" stroke-width=\"2\" points=\"";
  for (const SpeedPoint& p : points) out << x(p.nodes) << ',' << y(p.seconds) << ' ';
  out << "\"/>\n</svg>\n";
}

void speed(const std::string& svg) {
  std::printf("%10s %10s %10s\n", "nodes", "seconds", "overhead");
  std::vector<SpeedPoint> points;
  for (std::size_t blocks : {5u, 15u, 48u, 150u, 475u, 1500u, 4750u}) {
    const StepGraph graph = resnet_step({.blocks = blocks});
    const Bytes budget = Size{{}, 50, true}.resolve(simulate(graph, own_order(graph)).peak);
    const Plan plan = timed("anneal", graph, {.budget = budget});
    points.push_back({static_cast<double>(graph.node_count()), plan.seconds});
    std::printf("%10zu %10.3f %+9.2f%%\n", graph.node_count(), points.back().seconds,
                100 * plan.overhead());
    std::fflush(stdout);
  }
  const double exponent = fitted_exponent(points);
  std::printf("time ~ nodes^%.2f\n", exponent);
  if (!svg.empty()) write_speed_svg(svg, points, exponent);
}

int run(int argc, char** argv) {
  std::int64_t small = 200;
  bool only_speed = false;
  std::string svg;
  std::vector<std::string> files;
  std::vector<const char*> rest{argv[0]};
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).ends_with(".json")) files.emplace_back(argv[i]);
    else rest.push_back(argv[i]);
  examples::Flags flags("plan_quality", "Compares strategies; *.json arguments are graph files.");
  flags.add("--small", "N", "small random graphs against the optimum", small);
  flags.add("--speed", "planning time against nodes instead", only_speed);
  flags.add("--svg", "FILE", "with --speed: draw it", svg);
  if (!flags.parse(static_cast<int>(rest.size()), rest.data())) return examples::done;
  if (only_speed) return speed(svg), examples::done;
  std::vector<NamedGraph> graphs;
  for (const std::string& file : files)
    graphs.push_back({std::filesystem::path(file).stem().string(), read_graph_file(file)});
  if (!files.empty()) return training_graphs(graphs), examples::done;
  small_graphs(small);
  layered_graphs();
  graphs.push_back({"generated resnet 16", resnet_step({.blocks = 16})});
  graphs.push_back({"generated resnet 50", resnet_step({.blocks = 50})});
  graphs.push_back({"generated transformer 12", transformer_step({.layers = 12, .batch = 32})});
  graphs.push_back({"chain 100", chain_step(100)});
  training_graphs(graphs);
  return examples::done;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a row at a time, into files and pipes too
  return examples::run("plan_quality", [&] { return run(argc, argv); });
}
