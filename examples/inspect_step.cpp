// Captures one training step of a model, says what it consists of and what fills the memory at its
// peak, and writes the graph as JSON (reprise.graph, with measured node times) and as a picture for
// Graphviz.
//
//   inspect_step --model resnet18 --config tiny --out graphs            graphs/resnet18.graph.json and graphs/resnet18.dot
//   inspect_step --model bert --config full --profile --out bert.json   with the profiler's times, for plan_graph and the benchmarks
//   dot -Tsvg graphs/resnet18.dot > resnet18.svg

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/graph/analysis.hpp>
#include <reprise/graph/json.hpp>
#include <reprise/libtorch.hpp>
#include <reprise/report/dot.hpp>

#include "models/task.hpp"
#include "support/cli.hpp"
#include "support/interrupt.hpp"
#include "support/optimizer.hpp"
#include "support/output.hpp"
#include "support/progress.hpp"
#include "support/statistics.hpp"

namespace {

using reprise::Bytes;
using reprise::format_bytes;
using reprise::format_time;
using reprise::NodeId;
using reprise::StepGraph;

struct Options {
  std::string model = "resnet18", config = "tiny", optimizer = "none", out = ".";
  std::int64_t batch = 0, size = 0, threads = 0, runs = 3;
  std::uint64_t seed = 1;
  bool profile = false;
};

/// Where the two files go.
struct Files {
  std::filesystem::path json{}, dot{};
};

bool parse(int argc, char** argv, Options& options) {
  std::vector<std::string> names;
  for (const auto name : models::names()) names.emplace_back(name);
  examples::Flags flags(
      "inspect_step", "Captures a training step, sums it up and writes its graph as JSON and DOT.");
  flags.choose("--model", names, "which model", options.model);
  flags.choose("--config", {"tiny", "full"},
               "the published model, or one of the same structure for trying things",
               options.config);
  flags.add("--batch", "N", "samples in a batch; 0: the configuration's own", options.batch);
  flags.add("--size", "N", "tokens in a sequence, or side of an image; 0: the configuration's own",
            options.size);
  flags.choose("--optimizer", {"none", "sgd", "adam"}, "record the optimizer's step as well",
               options.optimizer);
  flags.add("--runs", "N", "runs whose node times are measured; the median counts", options.runs,
            1);
  flags.add(
      "--profile",
      "measure node times with the profiler, not while capturing: without what the recorder costs",
      options.profile);
  flags.add("--seed", "N", "of weights and data", options.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", options.threads, 0, 4096);
  flags.add("--out", "PATH",
            "X.json: that file, and X.dot; else a folder for MODEL.graph.json and MODEL.dot, made "
            "if need be",
            options.out);
  if (!flags.parse(argc, argv)) return false;
  if (options.profile && options.optimizer != "none")
    throw reprise::Error(reprise::Errc::bad_argument,
                         "--profile runs the step again, and one with the optimizer's step in it "
                         "cannot be: leave out --optimizer");
  return true;
}

/// Throws where they could not be written, before anything is run.
Files files_of(const Options& options) {
  std::filesystem::path path = options.out;
  Files files;
  if (path.extension() == ".json") {
    files = {path, std::filesystem::path(path).replace_extension(".dot")};
  } else {
    examples::make_folder("--out", path);
    files = {path / (options.model + ".graph.json"), path / (options.model + ".dot")};
  }
  examples::check_writable("--out", files.json);
  examples::check_writable("--out", files.dot);
  return files;
}

/// Times of each node over several captures of one step, which must agree op for op.
class NodeTimes {
 public:
  void add(const StepGraph& graph) {
    std::vector<std::string> ops;
    for (const auto& node : graph.nodes()) ops.push_back(node.op);
    if (!times_.empty() && ops != ops_)
      throw reprise::Error(reprise::Errc::capture_failed,
                           "two captures of the step consist of different ops");
    ops_ = std::move(ops);
    times_.resize(graph.node_count());
    for (std::size_t i = 0; i < times_.size(); ++i)
      times_[i].push_back(graph.node(NodeId{i}).time.count);
  }
  void set_medians(StepGraph& graph) {
    for (std::size_t i = 0; i < times_.size(); ++i)
      graph.set_time(NodeId{i}, {examples::quantile(times_[i], 0.5)});
  }

 private:
  std::vector<std::string> ops_;
  std::vector<std::vector<double>> times_;  // by node
};

/// Captures the step once to warm up (and to let the optimizer make its state), then `runs` times.
/// The last capture is kept; its nodes get the median of the times that they took.
reprise::CapturedStep capture_measured(const models::Task& task, const Options& options) {
  const auto batch = task.make_batch(0);
  const std::unique_ptr<torch::optim::Optimizer> optimizer =
      options.optimizer == "none" ? nullptr
                                  : examples::make_optimizer(options.optimizer, *task.module);
  reprise::CaptureOptions how{.name = options.model};
  if (optimizer) how.optimizer = optimizer.get();

  examples::Progress progress("capturing " + options.model, options.runs + 1);
  NodeTimes times;
  const auto capture = [&] {
    task.module->zero_grad();
    reprise::CapturedStep captured = reprise::capture(task.module, task.loss, how, batch);
    progress.advance();
    return captured;
  };
  (void)capture();
  for (std::int64_t run = 1; run < options.runs; ++run) times.add(capture().graph());
  reprise::CapturedStep last = capture();
  times.add(last.graph());
  times.set_medians(last.graph());
  return last;
}

/// One capture, run again by the profiler. The model is afterwards as the capture left it.
reprise::CapturedStep capture_profiled(const models::Task& task, const Options& options) {
  const auto batch = task.make_batch(0);
  task.module->zero_grad();
  reprise::CapturedStep captured = reprise::capture(
      task.module, task.loss, reprise::CaptureOptions{.name = options.model}, batch);
  task.module->zero_grad();
  examples::Interrupt interrupt;
  examples::Progress progress("profiling " + options.model, 0);
  reprise::ProfileOptions how{.runs = static_cast<std::size_t>(options.runs),
                              .stop = interrupt.token()};
  how.progress = [&](std::size_t done, std::size_t total) {
    interrupt.poll();
    progress.at(static_cast<std::int64_t>(done), static_cast<std::int64_t>(total));
  };
  const reprise::Profile profile = reprise::Profiler<reprise::SteadyTimer>{}.run(captured, how);
  for (std::size_t i = 0; i < profile.nodes.size(); ++i)
    captured.graph().set_time(NodeId{i}, profile.nodes[i].time);
  return captured;
}

void print_counts(const StepGraph& graph) {
  std::array<std::size_t, 3> nodes{};
  for (const auto& node : graph.nodes()) ++nodes[static_cast<std::size_t>(node.phase)];
  const auto views = std::ranges::count_if(
      graph.values(), [](const auto& value) { return value.alias_of.valid(); });
  const auto in_place = std::ranges::count_if(
      graph.values(), [](const auto& value) { return value.overwrites.valid(); });
  const auto persistent = std::ranges::count_if(
      graph.storages(), [](const auto& storage) { return storage.persistent; });
  std::printf("  %6zu nodes     %zu forward, %zu backward, %zu optimizer\n", graph.node_count(),
              nodes[0], nodes[1], nodes[2]);
  std::printf("  %6zu values    %td of them views, %td written in place\n", graph.value_count(),
              views, in_place);
  std::printf("  %6zu storages  %td of them there before and after the step\n",
              graph.storage_count(), persistent);
}

void print_memory(const StepGraph& graph, const reprise::Recording& recording) {
  const reprise::StepAnalysis analysis = reprise::analyse(graph);
  const reprise::MemoryAnalysis& memory = analysis.memory;
  std::size_t kept = 0;
  Bytes kept_bytes{};
  for (const auto& activation : analysis.activations) {
    if (!activation.last_forward.valid() || !activation.first_backward.valid()) continue;
    ++kept;
    kept_bytes += activation.bytes;
  }
  std::printf("  %6zu activations (%s) wait for backward\n", kept,
              format_bytes(kept_bytes).c_str());
  std::printf("\n  time of all nodes: %s\n", format_time(memory.time).c_str());

  const auto& node = graph.node(memory.peak_node);
  const std::string phase(to_string(node.phase));
  std::printf("\nMemory at the peak: node %lld, %s (%s)\n\n", static_cast<long long>(node.id),
              node.name.c_str(), phase.c_str());
  const auto line = [&](std::string_view name, Bytes bytes) {
    if (bytes == Bytes{0}) return;
    const double share = static_cast<double>(bytes.count) / static_cast<double>(memory.peak.count);
    std::printf("  %-16.*s%12s%7.1f %%\n", static_cast<int>(name.size()), name.data(),
                format_bytes(bytes).c_str(), 100 * share);
  };
  for (std::size_t r = 0; r < reprise::role_count; ++r)
    line(to_string(static_cast<reprise::Role>(r)), memory.peak_by_role[r]);
  line("workspace", memory.peak_workspace);
  line("all", memory.peak);
  const Bytes eager = graph.persistent_bytes() + (recording.peak - recording.base);
  std::printf("\n  eager's own peak: %s\n  no schedule can do with less than %s\n",
              format_bytes(eager).c_str(), format_bytes(memory.floor).c_str());
}

void write_files(const StepGraph& graph, const Files& files) {
  reprise::write_graph_file(files.json.string(), graph);
  std::ofstream picture(files.dot);
  reprise::write_dot(picture, graph);
  if (!picture.flush())
    throw reprise::Error(reprise::Errc::io, files.dot.string() + ": cannot be written");
  std::printf("\nWritten: %s and %s\n", files.json.c_str(), files.dot.c_str());
}

int inspect(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return examples::done;
  const Files files = files_of(options);
  if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
  const auto config = options.config == "tiny" ? models::Config::tiny : models::Config::full;
  const models::Task task =
      models::make(options.model, config, options.batch, options.seed, options.size);
  torch::manual_seed(options.seed);
  const reprise::CapturedStep captured =
      options.profile ? capture_profiled(task, options) : capture_measured(task, options);
  std::printf("%s, %s, batch %lld\n\n", task.name.c_str(), options.config.c_str(),
              static_cast<long long>(task.batch));
  print_counts(captured.graph());
  print_memory(captured.graph(), captured.recording());
  write_files(captured.graph(), files);
  return examples::done;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("inspect_step", [&] { return inspect(argc, argv); });
}
