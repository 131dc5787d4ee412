// With and without: eager, checkpoint by block, MemoryBudget and TrainStep side by side, at several batch sizes.
//
//   compare --model resnet152 --batches 4,8,16,32,64 --budget 50% --out comparison
//   compare --model bert --config full --batches 4,8 --cap 4GiB          # each variant in a process that can have no more
//   compare --model resnet50 --config full --max-batch --cap 2GiB        # the largest batch of each
//
// Every variant runs in a child process of its own under a limit on private memory (--cap; without it, nine tenths of what the machine
// has to give): what does not fit is out of memory there, and is shown as that.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <new>
#include <optional>

#include <torch/torch.h>

#include "support/cli.hpp"
#include "support/compare_run.hpp"
#include "support/output.hpp"

namespace {

using namespace reprise;
using namespace examples;

struct Options {
  RunOptions run{};
  std::string batches = "4,8,16", variants = "eager,checkpoint,MemoryBudget,TrainStep", out = "comparison", child{}, result{};
  std::int64_t threads = 0, most = 4096;
  Size cap{};
  bool max_batch = false;
};

constexpr int exit_out_of_memory = 40;

Flags flags_of(Options& o) {
  std::vector<std::string> names, strategies;
  for (const auto name : models::names()) names.emplace_back(name);
  for (const auto name : strategy_names) strategies.emplace_back(name);
  Flags flags("compare", "Runs a training step eagerly, with checkpointed blocks, and inside a budget both ways; compares memory, time and bits.");
  flags.choose("--model", names, "which model", o.run.model);
  flags.choose("--config", {"tiny", "full"}, "the published model, or one of the same structure for trying things", o.run.config);
  flags.add("--batches", "N,N,…", "the batch sizes", o.batches);
  flags.add("--variants", "NAME,…", "which of eager, checkpoint, MemoryBudget, TrainStep", o.variants);
  flags.add("--budget", "SIZE", "of MemoryBudget and TrainStep: 4GiB, or a share of what eager takes", o.run.budget);
  flags.choose("--strategy", strategies, "of the planner", o.run.strategy);
  flags.add("--effort", "X", "of the planner's usual amount of work", o.run.effort, 0.001, 1000);
  flags.add("--cap", "SIZE", "private memory that a variant's process may have beyond an empty one's", o.cap);
  flags.add("--max-batch", "instead of --batches: the largest batch of each variant inside the cap", o.max_batch);
  flags.add("--most", "N", "the largest batch that --max-batch tries", o.most, 1);
  flags.add("--size", "N", "tokens in a sequence, or side of an image; 0: the configuration's own", o.run.size);
  flags.add("--warmup", "N", "steps that are not measured", o.run.warmup, 1);
  flags.add("--runs", "N", "steps that are", o.run.runs, 1);
  flags.add("--seed", "N", "of weights, data and random numbers", o.run.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", o.threads, 0, 4096);
  flags.add("--out", "DIR", "where tables and charts go", o.out);
  flags.add("--child", "NAME", "used by this program itself: run this variant here", o.child);
  flags.add("--result", "FILE", "used by this program itself", o.result);
  return flags;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) parts.push_back(item);
  return parts;
}

std::vector<std::int64_t> numbers(const std::string& text) {
  std::vector<std::int64_t> all;
  for (const std::string& item : split(text)) {
    std::int64_t n = 0;
    const auto [end, status] = std::from_chars(item.data(), item.data() + item.size(), n);
    if (status != std::errc{} || end != item.data() + item.size() || n < 1)
      throw Error(Errc::bad_argument, "--batches: '" + item + "' is not a whole number of at least 1");
    all.push_back(n);
  }
  if (all.empty()) throw Error(Errc::bad_argument, "--batches: none were given");
  return all;
}

/// A number of KiB that /proc tells.
Bytes kib_in(const char* file, const std::string& field) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field)) return {std::stoll(line.substr(field.size())) * 1024};
  return {};
}

// ── the child: one variant, one batch size ────────────────────────────────────────────────────────────────────────────────

/// Private memory beyond what the process has now. Unlike the address space, it is what must really be there.
void limit_memory(Bytes cap) {
  const auto limit = static_cast<rlim_t>((kib_in("/proc/self/status", "VmData:") + cap).count);
  const rlimit both{limit, limit};
  if (setrlimit(RLIMIT_DATA, &both) != 0) throw Error(Errc::io, "the limit on memory could not be set");
}

/// The last two are oneDNN's words for it: it says no more than that it could not.
bool is_out_of_memory(const std::exception& e) {
  constexpr std::string_view signs[] = {"can't allocate memory", "could not create a primitive", "could not execute a primitive"};
  const std::string_view what = e.what();
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr ||
         std::any_of(std::begin(signs), std::end(signs), [&](std::string_view sign) { return what.find(sign) != what.npos; });
}

int run_child(Options& o) {
  o.run.batch = numbers(o.batches).front();
  if (o.threads > 0) torch::set_num_threads(static_cast<int>(o.threads));
  torch::ones({64, 64}).mm(torch::ones({64, 64}));  // starts LibTorch's threads: their stacks are not the variant's
  if (o.cap.bytes > Bytes{0}) limit_memory(o.cap.bytes);
  o.run.cap = Bytes{o.cap.bytes.count * 8 / 10};
  nlohmann::json result;
  try {
    if (o.child == "forecast") {
      const Forecast f = forecast(o.run);
      result = {{"eager", f.eager.count}, {"floor", f.floor.count}, {"planned", f.planned.count}, {"fits", f.fits}};
    } else {
      result = to_json(run_variant(o.child, o.run));
    }
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) _exit(exit_out_of_memory);
    throw;
  }
  std::ofstream(o.result) << result.dump(1) << '\n';
  return done;
}

// ── the parent ────────────────────────────────────────────────────────────────────────────────────────────────────────────

/// Runs this program again with these arguments; returns its exit code, or -1 where a signal ended it.
int run_self(const std::vector<std::string>& arguments, const std::filesystem::path& log) {
  const pid_t child = fork();
  if (child < 0) throw Error(Errc::io, "no child process could be started");
  if (child == 0) {
    std::vector<char*> argv;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    argv.push_back(const_cast<char*>(self.c_str()));
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    if (std::freopen(log.c_str(), "w", stderr) == nullptr) _exit(127);
    execv(self.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Comparison {
 public:
  Comparison(Options options, std::size_t runs) : o_(std::move(options)), runs_(runs) {}

  /// The result of a child, as JSON; none where it ran out of memory. Throws where it failed in another way.
  std::optional<nlohmann::json> child(const std::string& what, std::int64_t batch) {
    const std::filesystem::path folder = o_.out, result = folder / ".child.json", log = folder / ".child.log";
    std::filesystem::remove(result);
    std::vector<std::string> arguments{"--child", what, "--batches", std::to_string(batch), "--result", result.string(), "--out", o_.out};
    const auto pass = [&](const char* flag, const std::string& value) { arguments.insert(arguments.end(), {flag, value}); };
    pass("--model", o_.run.model);
    pass("--config", o_.run.config);
    pass("--budget", o_.run.budget);
    pass("--strategy", o_.run.strategy);
    pass("--effort", std::to_string(o_.run.effort));
    pass("--cap", std::to_string(o_.cap.bytes.count));
    pass("--size", std::to_string(o_.run.size));
    pass("--warmup", std::to_string(o_.run.warmup));
    pass("--runs", std::to_string(o_.run.runs));
    pass("--seed", std::to_string(o_.run.seed));
    pass("--threads", std::to_string(o_.threads));
    const int code = run_self(arguments, log);
    if (code == 0) {
      std::ifstream in(result);
      nlohmann::json j = nlohmann::json::parse(in);
      std::filesystem::remove(result);
      std::filesystem::remove(log);
      return j;
    }
    if (code == exit_out_of_memory || code < 0) return std::nullopt;
    std::ifstream in(log);
    std::string why, line;
    while (std::getline(in, line)) why = line;
    throw Error(code == budget_not_reachable ? Errc::budget_unreachable : Errc::io, why);
  }

  Measured measure(const std::string& variant, std::int64_t batch) {
    progress(variant + ", batch " + std::to_string(batch));
    Measured m;
    m.variant = variant;
    m.batch = batch;
    try {
      if (const auto j = child(variant, batch)) m = measured_of(*j);
      else m.fate = Fate::out_of_memory;
    } catch (const Error& e) {
      m.fate = Fate::failed;
      m.why = e.what();
    }
    ++done_;
    return m;
  }

 private:
  void progress(const std::string& what) const {
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::fputs(what.c_str(), stderr);
    if (done_ < runs_) std::fprintf(stderr, " (%zu of %zu)", done_ + 1, runs_);
    if (done_ > 0 && done_ < runs_) std::fprintf(stderr, ", about %.0f s left", spent / static_cast<double>(done_) * static_cast<double>(runs_ - done_));
    std::fputc('\n', stderr);
  }

  Options o_;
  std::size_t runs_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush)) throw Error(Errc::io, path.string() + ": could not be written");
}

/// The activations of which TrainStep's plan spends most on, as a table.
std::string top_decisions(const std::filesystem::path& csv, std::size_t count) {
  std::ifstream in(csv);
  std::string line, out;
  std::getline(in, line);
  for (std::size_t i = 0; i < count && std::getline(in, line); ++i) {
    if (line.find(",recompute,") == std::string::npos) break;
    out += "    " + line + "\n";
  }
  return out;
}

/// `cap` is the line in the chart: what the user named, not what the machine has.
int compare(Options& o, std::optional<Bytes> cap) {
  const std::vector<std::int64_t> batches = numbers(o.batches);
  const std::vector<std::string> variants = split(o.variants);
  Comparison comparison(o, batches.size() * variants.size());
  std::vector<Measured> runs;
  for (const std::int64_t batch : batches)
    for (const std::string& variant : variants) runs.push_back(comparison.measure(variant, batch));
  compare_bits(runs);

  const std::filesystem::path folder = o.out;
  const std::string table = summary_table(runs);
  nlohmann::json results{{"model", o.run.model}, {"config", o.run.config}, {"budget", o.run.budget}, {"strategy", o.run.strategy}};
  for (const Measured& m : runs) results["runs"].push_back(to_json(m));
  write(folder / "results.json", results.dump(1) + "\n");
  write(folder / "memory.svg", memory_chart(runs, o.run.model, cap));
  write(folder / "latency.svg", latency_chart(runs, o.run.model));
  write(folder / "summary.md", table);
  std::printf("%s, %s, budget %s\n\n%s\n", o.run.model.c_str(), o.run.config.c_str(), o.run.budget.c_str(), table.c_str());
  const std::filesystem::path last = folder / ("decisions_" + std::to_string(batches.back()) + ".csv");
  if (std::filesystem::exists(last))
    std::printf("What TrainStep's plan runs again, dearest first (activation,decision,bytes,cost_us,runs):\n%s\n", top_decisions(last, 5).c_str());
  std::printf("Written to %s: results.json, summary.md, memory.svg, latency.svg, decisions_<batch>.csv\n", o.out.c_str());
  const bool differ = std::any_of(runs.begin(), runs.end(), [](const Measured& m) { return m.equal == "no"; });
  return differ ? check_failed : done;
}

/// The largest batch for which `fits`, by doubling and halving; 0 for none.
template <class Fits>
std::int64_t largest(const Fits& fits, std::int64_t most) {
  std::int64_t good = 0, bad = 1;
  while (bad <= most && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  if (bad > most) bad = most + 1;
  while (bad - good > std::max<std::int64_t>(1, good / 16)) {  // as exact as one part in sixteen
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

int find_largest(Options& o) {
  if (o.cap.bytes <= Bytes{0}) throw Error(Errc::bad_argument, "--max-batch needs --cap");
  o.run.budget = std::to_string(o.cap.bytes.count * 9 / 10);  // a tenth for what is not LibTorch's allocator: oneDNN's scratchpads
  o.run.runs = 1;
  Comparison comparison(o, 0);  // how many runs it takes is what is searched for
  std::map<std::int64_t, Forecast> forecasts;
  const auto forecast_of = [&](std::int64_t batch) -> const Forecast& {
    const auto [it, is_new] = forecasts.try_emplace(batch);
    if (!is_new) return it->second;
    std::fprintf(stderr, "planning batch %lld\n", static_cast<long long>(batch));
    try {
      if (const auto j = comparison.child("forecast", batch))
        it->second = {{j->at("eager").get<std::int64_t>()}, {j->at("floor").get<std::int64_t>()}, {j->at("planned").get<std::int64_t>()},
                      j->at("fits").get<bool>()};
    } catch (const Error& e) {
      if (e.code() != Errc::budget_unreachable) throw;
    }
    return it->second;
  };
  const Bytes budget{o.cap.bytes.count * 9 / 10};
  std::ostringstream table;
  table << "| variant | largest batch | found by | proven by a run inside the cap |\n|---|--:|---|---|\n";
  for (const std::string& variant : split(o.variants)) {
    const bool by_running = variant == "checkpoint";
    std::int64_t found = largest(
        [&](std::int64_t b) {
          if (by_running) return comparison.measure(variant, b).fate == Fate::ran;
          const Forecast& f = forecast_of(b);
          return variant == "eager" ? f.eager > Bytes{0} && f.eager <= budget : f.fits;
        },
        o.most);
    const std::int64_t forecasted = found;
    bool proven = by_running;
    for (; !proven && found > 0; found -= std::max<std::int64_t>(1, found / 16)) {
      proven = comparison.measure(variant, found).fate == Fate::ran;
      if (proven) break;
    }
    table << "| " << variant << " | " << found << " | " << (by_running ? "running" : "planning: " + std::to_string(forecasted)) << " | "
          << (proven ? "yes" : "no") << " |\n";
  }
  write(std::filesystem::path(o.out) / "max_batch.md", table.str());
  std::printf("%s, %s, inside %s\n\n%s\nWritten to %s: max_batch.md\n", o.run.model.c_str(), o.run.config.c_str(),
              format_bytes(o.cap.bytes).c_str(), table.str().c_str(), o.out.c_str());
  return done;
}

int run_compare(int argc, char** argv) {
  Options o;
  Flags flags = flags_of(o);
  if (!flags.parse(argc, argv)) return done;
  if (o.cap.relative) throw Error(Errc::bad_argument, "--cap: name bytes, as 8GiB");
  static_cast<void>(Budget::parse(o.run.budget));
  make_folder("--out", o.out);
  if (!o.child.empty()) {
    if (o.child == "TrainStep") o.run.decisions = (std::filesystem::path(o.out) / ("decisions_" + o.batches + ".csv")).string();
    return run_child(o);
  }
  for (const std::string& v : split(o.variants))
    if (std::find(std::begin(variant_names), std::end(variant_names), v) == std::end(variant_names))
      throw Error(Errc::bad_argument, "--variants: '" + v + "' is none of eager, checkpoint, MemoryBudget, TrainStep");
  if (o.max_batch) return find_largest(o);
  Options limited = o;
  const std::optional<Bytes> named = o.cap.bytes > Bytes{0} ? std::optional{o.cap.bytes} : std::nullopt;
  if (!named) limited.cap.bytes = {kib_in("/proc/meminfo", "MemAvailable:").count * 9 / 10};
  return compare(limited, named);
}

}  // namespace

int main(int argc, char** argv) {
  return run("compare", [&] { return run_compare(argc, argv); });
}
