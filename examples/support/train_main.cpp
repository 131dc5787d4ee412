#include "support/train_main.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <optional>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>
#include <reprise/error.hpp>
#include <reprise/units.hpp>

#include "support/cli.hpp"
#include "support/progress.hpp"
#include "support/statistics.hpp"
#include "support/trainer.hpp"

namespace examples {
namespace {

struct Options {
  TrainerOptions trainer{};
  std::int64_t steps = 5;
  std::int64_t threads = 0;  // 0: as LibTorch decides
  bool compare = false;
  Mode mode = Mode::replay;
  std::string json{};
};

/// One variant's steps, summed up. The first one warms up and captures: it does not count, unless it is the only one.
struct Summary {
  std::vector<StepRecord> steps;

  [[nodiscard]] std::span<const StepRecord> steady() const { return std::span(steps).subspan(steps.size() > 1 ? 1 : 0); }
  /// The step with the highest peak, the last of them if there are several.
  [[nodiscard]] const StepRecord& highest() const {
    const StepRecord* found = &steady().front();
    for (const StepRecord& step : steady())
      if (step.peak >= found->peak) found = &step;
    return *found;
  }
  [[nodiscard]] reprise::Bytes optimizer_peak() const { return std::ranges::max(steady(), {}, &StepRecord::optimizer_peak).optimizer_peak; }
  [[nodiscard]] double seconds() const {
    std::vector<double> times;
    for (const StepRecord& step : steady()) times.push_back(step.seconds);
    return quantile(std::move(times), 0.5);
  }
};

struct Outcome {
  std::int64_t batch = 0;
  std::optional<Summary> eager{}, replay{};
  std::optional<std::string> first_difference{};
  std::vector<bool> equal{};  // after each step
  std::int64_t nodes = 0;
  reprise::StepCounters counters{};
};

bool parse(int argc, const char* const* argv, const TrainProgram& program, Options& options) {
  std::string config = "full", mode = "replay", variant = program.variants.empty() ? "" : program.variants.front();
  Flags flags(program.program, program.about);
  if (!program.variant_flag.empty()) flags.choose(program.variant_flag, program.variants, "which of the family", variant);
  flags.choose("--config", {"tiny", "full"}, "the published model, or one of the same structure for trying things", config);
  flags.add("--batch", "N", "samples in a batch; 0: the configuration's own", options.trainer.batch);
  if (!program.size_flag.empty()) {
    const bool sequence = program.size_flag == "--seq";
    const std::string what = sequence ? "tokens in a sequence" : "side of an image";
    flags.add(program.size_flag, "N", what + "; 0: the configuration's own", options.trainer.size);
  }
  flags.add("--steps", "N", "training steps", options.steps, 1);
  flags.add("--seed", "N", "of weights, data and dropout", options.trainer.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", options.threads, 0, 4096);
  flags.choose("--optimizer", {"sgd", "adam"}, "SGD with momentum 0.9, or Adam", options.trainer.optimizer);
  flags.choose("--mode", {"eager", "replay"}, "how forward and backward are run", mode);
  flags.add("--compare", "run eager beside replay and compare every bit after every step; exit code 1 where they differ", options.compare);
  flags.add("--json", "FILE", "write the results to a file", options.json);
  if (!flags.parse(argc, argv)) return false;
  options.trainer.model = program.model + variant;
  options.trainer.config = config == "tiny" ? models::Config::tiny : models::Config::full;
  options.mode = mode == "eager" ? Mode::eager : Mode::replay;
  return true;
}

std::string shown(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", loss);
  return text;
}

std::optional<std::string> compare(const Trainer& eager, const Trainer& replay, double eager_loss, double replay_loss) {
  const auto bits = [](double loss) { return std::bit_cast<std::uint64_t>(loss); };
  if (bits(eager_loss) != bits(replay_loss)) return "loss: " + shown(eager_loss) + " and " + shown(replay_loss);
  return first_difference(eager, replay);
}

Outcome train(const Options& options) {
  const bool with_eager = options.compare || options.mode == Mode::eager, with_replay = options.compare || options.mode == Mode::replay;
  std::optional<Trainer> eager, replay;
  if (with_eager) eager.emplace(options.trainer, Mode::eager);
  if (with_replay) replay.emplace(options.trainer, Mode::replay);
  const Trainer& any = eager ? *eager : *replay;

  Outcome outcome{.batch = any.task().batch};
  if (eager) outcome.eager.emplace();
  if (replay) outcome.replay.emplace();
  Progress progress(options.trainer.model, options.steps);
  for (std::int64_t i = 0; i < options.steps; ++i, progress.advance()) {
    const auto batch = any.make_batch(i);
    if (eager) outcome.eager->steps.push_back(eager->step(batch, replay ? replay->held() : reprise::Bytes{}));
    if (replay) outcome.replay->steps.push_back(replay->step(batch, eager ? eager->held() : reprise::Bytes{}));
    if (!options.compare) continue;
    const auto difference = compare(*eager, *replay, outcome.eager->steps.back().loss, outcome.replay->steps.back().loss);
    outcome.equal.push_back(!difference);
    if (difference && !outcome.first_difference) outcome.first_difference = "step " + std::to_string(i + 1) + ": " + *difference;
  }
  if (replay) {
    outcome.nodes = static_cast<std::int64_t>(replay->compiled()->graph().node_count());
    outcome.counters = replay->compiled()->counters();
  }
  return outcome;
}

void print(const Options& options, const Outcome& outcome) {
  const auto& t = options.trainer;
  std::printf("%s, %s, batch %lld, %s, %d %s\n\n", t.model.c_str(), t.config == models::Config::tiny ? "tiny" : "full",
              static_cast<long long>(outcome.batch), t.optimizer.c_str(), torch::get_num_threads(),
              torch::get_num_threads() == 1 ? "thread" : "threads");
  std::printf("  step%s%s%s\n", outcome.eager ? "      eager loss" : "", outcome.replay ? "     replay loss" : "",
              options.compare ? "   equal" : "");
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.steps); ++i) {
    std::printf("  %4zu", i + 1);
    for (const auto* variant : {&outcome.eager, &outcome.replay})
      if (*variant) std::printf("%16s", shown((*variant)->steps[i].loss).c_str());
    if (options.compare) std::printf("%8s", outcome.equal[i] ? "yes" : "no");
    std::printf("\n");
  }
  std::printf("\n  %-10s%16s%16s%16s%14s\n", "", "before the step", "peak", "predicted peak", "step time");
  const auto line = [](const char* name, const Summary& summary, bool predicted) {
    const StepRecord& highest = summary.highest();
    std::printf("  %-10s%16s%16s%16s%14s\n", name, format_bytes(highest.base).c_str(), format_bytes(highest.peak).c_str(),
                predicted ? format_bytes(highest.predicted_peak).c_str() : "", reprise::format_time({summary.seconds() * 1e6}).c_str());
  };
  if (outcome.eager) line("eager", *outcome.eager, false);
  if (outcome.replay) line("replay", *outcome.replay, true);
  if (outcome.replay) {
    const StepRecord& highest = outcome.replay->highest();
    const reprise::Bytes off = highest.peak - highest.predicted_peak;
    if (off == reprise::Bytes{0}) std::printf("\n  The predicted peak is the measured one, to the byte.");
    else std::printf("\n  Measured peak minus predicted: %lld bytes.", static_cast<long long>(off.count));
    std::printf("\n  %lld nodes; captured %lld, replayed %lld, run eagerly %lld.\n", static_cast<long long>(outcome.nodes),
                static_cast<long long>(outcome.counters.captures), static_cast<long long>(outcome.counters.replays),
                static_cast<long long>(outcome.counters.eager_runs));
  }
  if (!options.compare) return;
  if (outcome.first_difference) std::printf("\n  Not equal. First difference (eager and replay): %s\n", outcome.first_difference->c_str());
  else std::printf("\n  Equal: every loss, gradient, buffer, parameter and the generator's state, bit for bit.\n");
}

nlohmann::ordered_json losses_of(const Summary& summary) {
  auto losses = nlohmann::ordered_json::array();
  for (const StepRecord& step : summary.steps) losses.push_back(step.loss);
  return losses;
}

nlohmann::ordered_json to_json(const Options& options, const Outcome& outcome) {
  const auto& t = options.trainer;
  const Summary& main = outcome.replay ? *outcome.replay : *outcome.eager;
  nlohmann::ordered_json json{
      {"model", t.model},
      {"config", t.config == models::Config::tiny ? "tiny" : "full"},
      {"batch", outcome.batch},
      {"steps", options.steps},
      {"seed", t.seed},
      {"threads", torch::get_num_threads()},
      {"optimizer", t.optimizer},
      {"mode", options.compare ? "compare" : options.mode == Mode::eager ? "eager" : "replay"},
      {"equal", nullptr},
      {"first_difference", nullptr},
      {"losses", losses_of(main)},
      {"eager_losses", nullptr},
      {"eager_peak_bytes", nullptr},
      {"peak_bytes", main.highest().peak.count},
      {"predicted_peak_bytes", nullptr},
      {"base_bytes", main.highest().base.count},
      {"first_step_peak_bytes", main.steps.front().peak.count},
      {"optimizer_peak_bytes", main.optimizer_peak().count},
      {"eager_step_s", nullptr},
      {"step_s", main.seconds()},
      {"nodes", outcome.nodes},
      {"captures", outcome.counters.captures},
      {"replays", outcome.counters.replays},
      {"eager_runs", outcome.counters.eager_runs},
  };
  if (options.compare) json["equal"] = !outcome.first_difference;
  if (outcome.first_difference) json["first_difference"] = *outcome.first_difference;
  if (outcome.eager) {
    json["eager_losses"] = losses_of(*outcome.eager);
    json["eager_peak_bytes"] = outcome.eager->highest().peak.count;
    json["eager_step_s"] = outcome.eager->seconds();
  }
  if (outcome.replay) json["predicted_peak_bytes"] = main.highest().predicted_peak.count;
  return json;
}

void write(const std::string& path, const nlohmann::ordered_json& json) {
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  if (!file.flush()) throw reprise::Error(reprise::Errc::io, path + ": cannot be written");
}

}  // namespace

int train_main(int argc, const char* const* argv, const TrainProgram& program) {
  return run(program.program, [&]() -> int {
    Options options;
    if (!parse(argc, argv, program, options)) return done;
    if (options.threads > 0) torch::set_num_threads(static_cast<int>(options.threads));
    const Outcome outcome = train(options);
    print(options, outcome);
    if (!options.json.empty()) write(options.json, to_json(options, outcome));
    return outcome.first_difference ? check_failed : done;
  });
}

}  // namespace examples
