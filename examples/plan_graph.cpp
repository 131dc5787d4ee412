// Plans a graph file: a schedule that stays inside a memory budget, as a plan file.
//
//   plan_graph step.json --budget 50% --out plan.json
//   plan_graph step.json --check plan.json

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include <reprise/graph/json.hpp>
#include <reprise/plan/decisions.hpp>
#include <reprise/plan/frontier.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/strategies.hpp>
#include <reprise/report/pictures.hpp>

#include "support/cli.hpp"

namespace {

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::planning;
using namespace reprise::replaying;
using namespace reprise::reporting;

struct Options {
  std::string graph, out, strategy = "anneal", check, frontier, csv, dot, json, memory;
  Size budget{};
  double seconds = 0;
  std::uint64_t seed = 1;
  std::int64_t threads = 1;
  bool keep_order = false, best_effort = false, quiet = false;
};

bool parse(Options& o, int argc, char** argv) {
  examples::Flags flags(
      "plan_graph",
      "Finds a schedule of a training step's graph that stays inside a memory budget.");
  flags.positional("GRAPH", "a reprise.graph file", o.graph);
  flags.add("--budget", "SIZE", "80% (of the graph's own peak), 2GiB or bytes", o.budget);
  flags.add("--out", "FILE", "write the plan there", o.out);
  std::vector<std::string> names(strategy_names.begin(), strategy_names.end());
  flags.choose("--strategy", names, "how to search", o.strategy);
  flags.add("--seconds", "S", "stop after so long; 0 for no limit by the clock", o.seconds);
  flags.add("--seed", "N", "same seed, same plan", o.seed);
  flags.add("--threads", "N", "for the portfolio", o.threads, 1, 1024);
  flags.add("--keep-order", "first occurrences stay in the graph's own order", o.keep_order);
  flags.add("--best-effort", "write the best found even where the budget cannot be reached",
            o.best_effort);
  flags.add("--check", "PLAN", "verify a plan file instead of making one", o.check);
  flags.add("--frontier", "FILE", "draw extra time against budget, as SVG", o.frontier);
  flags.add("--csv", "FILE", "write what happens to each activation", o.csv);
  flags.add("--dot", "FILE", "write the graph with what runs again", o.dot);
  flags.add("--memory", "FILE", "draw memory over the step, before and after, as SVG", o.memory);
  flags.add("--json", "FILE", "write the summary as JSON", o.json);
  flags.add("--quiet", "print nothing but errors", o.quiet);
  return flags.parse(argc, argv);
}

int check(const Options& o, const StepGraph& graph) {
  PlanFile file;
  try {
    file = read_plan_file(o.check, graph);
  } catch (const Error& e) {
    if (e.code() != Errc::bad_schedule) throw;
    std::cerr << "plan_graph: " << e.what() << '\n';
    return examples::check_failed;
  }
  const auto untrue = false_claims(graph, file);
  if (!untrue.empty()) {
    std::cerr << "plan_graph: " << o.check << ": " << untrue.front() << '\n';
    return examples::check_failed;
  }
  if (o.quiet) return examples::done;
  const Simulation s = simulate(graph, file.schedule);
  std::cout << o.check << ": valid\n  peak            " << format_bytes(s.peak)
            << "\n  time            " << format_time(s.time) << "\n  recomputations  "
            << recomputations(graph, file.schedule) << '\n';
  if (file.budget)
    std::cout << "  within budget   "
              << (static_cast<double>(s.peak.count) <= *file.budget ? "yes" : "no") << '\n';
  return examples::done;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * share);
  return text;
}

void print_plan(const StepGraph& graph, const Plan& plan) {
  const double share = static_cast<double>(plan.peak.count) /
                       static_cast<double>(std::max<std::int64_t>(1, plan.baseline_peak.count));
  std::cout << "graph           " << (graph.name().empty() ? "-" : graph.name()) << ", "
            << graph.node_count() << " nodes\n"
            << "budget          " << format_bytes(plan.budget) << "  (" << plan.budget.count
            << " bytes)\n"
            << "peak            " << format_bytes(plan.peak) << "  (" << percent(share) << " of "
            << format_bytes(plan.baseline_peak) << ")\n"
            << "least possible  " << format_bytes(plan.floor)
            << "  (outputs or largest single node)\n"
            << "time            " << format_time(plan.time) << "  (+" << percent(plan.overhead())
            << ")" << (plan.optimal ? "  optimal" : "") << '\n'
            << "recomputations  " << recomputations(graph, plan.schedule)
            << (keeps_order(graph, plan.schedule) ? "" : ", reordered") << '\n'
            << "strategy        " << plan.strategy << ", seed " << plan.seed << ", "
            << percent(plan.seconds / 100).substr(0, 4) << " s\n";
  const auto list = decisions(graph, plan.schedule);
  std::size_t shown = 0;
  for (const ActivationDecision& d : list) {
    if (d.decision != Decision::recompute || shown == 8) break;
    if (shown++ == 0) std::cout << "\nrecomputed activations, dearest first\n";
    std::cout << "  " << format_bytes(d.bytes) << "  +" << format_time(d.cost) << "  "
              << activation_name(graph, d.storage) << '\n';
  }
}

std::string dot_text(const StepGraph& graph, const Schedule& schedule) {
  const auto runs = run_counts(graph, schedule);
  std::ostringstream out;
  out << "digraph step {\n  node [shape=box];\n";
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    std::string label = graph.nodes()[i].name.empty() ? graph.nodes()[i].op : graph.nodes()[i].name;
    for (std::size_t at = 0; (at = label.find_first_of("\"\\", at)) != std::string::npos; at += 2)
      label.insert(at, 1, '\\');
    out << "  n" << i << " [label=\"" << graph.nodes()[i].id << ' ' << label;
    if (runs[i] > 1) out << " x" << runs[i] << "\", style=filled, fillcolor=orange];\n";
    else out << "\"];\n";
  }
  for (std::size_t v = 0; v < graph.value_count(); ++v)
    if (const NodeId from = graph.values()[v].producer; from.valid())
      for (NodeId to : graph.readers(ValueId{v}))
        out << "  n" << from.index << " -> n" << to.index << ";\n";
  out << "}\n";
  return out.str();
}

std::string json_text(const StepGraph& graph, const Plan& plan) {
  nlohmann::ordered_json doc;
  doc["graph"] = graph.name();
  doc["nodes"] = graph.node_count();
  doc["strategy"] = plan.strategy;
  doc["seed"] = plan.seed;
  doc["seconds"] = plan.seconds;
  doc["budget_bytes"] = plan.budget.count;
  doc["within_budget"] = plan.within_budget();
  doc["peak_bytes"] = plan.peak.count;
  doc["baseline_peak_bytes"] = plan.baseline_peak.count;
  doc["floor_bytes"] = plan.floor.count;
  doc["time_us"] = plan.time.count;
  doc["baseline_time_us"] = plan.baseline_time.count;
  doc["overhead"] = plan.overhead();
  doc["least_extra_us"] = plan.least_extra.count;
  doc["optimal"] = plan.optimal;
  doc["recomputations"] = recomputations(graph, plan.schedule);
  doc["keeps_order"] = keeps_order(graph, plan.schedule);
  return doc.dump(2) + "\n";
}

// One line on a terminal, for what takes longer than two seconds.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet) : on_(!quiet && isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() {
    if (shown_) std::cerr << "\r\033[K";
  }
  void operator()(const PlanProgress& p) {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (!on_ || seconds < 2) return;
    shown_ = true;
    std::cerr << "\r\033[K" << p.strategy << ": " << static_cast<int>(100 * p.share) << " %, "
              << format_bytes(p.peak) << ", " << format_time(p.time) << std::flush;
  }

 private:
  bool on_, shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

void write_side_files(const Options& o, const StepGraph& graph, const Plan& plan) {
  if (!o.csv.empty()) {
    std::ostringstream text;
    write_decisions_csv(text, graph, decisions(graph, plan.schedule));
    write_file_atomically(o.csv, text.str());
  }
  if (!o.dot.empty()) write_file_atomically(o.dot, dot_text(graph, plan.schedule));
  if (!o.memory.empty())
    write_file_atomically(o.memory, memory_before_and_after(graph, plan.schedule, plan.budget));
  if (!o.json.empty()) write_file_atomically(o.json, json_text(graph, plan));
}

void draw_frontier(const Options& o, const StepGraph& graph, const PlanRequest& request) {
  const auto curve = frontier(graph, request, 12);
  std::ostringstream text;
  write_frontier_svg(text, graph, curve);
  write_file_atomically(o.frontier, text.str());
  if (o.quiet) return;
  std::cout << "frontier (share of the baseline's peak, extra time)\n";
  for (const Plan& p : curve)
    std::cout << "  "
              << percent(static_cast<double>(p.budget.count) /
                         static_cast<double>(p.baseline_peak.count))
              << "  +" << percent(p.overhead()) << '\n';
}

int run(int argc, char** argv) {
  Options o;
  if (!parse(o, argc, argv)) return examples::done;
  const StepGraph graph = read_graph_file(o.graph);
  if (!o.check.empty()) return check(o, graph);
  const bool has_budget = o.budget.relative || o.budget.bytes > Bytes{0};
  if (!has_budget && o.frontier.empty())
    throw Error(Errc::bad_argument, "--budget is missing: 80%, 2GiB or bytes; see --help");
  ProgressLine line{o.quiet};
  PlanRequest request{.keep_order = o.keep_order,
                      .seed = o.seed,
                      .threads = static_cast<unsigned>(o.threads),
                      .seconds = o.seconds};
  request.progress = [&](const PlanProgress& p) { line(p); };
  if (!o.frontier.empty()) draw_frontier(o, graph, request);
  if (!has_budget) return examples::done;
  request.budget = o.budget.resolve(simulate(graph, own_order(graph)).peak);
  const Plan plan = plan_with(o.strategy, graph, request);
  if (!plan.within_budget() && !o.best_effort)
    throw Error(Errc::budget_unreachable, Planner<>::unreachable_message(plan));
  if (!o.out.empty()) write_plan_file(o.out, graph, plan);
  write_side_files(o, graph, plan);
  if (!o.quiet) print_plan(graph, plan);
  if (plan.within_budget()) return examples::done;
  std::cerr << "plan_graph: " << Planner<>::unreachable_message(plan) << '\n';
  return examples::budget_not_reachable;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("plan_graph", [&] { return run(argc, argv); });
}
