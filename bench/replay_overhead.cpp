// How long a replayed step takes compared with eager, forward and backward, side by side in one
// run.
//
//   replay_overhead [--quick] [--only NAME] [--pairs N] [--threads N] [--json FILE]
//
// Two copies of the model take turns, step by step, on the same batch; who goes first alternates.
// Each turn of both gives one ratio; the median of the ratios is the result, the quartiles are its
// spread. What disturbs the machine for longer than a step disturbs both alike. At the end both
// copies must be equal, bit for bit: a fast wrong step is no result.

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>

#include "side_by_side.hpp"
#include "support/progress.hpp"

namespace {

using examples::Mode;
using examples::quantile;
using examples::Trainer;
using examples::TrainerOptions;

struct Case {
  std::string name{};
  std::string what{};
  TrainerOptions trainer{};
  double aim = 1;
  std::int64_t pairs = 15;
  std::int64_t quick_pairs = 3;
};

struct Result {
  std::vector<double> eager_s{}, replay_s{}, ratios{};
  std::int64_t nodes = 0;
  std::optional<std::string> difference{};
};

const std::vector<Case>& cases() {
  using models::Config;
  static const std::vector<Case> all{
      {"resnet50",
       "ResNet-50, batch 8",
       {.model = "resnet50", .config = Config::full, .batch = 8},
       1.00,
       15,
       3},
      {"bert",
       "BERT-base, batch 4 x 128",
       {.model = "bert", .config = Config::full, .batch = 4, .size = 128},
       1.00,
       15,
       3},
      {"deep_mlp",
       "MLP, 200 layers of 16, batch 4",
       {.model = "deep_mlp", .config = Config::full, .batch = 4},
       0.80,
       301,
       51},
  };
  return all;
}

Result measure(const Case& test, std::int64_t pairs) {
  Trainer eager(test.trainer, Mode::eager), replay(test.trainer, Mode::replay);
  const auto batch = eager.make_batch(0);
  Result result;
  constexpr std::int64_t warm_up = 2;  // the first step of the replaying copy captures
  examples::Progress progress(test.name, warm_up + pairs);
  for (std::int64_t i = 0; i < warm_up + pairs; ++i, progress.advance()) {
    double eager_s = 0, replay_s = 0;
    for (const bool first : {true, false}) {
      if (first == (i % 2 == 0)) eager_s = eager.step(batch).seconds;
      else replay_s = replay.step(batch).seconds;
    }
    if (i < warm_up) continue;
    result.eager_s.push_back(eager_s);
    result.replay_s.push_back(replay_s);
    result.ratios.push_back(replay_s / eager_s);
  }
  result.nodes = static_cast<std::int64_t>(replay.compiled()->graph().node_count());
  result.difference = examples::first_difference(eager, replay);
  if (!result.difference && replay.compiled()->counters().replays != warm_up + pairs - 1)
    result.difference = "not every step was replayed: " + replay.compiled()->refusal();
  return result;
}

void print(const Case& test, const Result& result) {
  const auto time = [](double seconds) { return reprise::format_time({seconds * 1e6}); };
  const double ratio = quantile(result.ratios, 0.5), low = quantile(result.ratios, 0.25),
               high = quantile(result.ratios, 0.75);
  std::printf("%-32s%7lld%12s%12s%9.3f   %.3f to %.3f%9.2f   %s\n", test.what.c_str(),
              static_cast<long long>(result.nodes), time(quantile(result.eager_s, 0.5)).c_str(),
              time(quantile(result.replay_s, 0.5)).c_str(), ratio, low, high, test.aim,
              ratio <= test.aim ? "met" : "missed");
  if (result.difference) std::printf("  Not equal: %s\n", result.difference->c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Case& test, const Result& result) {
  return {
      {"case", test.name},
      {"model", test.trainer.model},
      {"batch", test.trainer.batch},
      {"pairs", result.ratios.size()},
      {"nodes", result.nodes},
      {"threads", torch::get_num_threads()},
      {"eager_step_s", quantile(result.eager_s, 0.5)},
      {"step_s", quantile(result.replay_s, 0.5)},
      {"ratio", quantile(result.ratios, 0.5)},
      {"ratio_quartiles", {quantile(result.ratios, 0.25), quantile(result.ratios, 0.75)}},
      {"aim", test.aim},
      {"equal", !result.difference},
  };
}

int run(int argc, char** argv) {
  bench::StepFlags options;
  examples::Flags flags("replay_overhead",
                        "Replay time over eager time, interleaved: at most the aim is wanted.");
  options.add_to(flags, "few steps: is it in the right place?",
                 "one case: resnet50, bert or deep_mlp",
                 "steps of each copy; 0: as many as the case needs");
  if (!flags.parse(argc, argv)) return examples::done;
  options.apply(cases());

  std::printf("%-32s%7s%12s%12s%9s   %-16s%7s\n", "", "nodes", "eager", "replay", "ratio",
              "middle half", "aim");
  auto results = nlohmann::ordered_json::array();
  bool equal = true;
  for (const Case& test : cases()) {
    if (!options.wants(test.name)) continue;
    const Result result = measure(test, options.pairs > 0 ? options.pairs
                                        : options.quick   ? test.quick_pairs
                                                          : test.pairs);
    print(test, result);
    results.push_back(to_json(test, result));
    equal = equal && !result.difference;
  }
  if (!options.json.empty()) bench::write_text(options.json, results.dump(2) + "\n");
  return equal ? examples::done : examples::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("replay_overhead", [&] { return run(argc, argv); });
}
