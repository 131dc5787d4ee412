// Measures one training step of a model node by node, says what is most expensive and what would be
// cheapest to recompute, and writes tables (CSV), pictures (SVG), a report (HTML), a trace and the
// graph with the measured times.
//
//   profile_model --model resnet152 --batch 4 --out profile
//   profile_model --model bert --batch 4 --memory-limit 2GiB --out profile      # inside a limit that the step does not fit into

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <reprise/graph/json.hpp>
#include <reprise/libtorch.hpp>
#include <reprise/profile/metrics.hpp>
#include <reprise/profile/print_stats.hpp>
#include <reprise/report/html.hpp>
#include <reprise/report/plots.hpp>
#include <reprise/report/stats.hpp>
#include <reprise/report/trace.hpp>

#include "models/task.hpp"
#include "support/cli.hpp"
#include "support/interrupt.hpp"
#include "support/output.hpp"
#include "support/progress.hpp"

namespace {

using namespace reprise;
using namespace reprise::profiling;
using namespace reprise::replaying;

struct Options {
  std::string model = "resnet18", config = "full", mode = "in-situ", out = "profile", prefix, spill;
  std::int64_t batch = 0, size = 0, threads = 0, warmup = 1, runs = 3;
  std::uint64_t seed = 1;
  bool mean = false, transfers = false;
  Size limit{}, budget{};
};

bool parse(int argc, char** argv, Options& options) {
  std::vector<std::string> names;
  for (const auto name : models::names()) names.emplace_back(name);
  examples::Flags flags(
      "profile_model",
      "Profiles a training step and writes tables, pictures, a report and a trace.");
  flags.choose("--model", names, "which model", options.model);
  flags.choose("--config", {"tiny", "full"},
               "the published model, or one of the same structure for trying things",
               options.config);
  flags.add("--batch", "N", "samples in a batch; 0: the configuration's own", options.batch);
  flags.add("--size", "N", "tokens in a sequence, or side of an image; 0: the configuration's own",
            options.size);
  flags.add("--warmup", "N", "runs that are dropped", options.warmup);
  flags.add("--runs", "N", "runs that are measured", options.runs, 1);
  flags.add("--mean", "the mean of the runs instead of their median", options.mean);
  flags.choose("--mode", {"in-situ", "isolated", "both"},
               "the step as it is; each distinct op on its own: faster, less exact; both sums",
               options.mode);
  flags.add("--transfers", "measure what moving each storage out and back takes",
            options.transfers);
  flags.add("--memory-limit", "SIZE",
            "what LibTorch's allocator may hold meanwhile; the rest is moved to a file",
            options.limit);
  flags.add("--spill", "DIR", "where to; by default the system's folder for temporary files",
            options.spill);
  flags.add("--budget", "SIZE", "a line in the pictures of memory; p % is of the step's own peak",
            options.budget);
  flags.add("--seed", "N", "of weights and data", options.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", options.threads, 0, 4096);
  flags.add("--prefix", "TEXT", "what the names of all files start with", options.prefix);
  flags.add("--out", "DIR", "folder for the files; made where it is not there", options.out);
  if (!flags.parse(argc, argv)) return false;
  if (options.limit.relative)
    throw Error(Errc::bad_argument, "--memory-limit: a share of what? Write bytes, 512MiB or 4GiB");
  return true;
}

ProfileMode mode_of(const Options& options) {
  if (options.mode == "isolated") return ProfileMode::isolated;
  return options.mode == "both" ? ProfileMode::both : ProfileMode::in_situ;
}

Profile measure(const models::Task& task, const Options& options, CapturedStep& captured) {
  examples::Interrupt interrupt;
  examples::Progress progress("profiling " + task.name, 0);
  ProfileOptions how{.warmup = static_cast<std::size_t>(options.warmup),
                     .runs = static_cast<std::size_t>(options.runs),
                     .aggregate = options.mean ? Aggregate::mean : Aggregate::median,
                     .mode = mode_of(options),
                     .transfers = options.transfers,
                     .memory_limit = options.limit.bytes,
                     .spill_folder = options.spill,
                     .stop = interrupt.token()};
  how.progress = [&](std::size_t done, std::size_t total) {
    interrupt.poll();
    progress.at(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
  };
  return Profiler<SteadyTimer, AllocatorProbe>{}.run(captured, how);
}

/// The ten rows for which `key` is largest.
template <class Row, class Key>
std::vector<const Row*> top_ten(const std::vector<Row>& rows, Key key) {
  std::vector<const Row*> order;
  for (const Row& row : rows) order.push_back(&row);
  const std::size_t count = std::min<std::size_t>(10, order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](const Row* a, const Row* b) { return key(*a) != key(*b) ? key(*a) > key(*b) : a < b; });
  order.resize(count);
  return order;
}

void print_activations(const Profile& profile, const std::vector<ActivationMetrics>& metrics) {
  const auto name = [&](const ActivationMetrics& m) {
    return profile.graph.value(m.use.value).name;
  };
  std::printf("\nThe largest activations\n\n%12s  %14s  %s\n", "size", "waits for", "name");
  for (const ActivationMetrics* m :
       top_ten(metrics, [](const ActivationMetrics& a) { return a.use.bytes.count; }))
    std::printf("%12s  %14s  %s\n", format_bytes(m->use.bytes).c_str(),
                format_time(m->inactive_time).c_str(), name(*m).c_str());
  std::vector<ActivationMetrics> kept;  // only what backward waits for is worth recomputing
  for (const ActivationMetrics& m : metrics)
    if (m.recomputable && m.use.first_backward.valid()) kept.push_back(m);
  std::printf(
      "\nThe best to recompute (bytes freed for a microsecond paid)\n\n%12s  %12s  %12s  %s\n",
      "ratio", "size", "costs", "name");
  for (const ActivationMetrics* m :
       top_ten(kept, [](const ActivationMetrics& a) { return a.recompute_ratio; }))
    std::printf("%12.1f  %12s  %12s  %s\n", m->recompute_ratio, format_bytes(m->use.bytes).c_str(),
                format_time(m->recomp_time).c_str(), name(*m).c_str());
}

/// What the report says below its title.
std::string note_of(const models::Task& task, const Options& options, const Profile& profile) {
  std::string note = task.name + ", " + options.config + ", batch " + std::to_string(task.batch) +
                     ", " + (options.mean ? "mean" : "median") + " of " +
                     std::to_string(profile.runs) + " runs with " +
                     std::to_string(torch::get_num_threads()) + " threads";
  if (options.mode == "isolated") note += ", each distinct op on its own";
  if (options.limit.bytes > Bytes{0}) note += ", inside " + format_bytes(options.limit.bytes);
  return note;
}

void write_files(const Options& options, const Profile& profile,
                 const std::vector<ActivationMetrics>& metrics, const HtmlReportOptions& page) {
  const auto start = std::chrono::steady_clock::now();
  const std::filesystem::path folder = options.out;
  write_stats_files(folder, options.prefix, profile, metrics);
  write_plot_files(folder, options.prefix, ProfilePlots{profile, metrics}, page.budget);
  const auto write = [&](const char* name, const auto& contents) {
    const std::string path = (folder / (options.prefix + name)).string();
    std::ofstream file(path, std::ios::binary);
    contents(file);
    if (!file.flush()) throw Error(Errc::io, path + ": could not be written");
  };
  write("report.html", [&](std::ostream& out) { write_html_report(out, profile, metrics, page); });
  write("trace.json", [&](std::ostream& out) { write_trace(out, profile.graph); });
  write_graph_file((folder / (options.prefix + "graph.json")).string(), profile.graph);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string report = (folder / (options.prefix + "report.html")).string();
  std::printf("\nWritten to %s in %.2f s; open %s in a browser, and trace.json in Perfetto\n",
              options.out.c_str(), seconds, report.c_str());
}

int profile(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return examples::done;
  examples::make_folder("--out", options.out);
  examples::check_writable("--prefix",
                           std::filesystem::path(options.out) / (options.prefix + "report.html"));
  if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
  const auto config = options.config == "tiny" ? models::Config::tiny : models::Config::full;
  const models::Task task =
      models::make(options.model, config, options.batch, options.seed, options.size);
  torch::manual_seed(options.seed);
  const auto batch = task.make_batch(0);
  CapturedStep captured = capture(task.module, task.loss,
                                  CaptureOptions{.name = options.model,
                                                 .memory_limit = options.limit.bytes,
                                                 .spill_folder = options.spill},
                                  batch);
  task.module->zero_grad();
  const auto start = std::chrono::steady_clock::now();
  const Profile profile = measure(task, options, captured);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::vector<ActivationMetrics> metrics = activation_metrics(profile);

  const Simulation own = simulate(profile.graph, own_order(profile.graph));
  std::printf("%s, %s, batch %lld: the step's own peak is %s\n", task.name.c_str(),
              options.config.c_str(), static_cast<long long>(task.batch),
              format_bytes(own.peak).c_str());
  const std::string inside =
      options.limit.bytes > Bytes{0} ? " inside " + format_bytes(options.limit.bytes) : "";
  std::printf("measured in %.1f s%s\n\n", seconds, inside.c_str());
  print_stats(std::cout, profile);
  print_activations(profile, metrics);

  const Bytes budget =
      options.budget.relative ? options.budget.resolve(own.peak) : options.budget.bytes;
  write_files(options, profile, metrics,
              {.budget = budget > Bytes{0} ? std::optional{budget} : std::nullopt,
               .note = note_of(task, options, profile)});
  return examples::done;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("profile_model", [&] { return profile(argc, argv); });
}
