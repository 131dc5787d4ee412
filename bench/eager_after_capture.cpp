// Does a process that has captured a step run eager as fast as one that never has? Aim: at most
// 1.01.
//
//   eager_after_capture [--quick] [--json FILE]
//
// Two processes with the same model, of which one has captured a step before it begins, run eager
// steps in turn, one waiting while the other runs: what disturbs the machine for longer than a step
// disturbs both. The median of the ratios is the result.
//
//   parent ──'g'──▶ plain     runs one eager step ──seconds──▶ parent
//          ──'g'──▶ captured  runs one eager step ──seconds──▶ parent          and so on, who goes first alternating

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <reprise/base/error.hpp>
#include <reprise/libtorch.hpp>

#include "support/cli.hpp"
#include "support/progress.hpp"
#include "support/statistics.hpp"
#include "support/trainer.hpp"

namespace {

constexpr double aim = 1.01;

reprise::Error failed(const std::string& what) { return {reprise::Errc::io, "worker: " + what}; }

examples::TrainerOptions options_of(const std::string& model) {
  return {.model = model,
          .config = model == "deep_mlp" ? models::Config::full : models::Config::tiny};
}

/// The worker's side: a step for each byte that arrives, its seconds as bytes back.
int work(const std::string& model, bool captured) {
  examples::Trainer trainer(options_of(model), examples::Mode::eager);
  const auto batch = trainer.make_batch(0);
  for (int i = 0; i < 3; ++i) trainer.step(batch);
  if (captured) {
    examples::Trainer other(options_of(model), examples::Mode::replay);
    for (int i = 0; i < 3; ++i) other.step(batch);
  }
  for (char go = 0; read(STDIN_FILENO, &go, 1) == 1;) {
    const double seconds = trainer.step(batch).seconds;
    if (write(STDOUT_FILENO, &seconds, sizeof seconds) != sizeof seconds)
      return examples::bad_input;
  }
  return examples::done;
}

/// The parent's side of one worker process.
class Worker {
 public:
  Worker(const std::string& model, const char* kind) {
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) throw failed("no pipe");
    child_ = fork();
    if (child_ < 0) throw failed("no process");
    if (child_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      for (int end : {in[0], in[1], out[0], out[1]}) close(end);
      execl("/proc/self/exe", "eager_after_capture", "--worker", kind, "--model", model.c_str(),
            static_cast<char*>(nullptr));
      _exit(examples::bad_input);
    }
    close(in[0]);
    close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  ~Worker() {
    close(to_);
    close(from_);
    waitpid(child_, nullptr, 0);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  double step() {
    double seconds = 0;
    if (write(to_, "g", 1) != 1 || read(from_, &seconds, sizeof seconds) != sizeof seconds)
      throw failed("it has ended");
    return seconds;
  }

 private:
  pid_t child_ = -1;
  int to_ = -1, from_ = -1;
};

nlohmann::ordered_json compare(const std::string& model, std::int64_t pairs) {
  Worker plain(model, "plain"), captured(model, "captured");
  std::vector<double> ratios, plain_s, captured_s;
  plain.step();
  captured.step();
  examples::Progress progress(model, pairs);
  for (std::int64_t i = 0; i < pairs; ++i, progress.advance()) {
    double a = 0, b = 0;
    for (const bool first : {true, false}) {
      if (first == (i % 2 == 0)) a = plain.step();
      else b = captured.step();
    }
    plain_s.push_back(a);
    captured_s.push_back(b);
    ratios.push_back(b / a);
  }
  using examples::quantile;
  return {{"model", model},
          {"pairs", pairs},
          {"plain_step_s", quantile(plain_s, 0.5)},
          {"captured_step_s", quantile(captured_s, 0.5)},
          {"ratio", quantile(ratios, 0.5)},
          {"ratio_quartiles", {quantile(ratios, 0.25), quantile(ratios, 0.75)}},
          {"aim", aim}};
}

int bench(int argc, char** argv) {
  bool quick = false;
  std::string worker, model = "resnet50", json;
  examples::Flags flags(
      "eager_after_capture",
      "Eager step time in a process that has captured a step, over that in one that has not.");
  flags.add("--quick", "few steps: is it in the right place?", quick);
  flags.add("--json", "FILE", "write the results to a file", json);
  flags.choose("--worker", {"plain", "captured"}, "used by the program itself", worker);
  flags.add("--model", "NAME", "used by the program itself", model);
  if (!flags.parse(argc, argv)) return examples::done;
  if (!worker.empty()) return work(model, worker == "captured");

  std::printf("%-12s%14s%14s%9s   %-16s%7s\n", "", "never", "captured", "ratio", "middle half",
              "aim");
  auto results = nlohmann::ordered_json::array();
  for (const auto* name : {"resnet50", "bert", "deep_mlp"}) {
    const auto result = compare(name, quick ? 51 : 501);
    const auto time = [&](const char* field) {
      return reprise::format_time({result[field].get<double>() * 1e6});
    };
    const auto ratio = result["ratio"].get<double>();
    const auto low = result["ratio_quartiles"][0].get<double>(),
               high = result["ratio_quartiles"][1].get<double>();
    std::printf("%-12s%14s%14s%9.3f   %.3f to %.3f%9.2f   %s\n", name, time("plain_step_s").c_str(),
                time("captured_step_s").c_str(), ratio, low, high, aim,
                ratio <= aim ? "met" : "missed");
    std::fflush(stdout);
    results.push_back(result);
  }
  if (json.empty()) return examples::done;
  std::ofstream file(json);
  file << results.dump(2) << '\n';
  if (!file.flush()) throw reprise::Error(reprise::Errc::io, json + ": cannot be written");
  return examples::done;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("eager_after_capture", [&] { return bench(argc, argv); });
}
