// With and without: eager, checkpoint by block, MemoryBudget and TrainStep side by side, at several
// batch sizes.
//
//   compare --model resnet152 --batches 4,8,16,32,64 --budget 50% --out comparison
//   compare --model bert --config full --batches 4,8 --cap 4GiB          # each variant in a process that can have no more
//   compare --model resnet50 --config full --max-batch --cap 2GiB        # the largest batch of each
//
// Every variant runs in a child process of its own under a limit on private memory (--cap; without
// it, nine tenths of what the machine has to give): what does not fit is out of memory there, and
// is shown as that. Under a cap that was named, malloc gives large blocks back when they are freed,
// in all variants: the holes that glibc otherwise keeps in its heap would count, up to as much
// again as the tensors.

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <optional>

#include <torch/torch.h>

#include "support/child_process.hpp"
#include "support/cli.hpp"
#include "support/compare_run.hpp"
#include "support/interrupt.hpp"
#include "support/output.hpp"

namespace {

using namespace reprise;
using namespace reprise::replaying;
using namespace examples;

struct Options {
  examples::RunOptions run{};
  std::string batches = "4,8,16", variants = "eager,checkpoint,MemoryBudget,TrainStep",
              out = "comparison", child{}, result{};
  std::string budget{}, savable{};  ///< as they were written; at most one of them
  std::int64_t threads = 0, most = 4096;
  Size cap{};
  bool max_batch = false, resume = false;

  [[nodiscard]] std::string budget_text() const {
    return savable.empty() ? budget : "savable " + savable;
  }
};

constexpr int exit_out_of_memory = 40;

Flags flags_of(Options& o) {
  std::vector<std::string> names, strategies;
  for (const auto name : models::names()) names.emplace_back(name);
  for (const auto name : strategy_names) strategies.emplace_back(name);
  Flags flags("compare",
              "Runs a training step eagerly, with checkpointed blocks, and inside a budget both "
              "ways; compares memory, time and bits.");
  flags.choose("--model", names, "which model", o.run.model);
  flags.choose("--config", {"tiny", "full"},
               "the published model, or one of the same structure for trying things", o.run.config);
  flags.add("--batches", "N,N,…", "the batch sizes", o.batches);
  flags.add("--variants", "NAME,…", "which of eager, checkpoint, MemoryBudget, TrainStep",
            o.variants);
  flags.add("--budget", "SIZE",
            "of MemoryBudget and TrainStep: 4GiB, or a share of what eager takes; 50% where none "
            "is given",
            o.budget);
  flags.add(
      "--savable", "P%",
      "the same, as a share of what can be saved: P % of the way from the floor to eager's peak",
      o.savable);
  flags.choose("--strategy", strategies, "of the planner", o.run.strategy);
  flags.add("--effort", "X", "of the planner's usual amount of work", o.run.effort, 0.001, 1000);
  flags.add("--cap", "SIZE",
            "private memory that a variant's process may have beyond an empty one's", o.cap);
  flags.add("--max-batch", "instead of --batches: the largest batch of each variant inside the cap",
            o.max_batch);
  flags.add("--most", "N", "the largest batch that --max-batch tries", o.most, 1);
  flags.add("--size", "N", "tokens in a sequence, or side of an image; 0: the configuration's own",
            o.run.size);
  flags.add("--warmup", "N", "steps that are not measured", o.run.warmup, 1);
  flags.add("--runs", "N", "steps that are", o.run.runs, 1);
  flags.add("--seed", "N", "of weights, data and random numbers", o.run.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", o.threads, 0, 4096);
  flags.add("--out", "DIR", "where tables and charts go", o.out);
  flags.add("--resume", "take from --out what ran there before with the same flags", o.resume);
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
      throw Error(Errc::bad_argument,
                  "--batches: '" + item + "' is not a whole number of at least 1");
    if (std::find(all.begin(), all.end(), n) == all.end()) all.push_back(n);
  }
  if (all.empty()) throw Error(Errc::bad_argument, "--batches: none were given");
  return all;
}

std::vector<std::string> variants_of(const Options& o) {
  std::vector<std::string> all;
  for (const std::string& v : split(o.variants)) {
    if (std::find(std::begin(variant_names), std::end(variant_names), v) == std::end(variant_names))
      throw Error(Errc::bad_argument,
                  "--variants: '" + v + "' is none of eager, checkpoint, MemoryBudget, TrainStep");
    if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
  }
  if (all.empty()) throw Error(Errc::bad_argument, "--variants: none were given");
  return all;
}

/// --budget or --savable; half of what eager takes where neither is given.
Budget budget_of(Options& o) {
  if (!o.budget.empty() && !o.savable.empty())
    throw Error(Errc::bad_argument, "--budget and --savable: only one of them can be given");
  const std::string flag = o.savable.empty() ? "--budget" : "--savable";
  if (o.savable.empty() && o.budget.empty()) o.budget = "50%";
  try {
    const Size size = parse_size(o.savable.empty() ? o.budget : o.savable);
    if (o.savable.empty()) return size.relative ? Budget::share(size.percent) : Budget(size.bytes);
    if (!size.relative) throw Error(Errc::bad_argument, "must be a share, as 50%");
    return Budget::savable(size.percent);
  } catch (const Error& error) {
    throw Error(Errc::bad_argument, flag + ": " + error.what());
  }
}

// ── the child: one variant, one batch size ───────────────────────────────────────────────────────

/// The last two are oneDNN's words for it: it says no more than that it could not.
bool says_out_of_memory(std::string_view what) {
  constexpr std::string_view signs[] = {"bad_alloc", "can't allocate memory",
                                        "Cannot allocate memory", "could not create a primitive",
                                        "could not execute a primitive"};
  return std::any_of(std::begin(signs), std::end(signs),
                     [&](std::string_view sign) { return what.find(sign) != what.npos; });
}

/// LibTorch's own what() walks the stack, and crashes where there is no memory left for that.
std::string said(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return error != nullptr ? error->what_without_backtrace() : e.what();
}

int run_child(Options& o) {
  o.run.batch = numbers(o.batches).front();
  if (o.threads > 0) torch::set_num_threads(static_cast<int>(o.threads));
  // starts LibTorch's threads: their stacks are not the variant's
  torch::ones({64, 64}).mm(torch::ones({64, 64}));
  if (o.cap.bytes > Bytes{0}) limit_memory(o.cap.bytes);
  o.run.cap = Bytes{o.cap.bytes.count * 8 / 10};
  nlohmann::json result;
  try {
    if (o.child == "forecast") {
      const Forecast f = forecast(o.run);
      result = {{"eager", f.eager.count},
                {"floor", f.floor.count},
                {"planned", f.planned.count},
                {"fits", f.fits}};
    } else {
      result = to_json(run_variant(o.child, o.run));
    }
  } catch (const std::exception& e) {
    const std::string what = said(e);
    if (dynamic_cast<const std::bad_alloc*>(&e) == nullptr && !says_out_of_memory(what)) throw;
    std::fprintf(stderr, "%s\n", plainly(what).c_str());
    _exit(exit_out_of_memory);
  }
  std::ofstream(o.result) << result.dump(1) << '\n';
  return done;
}

// ── the parent ───────────────────────────────────────────────────────────────────────────────────

class Comparison {
 public:
  /// `work` is the sum of all batch sizes that will be measured; 0 where that is what is searched
  /// for.
  Comparison(Options options, std::int64_t work) : o_(std::move(options)), work_(work) {}

  /// The result of a child, as JSON; none where it ran out of memory. Throws where it failed in
  /// another way.
  std::optional<nlohmann::json> child(const std::string& what, std::int64_t batch) {
    const std::filesystem::path folder = o_.out, result = folder / ".child.json",
                                log = folder / ".child.log";
    std::filesystem::remove(result);
    std::vector<std::string> arguments{
        "--child",       what,    "--batches", std::to_string(batch), "--result",
        result.string(), "--out", o_.out};
    const auto pass = [&](const char* flag, const std::string& value) {
      arguments.insert(arguments.end(), {flag, value});
    };
    pass("--model", o_.run.model);
    pass("--config", o_.run.config);
    pass(o_.savable.empty() ? "--budget" : "--savable",
         o_.savable.empty() ? o_.budget : o_.savable);
    pass("--strategy", o_.run.strategy);
    pass("--effort", std::to_string(o_.run.effort));
    pass("--cap", std::to_string(o_.cap.bytes.count));
    pass("--size", std::to_string(o_.run.size));
    pass("--warmup", std::to_string(o_.run.warmup));
    pass("--runs", std::to_string(o_.run.runs));
    pass("--seed", std::to_string(o_.run.seed));
    pass("--threads", std::to_string(o_.threads));
    const ChildEnd end = run_self(arguments, log, [&] { return cancelled(); });
    const std::string why = last_line(log);
    std::filesystem::remove(log);
    if (cancelled() || end.signal == SIGINT)
      throw Error(Errc::cancelled, "cancelled; what ran before is in " + o_.out +
                                       ", and --resume goes on from there");
    if (end.code == exit_out_of_memory || end.signal == SIGKILL ||
        (end.signal == SIGABRT && says_out_of_memory(why)))
      return std::nullopt;
    if (end.signal != 0)
      throw Error(Errc::io, what + " was ended by " + strsignal(end.signal) +
                                (why.empty() ? "" : ": " + why));
    if (end.code != done)
      throw Error(end.code == budget_not_reachable ? Errc::budget_unreachable : Errc::io,
                  plainly_said(why));
    std::ifstream in(result);
    nlohmann::json j = nlohmann::json::parse(in);
    in.close();
    std::filesystem::remove(result);
    return j;
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
      if (e.code() == Errc::cancelled) throw;
      m.fate = e.code() == Errc::budget_unreachable ? Fate::no_plan : Fate::failed;
      m.why = e.what();
    }
    done_ += batch;
    return m;
  }

 private:
  [[nodiscard]] bool cancelled() {
    interrupt_.poll();
    return interrupt_.token().stop_requested();
  }
  /// Without the name of this program, with which a child's line begins.
  static std::string plainly_said(const std::string& line) {
    constexpr std::string_view name = "compare: ";
    return line.starts_with(name) ? line.substr(name.size())
           : line.empty()         ? "it said nothing"
                                  : line;
  }

  /// A step's time grows with its batch, and so does what is left.
  void progress(const std::string& what) const {
    const double spent =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    std::fputs(what.c_str(), stderr);
    if (done_ > 0 && done_ < work_) {
      const double left = spent / static_cast<double>(done_) * static_cast<double>(work_ - done_);
      std::fprintf(stderr, left < 120 ? ", about %.0f s left" : ", about %.0f min left",
                   left < 120 ? left : left / 60);
    }
    std::fputc('\n', stderr);
  }

  Options o_;
  std::int64_t work_, done_ = 0;
  Interrupt interrupt_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  if (!(file << text << std::flush))
    throw Error(Errc::io, path.string() + ": could not be written");
}

/// The activations that TrainStep's plan spends most on, as a table.
std::string top_decisions(const std::filesystem::path& csv, std::size_t count) {
  std::ifstream in(csv);
  std::string line, out = "| activation | bytes | cost | runs |\n|---|--:|--:|--:|\n";
  std::getline(in, line);
  for (std::size_t i = 0; i < count && std::getline(in, line); ++i) {
    const std::vector<std::string> field = split(line);  // activation,decision,bytes,cost_us,runs
    if (field.size() != 5 || field[1] != "recompute") break;
    out += "| " + field[0] + " | " + format_bytes({std::stoll(field[2])}) + " | " + field[3] +
           " us | " + field[4] + " |\n";
  }
  return out;
}

/// What results can be compared by: a run under other flags is another run.
nlohmann::json settings_of(const Options& o, std::optional<Bytes> cap) {
  return {{"model", o.run.model},       {"config", o.run.config},      {"budget", o.budget_text()},
          {"strategy", o.run.strategy}, {"effort", o.run.effort},      {"size", o.run.size},
          {"seed", o.run.seed},         {"threads", o.threads},        {"warmup", o.run.warmup},
          {"steps", o.run.runs},        {"cap", cap ? cap->count : 0}, {"libtorch", TORCH_VERSION}};
}

/// What an earlier run with the same settings left in the folder.
std::vector<Measured> earlier_runs(const std::filesystem::path& file,
                                   const nlohmann::json& settings) {
  std::vector<Measured> runs;
  std::ifstream in(file);
  if (!in) return runs;
  const nlohmann::json j = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (j.is_discarded())
    throw Error(Errc::bad_argument, "--resume: " + file.string() +
                                        " is not whole; without --resume it is written anew");
  for (const auto& [key, value] : settings.items())
    if (!j.contains(key) || j[key] != value)
      throw Error(Errc::bad_argument, "--resume: " + file.string() + " was made with " + key + " " +
                                          (j.contains(key) ? j[key].dump() : "unknown") +
                                          ", and this run has " + value.dump());
  for (const auto& run : j.at("runs"))
    if (Measured m = measured_of(run); m.fate == Fate::ran || m.fate == Fate::out_of_memory)
      runs.push_back(std::move(m));
  return runs;
}

/// All that there is so far: a run of hours that ends early leaves what it had.
void write_results(const std::filesystem::path& folder, const std::vector<Measured>& runs,
                   nlohmann::json results, std::optional<Bytes> cap) {
  const auto model = results["model"].get<std::string>();
  results["runs"] = nlohmann::json::array();
  for (const Measured& m : runs) results["runs"].push_back(to_json(m));
  write(folder / "results.json", results.dump(1) + "\n");
  write(folder / "memory.svg", memory_chart(runs, model, cap));
  write(folder / "latency.svg", latency_chart(runs, model));
  write(folder / "summary.md", summary_table(runs));
}

/// `cap` is the line in the chart: what the user named, not what the machine has.
int compare(Options& o, std::optional<Bytes> cap) {
  const std::vector<std::int64_t> batches = numbers(o.batches);
  const std::vector<std::string> variants = variants_of(o);
  const std::filesystem::path folder = o.out;
  const nlohmann::json settings = settings_of(o, cap);
  const std::vector<Measured> earlier =
      o.resume ? earlier_runs(folder / "results.json", settings) : std::vector<Measured>{};
  std::int64_t work = 0;
  for (const std::int64_t batch : batches)
    for (const std::string& variant : variants)
      work += find_run(earlier, batch, variant) == nullptr ? batch : 0;
  Comparison comparison(o, work);
  std::vector<Measured> runs;
  for (const std::int64_t batch : batches)
    for (const std::string& variant : variants) {
      const Measured* known = find_run(earlier, batch, variant);
      runs.push_back(known != nullptr ? *known : comparison.measure(variant, batch));
      compare_bits(runs);
      write_results(folder, runs, settings, cap);
    }

  std::printf("%s, %s, budget %s\n\n%s\n", o.run.model.c_str(), o.run.config.c_str(),
              o.budget_text().c_str(), summary_table(runs).c_str());
  const std::filesystem::path last =
      folder / ("decisions_" + std::to_string(batches.back()) + ".csv");
  const Measured* compiled = find_run(runs, batches.back(), "TrainStep");
  if (compiled != nullptr && compiled->recomputed > 0 && std::filesystem::exists(last))
    std::printf("What TrainStep runs again at batch %lld, dearest first:\n\n%s\n",
                static_cast<long long>(batches.back()), top_decisions(last, 5).c_str());
  std::printf(
      "Written to %s: results.json, summary.md, memory.svg, latency.svg, decisions_<batch>.csv\n",
      o.out.c_str());
  const auto any = [&](const auto& is) { return std::any_of(runs.begin(), runs.end(), is); };
  if (any(bits_differ) || any([](const Measured& m) { return m.fate == Fate::failed; }))
    return check_failed;
  return any([](const Measured& m) { return m.fate == Fate::no_plan || m.over_budget(); })
             ? budget_not_reachable
             : done;
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
  if (!o.budget.empty() || !o.savable.empty())
    throw Error(Errc::bad_argument, "--max-batch: the cap is the budget; name no other");
  // a tenth for what is not LibTorch's allocator: oneDNN's scratchpads
  o.budget = std::to_string(o.cap.bytes.count * 9 / 10);
  o.run.runs = 1;
  make_folder("--out", o.out);
  Comparison comparison(o, 0);  // how many runs it takes is what is searched for
  std::map<std::int64_t, Forecast> forecasts;
  const auto forecast_of = [&](std::int64_t batch) -> const Forecast& {
    const auto [it, is_new] = forecasts.try_emplace(batch);
    if (!is_new) return it->second;
    std::fprintf(stderr, "planning batch %lld\n", static_cast<long long>(batch));
    try {
      if (const auto j = comparison.child("forecast", batch))
        it->second = {{j->at("eager").get<std::int64_t>()},
                      {j->at("floor").get<std::int64_t>()},
                      {j->at("planned").get<std::int64_t>()},
                      j->at("fits").get<bool>()};
    } catch (const Error& e) {
      if (e.code() != Errc::budget_unreachable) throw;
    }
    return it->second;
  };
  const Bytes budget{o.cap.bytes.count * 9 / 10};
  std::ostringstream table;
  table << "| variant | largest batch | found by | proven by a run inside the cap "
           "|\n|---|--:|---|---|\n";
  for (const std::string& variant : variants_of(o)) {
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
    table << "| " << variant << " | " << found << " | "
          << (by_running ? "running" : "planning: " + std::to_string(forecasted)) << " | "
          << (proven ? "yes" : "no") << " |\n";
  }
  write(std::filesystem::path(o.out) / "max_batch.md", table.str());
  std::printf("%s, %s, inside %s\n\n%s\nWritten to %s: max_batch.md\n", o.run.model.c_str(),
              o.run.config.c_str(), format_bytes(o.cap.bytes).c_str(), table.str().c_str(),
              o.out.c_str());
  return done;
}

int run_compare(int argc, char** argv) {
  Options o;
  Flags flags = flags_of(o);
  if (!flags.parse(argc, argv)) return done;
  if (o.cap.relative) throw Error(Errc::bad_argument, "--cap: name bytes, as 8GiB");
  static_cast<void>(variants_of(o));
  static_cast<void>(numbers(o.batches));
  // for the children; see above
  if (o.cap.bytes > Bytes{0}) setenv("MALLOC_MMAP_THRESHOLD_", "1048576", /*overwrite=*/0);
  if (o.max_batch) return find_largest(o);
  o.run.budget = budget_of(o);
  make_folder("--out", o.out);
  if (!o.child.empty()) {
    if (o.child == "TrainStep")
      o.run.decisions =
          (std::filesystem::path(o.out) / ("decisions_" + o.batches + ".csv")).string();
    return run_child(o);
  }
  Options limited = o;
  const std::optional<Bytes> named =
      o.cap.bytes > Bytes{0} ? std::optional{o.cap.bytes} : std::nullopt;
  if (!named) limited.cap.bytes = {kib_in("/proc/meminfo", "MemAvailable:").count * 9 / 10};
  return compare(limited, named);
}

}  // namespace

int main(int argc, char** argv) {
  return run("compare", [&] { return run_compare(argc, argv); });
}
