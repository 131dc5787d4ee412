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
#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/libtorch/options/step_report.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/plan/strategies.hpp>

#include "support/cli.hpp"
#include "support/output.hpp"
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
  Mode mode = Mode::compiled;  // what runs beside eager where both are compared
  std::string plan_out{}, json{}, report{};

  [[nodiscard]] bool budgeted() const { return trainer.budget.given(); }
};

/// One variant's steps, summed up. The first one warms up and captures: it does not count, unless
/// it is the only one.
struct Summary {
  std::vector<StepRecord> steps;

  [[nodiscard]] std::span<const StepRecord> steady() const {
    return std::span(steps).subspan(steps.size() > 1 ? 1 : 0);
  }
  /// The step with the highest peak, the last of them if there are several.
  [[nodiscard]] const StepRecord& highest() const {
    const StepRecord* found = &steady().front();
    for (const StepRecord& step : steady())
      if (step.peak >= found->peak) found = &step;
    return *found;
  }
  [[nodiscard]] reprise::Bytes reserved_peak() const {
    return std::ranges::max(steady(), {}, &StepRecord::reserved_peak).reserved_peak;
  }
  [[nodiscard]] std::int64_t arena_misses() const {
    return std::ranges::max(steady(), {}, &StepRecord::arena_misses).arena_misses;
  }
  [[nodiscard]] reprise::Bytes optimizer_peak() const {
    return std::ranges::max(steady(), {}, &StepRecord::optimizer_peak).optimizer_peak;
  }
  /// Of the steps from this one on.
  [[nodiscard]] double seconds(std::size_t from) const {
    std::vector<double> times;
    for (const StepRecord& step : std::span(steps).subspan(from)) times.push_back(step.seconds);
    return quantile(std::move(times), 0.5);
  }
  [[nodiscard]] double plan_seconds() const {
    double sum = 0;
    for (const StepRecord& step : steps) sum += step.plan_seconds;
    return sum;
  }
  /// By all steps but the first.
  [[nodiscard]] reprise::Bytes moved() const {
    reprise::Bytes sum{};
    for (const StepRecord& step : std::span(steps).subspan(1)) sum += step.moved;
    return sum;
  }
};

struct Outcome {
  std::int64_t batch = 0;
  std::optional<Summary> eager{}, replay{};
  std::optional<std::string> first_difference{};
  std::vector<bool> equal{};  // after each step

  /// The first step whose time counts, here and in eager's copy: the one after the last that a plan
  /// was made in; all but the first one where there is none such.
  [[nodiscard]] std::size_t timed_from() const {
    const std::size_t count = (replay ? *replay : *eager).steps.size();
    std::size_t from = count > 1 ? 1 : 0;
    for (std::size_t i = 1; replay && i + 1 < count; ++i)
      if (replay->steps[i].plan_seconds > 0) from = i + 1;
    return from;
  }
  std::int64_t nodes = 0;
  reprise::TrainStepCounters counters{};   // of compiled
  reprise::MemoryBudgetCounters guided{};  // of guided
  reprise::Bytes resident{};               // what the whole process grew by, at most
};

reprise::Error bad_flag(const std::string& what) {
  return {reprise::Errc::bad_argument, what + "; see --help"};
}

/// --budget or --savable, whichever was given.
reprise::Budget budget_of(const reprise::Size& budget, const reprise::Size& savable) {
  const auto given = [](const reprise::Size& size) {
    return size.relative || size.bytes > reprise::Bytes{0};
  };
  if (given(budget) && given(savable))
    throw bad_flag("--budget and --savable: only one of them can be given");
  if (given(savable) && !savable.relative) throw bad_flag("--savable: must be a share, as 50%");
  if (given(savable)) return reprise::Budget::savable(savable.percent);
  if (!given(budget)) return {};
  return budget.relative ? reprise::Budget::share(budget.percent) : reprise::Budget(budget.bytes);
}

/// What only a compiled step has: plan files, verification, steps that are moved out where no plan
/// fits.
bool wants_compiled(const Options& options) {
  return !options.plan_out.empty() || !options.trainer.plan_in.empty() || options.trainer.verify ||
         options.trainer.fallback;
}

/// Guided where a budget is given, unless something is asked for that only a compiled step has.
Mode mode_of(const std::string& name, const Options& options) {
  if (name == "eager") return Mode::eager;
  if (name == "guided") return Mode::guided;
  if (name == "compiled" || name == "replay") return Mode::compiled;
  return options.budgeted() && !wants_compiled(options) ? Mode::guided : Mode::compiled;
}

void check_consistent(const Options& options) {
  if (options.mode == Mode::compiled) return;
  if (options.mode == Mode::guided) {
    if (wants_compiled(options))
      throw bad_flag("--plan-in, --plan-out, --verify and --fallback need --mode compiled");
    return;
  }
  if (options.compare) throw bad_flag("--compare runs eager beside --mode compiled or guided");
  if (options.budgeted())
    throw bad_flag("--mode eager takes what it takes: a budget needs guided or compiled");
  if (!options.plan_out.empty() || !options.trainer.plan_in.empty())
    throw bad_flag("--mode eager has no plan: that needs compiled");
  if (options.trainer.verify || !options.report.empty())
    throw bad_flag("--mode eager has nothing to verify or report: that needs compiled or guided");
}

bool parse(int argc, const char* const* argv, const TrainProgram& program, Options& options) {
  std::string config = "full", mode = "auto",
              variant = program.variants.empty() ? "" : program.variants.front();
  Flags flags(program.program, program.about);
  if (!program.variant_flag.empty())
    flags.choose(program.variant_flag, program.variants, "which of the family", variant);
  flags.choose("--config", {"tiny", "full"},
               "the published model, or one of the same structure for trying things", config);
  flags.add("--batch", "N", "samples in a batch; 0: the configuration's own",
            options.trainer.batch);
  if (!program.size_flag.empty()) {
    const bool sequence = program.size_flag == "--seq";
    const std::string what = sequence ? "tokens in a sequence" : "side of an image";
    flags.add(program.size_flag, "N", what + "; 0: the configuration's own", options.trainer.size);
  }
  flags.add("--steps", "N", "training steps", options.steps, 1);
  flags.add("--seed", "N", "of weights, data, dropout and planning", options.trainer.seed);
  flags.add("--threads", "N", "0: as LibTorch decides", options.threads, 0, 4096);
  flags.choose("--optimizer", {"sgd", "adam"}, "SGD with momentum 0.9, or Adam",
               options.trainer.optimizer);
  flags.choose("--mode", {"auto", "guided", "compiled", "eager", "replay"},
               "how forward and backward are run: guided, the loop's own code inside a "
               "MemoryBudget (auto with --budget); compiled, a "
               "TrainStep from its graph (auto without; also called replay); eager",
               mode);
  flags.add(
      "--compare",
      "run eager beside it and compare every bit after every step; exit code 1 where they differ",
      options.compare);
  reprise::Size budget{}, savable{};
  flags.add(
      "--budget", "SIZE",
      "what a step may hold: 50% (of eager's peak), 2GiB or bytes; exit code 3 where no plan fits",
      budget);
  flags.add(
      "--savable", "P%",
      "the same, as a share of what can be saved: P % of the way from the floor to eager's peak",
      savable);
  flags.choose("--strategy", {reprise::strategy_names.begin(), reprise::strategy_names.end()},
               "how to plan", options.trainer.strategy);
  flags.add("--effort", "X", "of the planner's usual work: 2 searches twice as long",
            options.trainer.effort, 0, 1e6);
  flags.add("--fallback", "where no plan fits the budget, stay inside it by moving storages out",
            options.trainer.fallback);
  flags.add("--plan-out", "FILE", "write the plan of the last step", options.plan_out);
  flags.add("--plan-in", "FILE",
            "run this plan instead of making one; exit code 1 where it is another model's",
            options.trainer.plan_in);
  flags.add("--verify",
            "run eager inside every compiled step beside the replay and compare bit for bit; exit "
            "code 1 where they differ",
            options.trainer.verify);
  flags.add(
      "--report", "FILE.html",
      "write a page about the last step: memory before and after, what is computed again, frontier",
      options.report);
  flags.add("--json", "FILE", "write the results to a file", options.json);
  if (!flags.parse(argc, argv)) return false;
  options.trainer.budget = budget_of(budget, savable);
  options.trainer.model = program.model + variant;
  options.trainer.config = config == "tiny" ? models::Config::tiny : models::Config::full;
  options.mode = mode_of(mode, options);
  check_consistent(options);
  return true;
}

std::string shown(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", loss);
  return text;
}

std::optional<std::string> compare(const Trainer& eager, const Trainer& replay, double eager_loss,
                                   double replay_loss) {
  const auto bits = [](double loss) { return std::bit_cast<std::uint64_t>(loss); };
  if (bits(eager_loss) != bits(replay_loss))
    return "loss: " + shown(eager_loss) + " and " + shown(replay_loss);
  return first_difference(eager, replay);
}

/// The most that the process has held in memory so far, as the system counts it; 0 where it does
/// not say.
reprise::Bytes resident_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return {std::stoll(line.substr(6)) * 1024};
  return {};
}

Outcome train(const Options& options) {
  const reprise::Bytes idle = resident_peak();
  const bool with_eager = options.compare || options.mode == Mode::eager,
             with_replay = options.mode != Mode::eager;
  std::optional<Trainer> eager, replay;
  if (with_eager) eager.emplace(options.trainer, Mode::eager);
  if (with_replay) replay.emplace(options.trainer, options.mode);
  const Trainer& any = eager ? *eager : *replay;

  Outcome outcome{.batch = any.task().batch};
  if (eager) outcome.eager.emplace();
  if (replay) outcome.replay.emplace();
  Progress progress(options.trainer.model, options.steps);
  for (std::int64_t i = 0; i < options.steps; ++i, progress.advance()) {
    const auto batch = any.make_batch(i);
    if (eager)
      outcome.eager->steps.push_back(
          eager->step(batch, replay ? replay->held() : reprise::Bytes{}));
    if (replay)
      outcome.replay->steps.push_back(
          replay->step(batch, eager ? eager->held() : reprise::Bytes{}));
    if (!options.compare) continue;
    const auto difference = compare(*eager, *replay, outcome.eager->steps.back().loss,
                                    outcome.replay->steps.back().loss);
    outcome.equal.push_back(!difference);
    if (difference && !outcome.first_difference)
      outcome.first_difference = "step " + std::to_string(i + 1) + ": " + *difference;
  }
  if (replay && replay->guided() != nullptr) {
    const reprise::MemoryBudget& budget = *replay->guided();
    outcome.nodes = static_cast<std::int64_t>(budget.graph().node_count());
    outcome.guided = budget.counters();
    if (!options.report.empty()) budget.report(options.report);
  } else if (replay) {
    const CompiledStep& step = *replay->compiled();
    if (step.refusal().empty())
      outcome.nodes = static_cast<std::int64_t>(step.graph().node_count());
    outcome.counters = step.counters();
    if (!options.plan_out.empty()) step.save_plan(options.plan_out);
    if (!options.report.empty()) step.report(options.report);
  }
  outcome.resident = resident_peak() - idle;
  return outcome;
}

/// Above its budget, by how much at most. The first step is not asked where the budget is a share:
/// it is what the share is of.
reprise::Bytes above_budget(const Options& options, const Summary& replay) {
  reprise::Bytes most{};
  const bool known_at_first = options.trainer.budget.kind == reprise::Budget::Kind::bytes;
  for (const StepRecord& step : std::span(replay.steps).subspan(known_at_first ? 0 : 1))
    most = std::max(most, step.reserved_peak - step.budget);
  return most;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

void print_losses(const Options& options, const Outcome& outcome) {
  std::printf("  step%s%s%s\n", outcome.eager ? "      eager loss" : "",
              !outcome.replay                ? ""
              : options.mode == Mode::guided ? "     guided loss"
                                             : "   compiled loss",
              options.compare ? "   equal" : "");
  for (std::size_t i = 0; i < static_cast<std::size_t>(options.steps); ++i) {
    std::printf("  %4zu", i + 1);
    for (const auto* variant : {&outcome.eager, &outcome.replay})
      if (*variant) std::printf("%16s", shown((*variant)->steps[i].loss).c_str());
    if (options.compare) std::printf("%8s", outcome.equal[i] ? "yes" : "no");
    std::printf("\n");
  }
}

void print_measurements(const Options& options, const Outcome& outcome) {
  std::printf("\n  %-10s%16s%16s%16s%14s\n", "", "before the step", "peak", "predicted peak",
              "step time");
  const auto line = [&](const char* name, const Summary& summary, bool predicted) {
    const StepRecord& highest = summary.highest();
    std::printf("  %-10s%16s%16s%16s%14s\n", name, format_bytes(highest.base).c_str(),
                format_bytes(highest.peak).c_str(),
                predicted ? format_bytes(highest.predicted_peak).c_str() : "",
                reprise::format_time({summary.seconds(outcome.timed_from()) * 1e6}).c_str());
  };
  if (outcome.eager) line("eager", *outcome.eager, false);
  if (outcome.replay)
    line(options.mode == Mode::guided ? "guided" : "compiled", *outcome.replay, true);
}

/// Eager and the step inside the budget, side by side.
void print_budget(const Options& options, const Outcome& outcome) {
  const Summary& replay = *outcome.replay;
  const StepRecord& ours = replay.highest();
  const auto row = [&](const char* what, const std::string& eager, const std::string& budgeted) {
    if (outcome.eager) std::printf("  %-24s%14s%14s\n", what, eager.c_str(), budgeted.c_str());
    else std::printf("  %-24s%14s\n", what, budgeted.c_str());
  };
  const auto of_eager = [&](auto show) {
    return outcome.eager ? show(*outcome.eager) : std::string{};
  };
  const auto time = [](double seconds) { return reprise::format_time({seconds * 1e6}); };
  std::printf("\n");
  row("", "eager", options.mode == Mode::guided ? "guided" : "compiled");
  row("budget", "", format_bytes(ours.budget));
  row("predicted peak", "", format_bytes(ours.predicted_peak));
  row("held at most", "", format_bytes(replay.reserved_peak()));
  if (options.mode == Mode::compiled) row("  of that an arena", "", format_bytes(ours.arena));
  row("measured peak", of_eager([](const Summary& s) { return format_bytes(s.highest().peak); }),
      format_bytes(ours.peak));
  if (outcome.eager) {
    const double whole = static_cast<double>(outcome.eager->highest().peak.count);
    row("  of eager's", "", percent(static_cast<double>(ours.peak.count) / whole));
  }
  row("before the step", of_eager([](const Summary& s) { return format_bytes(s.highest().base); }),
      format_bytes(ours.base));
  row("without a budget", "", format_bytes(ours.unlimited_peak));
  row("no schedule is below", "", format_bytes(ours.floor));
  row("ops computed again", "",
      std::to_string(ours.recomputed) + " of " + std::to_string(outcome.nodes));
  row(options.mode == Mode::guided ? "time on these" : "extra time, predicted", "",
      percent(ours.extra_time_predicted));
  row("step time",
      of_eager([&](const Summary& s) { return time(s.seconds(outcome.timed_from())); }),
      time(replay.seconds(outcome.timed_from())));
  if (outcome.eager)
    row("  of eager's", "",
        percent(replay.seconds(outcome.timed_from()) /
                outcome.eager->seconds(outcome.timed_from())));
  row("planning, in all", "", time(replay.plan_seconds()));
  const reprise::Bytes moved_first = replay.steps.front().moved, moved_later = replay.moved();
  if (moved_first > reprise::Bytes{0}) row("moved out in step 1", "", format_bytes(moved_first));
  if (moved_later > reprise::Bytes{0}) row("moved out later", "", format_bytes(moved_later));
}

void print_compiled(const Options& options, const Outcome& outcome) {
  const auto number = [](std::int64_t n) { return static_cast<long long>(n); };
  const reprise::TrainStepCounters& counters = outcome.counters;
  std::printf("\n  %lld nodes; captured %lld, replayed %lld, run eagerly %lld",
              number(outcome.nodes), number(counters.captures), number(counters.replays),
              number(counters.eager_runs));
  if (options.budgeted()) std::printf("; planned %lld", number(counters.plans));
  std::printf(".\n");
  if (counters.verified > 0)
    std::printf("  Verified %lld times against eager inside the step: %lld not equal.\n",
                number(counters.verified), number(counters.differences));
}

void print_how(const Options& options, const Outcome& outcome) {
  const auto number = [](std::int64_t n) { return static_cast<long long>(n); };
  const StepRecord& highest = outcome.replay->highest();
  const reprise::TrainStepCounters& counters = outcome.counters;
  const reprise::Bytes off = highest.peak - highest.predicted_peak;
  if (!highest.replayed) std::printf("\n  That step did not run by a plan: nothing was predicted.");
  else if (off == reprise::Bytes{0})
    std::printf("\n  The predicted peak is the measured one, to the byte.");
  else std::printf("\n  Measured peak minus predicted: %lld bytes.", number(off.count));
  if (options.mode == Mode::guided) {
    std::printf("\n  %lld nodes; %lld steps planned, %lld online; %lld plans made.\n",
                number(outcome.nodes), number(outcome.guided.planned_steps),
                number(outcome.guided.online_steps), number(outcome.guided.plans));
  } else {
    print_compiled(options, outcome);
  }
  if (!options.report.empty()) std::printf("  The report is in %s.\n", options.report.c_str());
  if (!options.budgeted()) return;
  if (counters.fallbacks > 0)
    std::printf("  No plan fits the budget: %lld steps stayed inside it by moving storages out.\n",
                number(counters.fallbacks));
  if (const reprise::Bytes above = above_budget(options, *outcome.replay);
      above > reprise::Bytes{0})
    std::printf("  ABOVE the budget, by %lld bytes.\n", number(above.count));
  if (options.trainer.budget.kind == reprise::Budget::Kind::bytes) return;
  const std::string first = format_bytes(outcome.replay->steps.front().peak);
  std::printf("  A share is known once a step has been measured: the first one held %s.\n",
              first.c_str());
}

void print(const Options& options, const Outcome& outcome) {
  const auto& t = options.trainer;
  std::printf("%s, %s, batch %lld, %s, %d %s\n\n", t.model.c_str(),
              t.config == models::Config::tiny ? "tiny" : "full",
              static_cast<long long>(outcome.batch), t.optimizer.c_str(), torch::get_num_threads(),
              torch::get_num_threads() == 1 ? "thread" : "threads");
  print_losses(options, outcome);
  if (options.budgeted()) print_budget(options, outcome);
  else print_measurements(options, outcome);
  if (outcome.replay) print_how(options, outcome);
  if (!options.compare) return;
  if (outcome.first_difference)
    std::printf("\n  Not equal. First difference (eager and this): %s\n",
                outcome.first_difference->c_str());
  else
    std::printf(
        "\n  Equal: every loss, gradient, buffer, parameter and the generator's state, bit for "
        "bit.\n");
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
      {"mode", options.mode == Mode::eager    ? "eager"
               : options.mode == Mode::guided ? "guided"
                                              : "compiled"},
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
      {"step_s", main.seconds(outcome.timed_from())},
      {"nodes", outcome.nodes},
      {"captures", outcome.counters.captures},
      {"replays", outcome.counters.replays},
      {"eager_runs", outcome.counters.eager_runs},
      {"strategy", nullptr},
      {"budget_bytes", nullptr},
      {"floor_bytes", nullptr},
      {"unlimited_peak_bytes", nullptr},
      {"reserved_peak_bytes", main.reserved_peak().count},
      {"arena_bytes", main.highest().arena.count},
      {"arena_misses", main.arena_misses()},
      {"verified", outcome.counters.verified},
      {"refinements", outcome.counters.refinements},
      {"moved_bytes", main.moved().count},
      {"first_step_moved_bytes", main.steps.front().moved.count},
      {"plan_s", main.plan_seconds()},
      {"plans", outcome.counters.plans + outcome.guided.plans},
      {"recomputed_nodes", main.highest().recomputed},
      {"extra_time_predicted", main.highest().extra_time_predicted},
      {"resident_peak_bytes", outcome.resident.count},
      {"fallbacks", outcome.counters.fallbacks},
      {"planned_steps",
       options.mode == Mode::guided ? outcome.guided.planned_steps : outcome.counters.replays},
      {"online_steps", options.mode == Mode::guided ? outcome.guided.online_steps
                                                    : options.steps - outcome.counters.replays},
      {"brought_back_ops", outcome.guided.brought_back},
  };
  if (options.compare) json["equal"] = !outcome.first_difference;
  if (outcome.first_difference) json["first_difference"] = *outcome.first_difference;
  if (outcome.eager) {
    json["eager_losses"] = losses_of(*outcome.eager);
    json["eager_peak_bytes"] = outcome.eager->highest().peak.count;
    json["eager_step_s"] = outcome.eager->seconds(outcome.timed_from());
  }
  if (outcome.replay) {
    if (main.highest().replayed) json["predicted_peak_bytes"] = main.highest().predicted_peak.count;
    json["floor_bytes"] = main.highest().floor.count;
    if (main.highest().unlimited_peak > reprise::Bytes{0})
      json["unlimited_peak_bytes"] = main.highest().unlimited_peak.count;
  }
  if (options.budgeted()) {
    json["strategy"] = t.strategy;
    json["budget_bytes"] = main.highest().budget.count;
  }
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
    if (!options.json.empty()) check_writable("--json", options.json);
    if (!options.report.empty()) check_writable("--report", options.report);
    if (!options.plan_out.empty()) check_writable("--plan-out", options.plan_out);
    const Outcome outcome = train(options);
    print(options, outcome);
    if (!options.json.empty()) write(options.json, to_json(options, outcome));
    const bool above =
        options.budgeted() && above_budget(options, *outcome.replay) > reprise::Bytes{0};
    return outcome.first_difference || above || outcome.counters.differences > 0 ? check_failed
                                                                                 : done;
  });
}

}  // namespace examples
