// What a model needs at several batch sizes: one profile each, three charts, a page and a table,
// beside the memory that there is.
//
//   batch_memory --model resnet152 --batches 4,8,16,32,64 --cap 8GiB --out batches
//
// Every batch size is profiled inside the cap: what does not fit is moved to a file meanwhile, and
// marked so. Where not even that is possible (one op alone needs more than the cap), the sizes are
// extrapolated from the two largest batches before, and marked so.

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <reprise/libtorch.hpp>
#include <reprise/report/batch_page.hpp>
#include <reprise/report/batch_plots.hpp>
#include <reprise/report/stats.hpp>

#include "models/task.hpp"
#include "support/cli.hpp"
#include "support/interrupt.hpp"
#include "support/optimizer.hpp"
#include "support/output.hpp"
#include "support/progress.hpp"

namespace {

using namespace reprise;
using namespace reprise::graphs;
using namespace reprise::replaying;
using namespace reprise::reporting;

struct Options {
  std::string model = "resnet152", config = "full", batches = "4,8,16,32,64", optimizer = "adam",
              out = "batches", spill;
  std::int64_t size = 0, threads = 0, runs = 1;
  std::uint64_t seed = 1;
  Size cap{};
};

/// What one row of the table says beside the memory.
struct Row {
  BatchMemory memory{};
  Microseconds time{};
  Bytes moved{};
  std::string how{};
};

bool parse(int argc, char** argv, Options& options) {
  std::vector<std::string> names;
  for (const auto name : models::names()) names.emplace_back(name);
  examples::Flags flags("batch_memory",
                        "Sweeps batch sizes: a profile each, charts of memory, and a table.");
  flags.choose("--model", names, "which model", options.model);
  flags.choose("--config", {"tiny", "full"},
               "the published model, or one of the same structure for trying things",
               options.config);
  flags.add("--batches", "N,N,…", "the batch sizes", options.batches);
  flags.add("--cap", "SIZE", "the memory that there is; by default no limit", options.cap);
  flags.choose("--optimizer", {"none", "sgd", "adam"}, "whose state is counted", options.optimizer);
  flags.add("--size", "N", "tokens in a sequence, or side of an image; 0: the configuration's own",
            options.size);
  flags.add("--runs", "N", "measured runs of each", options.runs, 1);
  flags.add("--seed", "N", "of weights and data", options.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", options.threads, 0, 4096);
  flags.add("--spill", "DIR",
            "where storages are moved to; by default the system's folder for temporary files",
            options.spill);
  flags.add("--out", "DIR", "folder for the files; made where it is not there", options.out);
  if (!flags.parse(argc, argv)) return false;
  if (options.cap.relative)
    throw Error(Errc::bad_argument, "--cap: a share of what? Write bytes, 512MiB or 8GiB");
  return true;
}

std::vector<std::int64_t> parse_batches(const std::string& text) {
  std::vector<std::int64_t> batches;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    std::int64_t n = 0;
    const auto [end, status] = std::from_chars(item.data(), item.data() + item.size(), n);
    if (status != std::errc{} || end != item.data() + item.size() || n < 1)
      throw Error(Errc::bad_argument,
                  "--batches: '" + item + "' is not a whole number of at least 1");
    if (!batches.empty() && n <= batches.back())
      throw Error(Errc::bad_argument, "--batches: write them from small to large, each once");
    batches.push_back(n);
  }
  if (batches.empty()) throw Error(Errc::bad_argument, "--batches: none were given");
  return batches;
}

/// A straight line through the two points before it: activations grow with the batch, the rest does
/// not.
Row extrapolate(const std::vector<Row>& known, std::int64_t batch) {
  if (known.size() < 2)
    throw Error(
        Errc::budget_unreachable,
        "--cap is too small for batch " + std::to_string(batch) +
            ", and a line to it needs two smaller batches that fit: name two, or a larger cap");
  const BatchMemory &a = known[known.size() - 2].memory, &b = known.back().memory;
  const auto at = [&](Bytes x, Bytes y) {
    const double slope =
        static_cast<double>((y - x).count) / static_cast<double>(b.batch - a.batch);
    return Bytes{y.count + static_cast<std::int64_t>(slope * static_cast<double>(batch - b.batch))};
  };
  Row row;
  row.memory = {.batch = batch,
                .peak = at(a.peak, b.peak),
                .workspace = at(a.workspace, b.workspace),
                .estimated = true};
  for (std::size_t r = 0; r < role_count; ++r)
    row.memory.by_role[r] = at(a.by_role[r], b.by_role[r]);
  row.how = "extrapolated by a straight line, roughly: cannot be run inside the cap";
  return row;
}

/// Memory of the whole step, the optimizer's included. Its first step makes its state, so the
/// second one counts.
void count_optimizer(const models::Task& task, const std::vector<torch::Tensor>& data,
                     CaptureOptions how, const Options& options, Row& row) {
  const auto optimizer = examples::make_optimizer(options.optimizer, *task.module);
  how.optimizer = optimizer.get();
  for (int i = 0; i < 2; ++i) {
    task.module->zero_grad();
    const CapturedStep whole = capture(task.module, task.loss, how, data);
    row.memory = batch_memory(row.memory.batch, whole.graph());
    row.moved += whole.transfers().bytes_out;
  }
}

/// Between captures, which cannot be stopped half-way.
void stop_if_asked(examples::Interrupt& interrupt) {
  interrupt.poll();
  if (interrupt.token().stop_requested())
    throw Error(Errc::cancelled, "cancelled; the batch sizes before it have their tables");
}

Row measure(const Options& options, std::int64_t batch, examples::Interrupt& interrupt) {
  const auto config = options.config == "tiny" ? models::Config::tiny : models::Config::full;
  const models::Task task = models::make(options.model, config, batch, options.seed, options.size);
  torch::manual_seed(options.seed);
  const auto data = task.make_batch(0);
  const CaptureOptions how{
      .name = options.model, .memory_limit = options.cap.bytes, .spill_folder = options.spill};
  CapturedStep step = capture(task.module, task.loss, how, data);
  stop_if_asked(interrupt);
  task.module->zero_grad();
  const ProfileOptions profiling{.warmup = 0,
                                 .runs = static_cast<std::size_t>(options.runs),
                                 .memory_limit = options.cap.bytes,
                                 .spill_folder = options.spill,
                                 .stop = interrupt.token(),
                                 .progress = [&](std::size_t, std::size_t) { interrupt.poll(); }};
  const Profile profile = Profiler<SteadyTimer, AllocatorProbe>{}.run(step, profiling);
  write_stats_files(options.out, "bs" + std::to_string(batch) + "_", profile);

  Row row;
  row.time = profile.total_time();
  row.moved = step.transfers().bytes_out;
  row.memory = batch_memory(batch, profile.graph);
  if (options.optimizer != "none") count_optimizer(task, data, how, options, row);
  stop_if_asked(interrupt);
  row.how = row.moved > Bytes{0} ? "profiled inside the cap" : "profiled";
  return row;
}

std::string table(const std::vector<Row>& rows, const Options& options) {
  std::ostringstream out;
  out << "| batch | peak | parameters | gradients | activations | optimizer state | nodes' time | "
         "|\n|--:|--:|--:|--:|--:|--:|--:|---|\n";
  for (const Row& row : rows) {
    const auto role = [&](Role r) {
      return format_bytes(row.memory.by_role[static_cast<std::size_t>(r)]);
    };
    out << "| " << row.memory.batch << " | " << format_bytes(row.memory.peak) << " | "
        << role(Role::parameter) << " | " << role(Role::gradient) << " | " << role(Role::activation)
        << " | " << role(Role::optimizer_state) << " | "
        << (row.memory.estimated ? std::string("not known") : format_time(row.time)) << " | "
        << row.how;
    if (options.cap.bytes > Bytes{0} && row.memory.peak > options.cap.bytes)
      out << "; does not fit into " << format_bytes(options.cap.bytes);
    out << " |\n";
  }
  return out.str();
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush))
    throw Error(Errc::io, path.string() + ": could not be written");
}

int sweep(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) return examples::done;
  const std::vector<std::int64_t> batches = parse_batches(options.batches);
  if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
  examples::make_folder("--out", options.out);
  examples::Interrupt interrupt;
  examples::Progress progress("batch sizes of " + options.model,
                              static_cast<std::int64_t>(batches.size()));
  std::vector<Row> rows;
  for (const std::int64_t batch : batches) {
    try {
      rows.push_back(measure(options, batch, interrupt));
    } catch (const Error& e) {
      if (e.code() != Errc::budget_unreachable) throw;
      rows.push_back(extrapolate(rows, batch));
    }
    progress.advance();
  }

  std::vector<BatchMemory> memory;
  for (const Row& row : rows) memory.push_back(row.memory);
  const std::optional<Bytes> cap =
      options.cap.bytes > Bytes{0} ? std::optional{options.cap.bytes} : std::nullopt;
  const std::filesystem::path folder = options.out;
  write(folder / "batch_peaks.svg", batch_peaks_svg(memory, cap));
  write(folder / "batch_curves.svg", batch_curves_svg(memory, cap));
  write(folder / "batch_stacks.svg", batch_stacks_svg(memory, cap));
  write(folder / "batches.html", batch_page(options.model + ", " + options.config, memory, cap));
  write(folder / "summary.md", table(rows, options));
  std::printf("%s, %s, memory at the peak of a step with %s\n\n%s\nWritten to %s\n",
              options.model.c_str(), options.config.c_str(),
              options.optimizer == "none" ? "no optimizer" : options.optimizer.c_str(),
              table(rows, options).c_str(), options.out.c_str());
  return examples::done;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("batch_memory", [&] { return sweep(argc, argv); });
}
