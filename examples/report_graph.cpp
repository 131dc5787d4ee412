// Tables, pictures, a report and a trace of a step that is in a graph file: report_graph GRAPH
// FOLDER

#include <exception>
#include <fstream>
#include <iostream>

#include <reprise/graph/json.hpp>
#include <reprise/report.hpp>
#include <reprise/reprise.hpp>

int main(int argc, char** argv) try {
  if (argc != 3)
    throw reprise::Error(reprise::Errc::bad_argument, "Usage: report_graph GRAPH FOLDER");
  const std::filesystem::path folder = argv[2];
  // or what a Profiler measured
  const reprise::Profile profile = reprise::unmeasured_profile(reprise::read_graph_file(argv[1]));
  const std::vector<reprise::ActivationMetrics> metrics = reprise::activation_metrics(profile);
  const reprise::Bytes budget{20'000};

  // node_stats.csv, activation_stats.csv
  reprise::write_stats_files(folder, "", profile, metrics);
  // six pictures
  reprise::write_plot_files(folder, "", reprise::ProfilePlots{profile, metrics}, budget);
  std::ofstream page{folder / "report.html"};
  reprise::write_html_report(page, profile, metrics, {.budget = budget});
  std::ofstream trace{folder / "trace.json"};
  reprise::write_trace(trace, profile.graph);  // for ui.perfetto.dev
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 2;
}
