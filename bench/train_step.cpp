// A training step inside a budget beside stock eager, in one run: time, memory, planning.
//
//   train_step [--quick] [--only NAME] [--pairs N] [--threads N] [--json FILE] [--svg FILE]
//
// For each model and budget two copies take turns, step by step, on the same batch; the median of the ratios of their times is the
// result (see replay_overhead.cpp). Budgets are F + q (E - F): E is eager's peak, F what no schedule can go below. At the end both
// copies must be equal, bit for bit. A budget for which no plan is found is shown as such.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <reprise/error.hpp>
#include <reprise/report/svg.hpp>
#include <reprise/units.hpp>

#include "support/cli.hpp"
#include "support/output.hpp"
#include "support/progress.hpp"
#include "support/statistics.hpp"
#include "support/trainer.hpp"

namespace {

using examples::Mode;
using examples::quantile;
using examples::Trainer;
using examples::TrainerOptions;

struct Case {
  std::string name{}, what{};
  TrainerOptions trainer{};
  std::vector<double> savable{100, 70, 50, 35, 25};
  std::vector<double> share{};  // of the whole peak
};

struct Row {
  const Case* test = nullptr;
  std::string budget{};
  double aim = 0;  // 0: none
  std::optional<std::string> problem{};
  double eager_s = 0, step_s = 0, ratio = 0, low = 0, high = 0;
  examples::StepRecord last{};
  reprise::Bytes eager_peak{};
  double plan_s = 0;
};

const std::vector<Case>& cases() {
  using models::Config;
  static const std::vector<Case> all{
      {"resnet50", "ResNet-50, batch 8", {.model = "resnet50", .config = Config::full, .batch = 8}},
      {"resnet152", "ResNet-152, batch 4", {.model = "resnet152", .config = Config::full, .batch = 4}},
      {"bert", "BERT-base, 4 x 128", {.model = "bert", .config = Config::full, .batch = 4, .size = 128}},
      {"gpt2", "GPT-2, 2 x 256", {.model = "gpt2", .config = Config::full, .batch = 2, .size = 256}},
      {"resnet50-16", "ResNet-50, batch 16", {.model = "resnet50", .config = Config::full, .batch = 16}, {}, {50}},
      {"bert-16", "BERT-base, 16 x 128", {.model = "bert", .config = Config::full, .batch = 16, .size = 128}, {}, {50}},
  };
  return all;
}

double aim_of(double savable) { return savable == 100 ? 0.95 : savable == 50 ? 1.00 : savable == 25 ? 1.20 : 0; }

std::string percent(double value, const char* of) {
  char text[48];
  std::snprintf(text, sizeof text, "%.0f %% %s", value, of);
  return text;
}

Row measure(const Case& test, const reprise::Budget& budget, std::int64_t pairs) {
  Row row{.test = &test};
  TrainerOptions options = test.trainer;
  options.budget = budget;
  Trainer eager(test.trainer, Mode::eager), ours(options, Mode::replay);
  const auto batch = eager.make_batch(0);
  constexpr std::int64_t warm_up = 4;  // captured, replayed and timed, planned again with these times, arena touched
  std::vector<double> eager_s, step_s, ratios;
  try {
    for (std::int64_t i = 0; i < warm_up + pairs; ++i) {
      examples::StepRecord a, b;
      for (const bool first : {true, false}) {
        if (first == (i % 2 == 0)) a = eager.step(batch, ours.held());
        else b = ours.step(batch, eager.held());
      }
      row.plan_s += b.plan_seconds;
      row.eager_peak = a.peak;
      row.last = b;
      if (i < warm_up) continue;
      eager_s.push_back(a.seconds);
      step_s.push_back(b.seconds);
      ratios.push_back(b.seconds / a.seconds);
    }
  } catch (const reprise::Error& e) {
    if (e.code() != reprise::Errc::budget_unreachable) throw;
    row.problem = "no plan: " + std::string(e.what());
    return row;
  }
  row.eager_s = quantile(eager_s, 0.5);
  row.step_s = quantile(step_s, 0.5);
  row.ratio = quantile(ratios, 0.5);
  row.low = quantile(ratios, 0.25);
  row.high = quantile(ratios, 0.75);
  if (const auto difference = examples::first_difference(eager, ours)) row.problem = "NOT EQUAL: " + *difference;
  return row;
}

void print(const Row& row) {
  std::printf("%-22s%-16s", row.test->what.c_str(), row.budget.c_str());
  if (row.ratio == 0) {
    std::printf("%s\n", row.problem.value_or("").substr(0, 60).c_str());
    return;
  }
  std::printf("%11s%11s%11s%11s%11s%8.3f  %.3f-%.3f%8.1f s  %4zu again%s\n", format_bytes(row.eager_peak).c_str(),
              format_bytes(row.last.floor).c_str(), format_bytes(row.last.budget).c_str(), format_bytes(row.last.peak).c_str(),
              format_bytes(row.last.reserved_peak).c_str(), row.ratio, row.low, row.high, row.plan_s, row.last.recomputed,
              row.problem            ? ("  " + *row.problem).c_str()
              : row.aim == 0         ? ""
              : row.ratio <= row.aim ? "  met"
                                     : "  missed");
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Row& row) {
  nlohmann::ordered_json json{
      {"case", row.test->name}, {"budget", row.budget}, {"threads", torch::get_num_threads()}, {"problem", nullptr}};
  if (row.problem) json["problem"] = *row.problem;
  if (row.ratio == 0) return json;
  json.update({{"eager_peak_bytes", row.eager_peak.count},
               {"floor_bytes", row.last.floor.count},
               {"budget_bytes", row.last.budget.count},
               {"peak_bytes", row.last.peak.count},
               {"predicted_peak_bytes", row.last.predicted_peak.count},
               {"reserved_peak_bytes", row.last.reserved_peak.count},
               {"arena_bytes", row.last.arena.count},
               {"recomputed_nodes", row.last.recomputed},
               {"extra_time_predicted", row.last.extra_time_predicted},
               {"plan_s", row.plan_s},
               {"eager_step_s", row.eager_s},
               {"step_s", row.step_s},
               {"ratio", row.ratio},
               {"ratio_quartiles", {row.low, row.high}}});
  if (row.aim > 0) json["aim"] = row.aim;
  return json;
}

/// One column a row, eager's time as a line across.
std::string picture(const std::vector<Row>& rows) {
  std::vector<double> ratios;
  double most = 1;
  for (const Row& row : rows) {
    ratios.push_back(row.ratio);
    most = std::max(most, row.ratio);
  }
  reprise::Chart chart{{.title = "Step time inside a budget, eager is 1", .subtitle = "in the order of the table", .x_label = "row"},
                       {.x_max = static_cast<double>(rows.size()), .y_max = most}};
  chart.columns(ratios, {"#0b62a4"});
  chart.horizontal(1, "eager");
  return chart.svg();
}

int bench(int argc, char** argv) {
  bool quick = false;
  std::int64_t pairs = 0, threads = 0;
  std::string only, json, svg;
  examples::Flags flags("train_step", "Time and memory of a step inside a budget, beside eager.");
  flags.add("--quick", "few steps: is it in the right place?", quick);
  flags.add("--only", "NAME", "one case: resnet50, resnet152, bert, gpt2, resnet50-16 or bert-16", only);
  flags.add("--pairs", "N", "steps of each copy; 0: 9, or 3 where quick", pairs);
  flags.add("--threads", "N", "0: as LibTorch decides", threads, 0, 4096);
  flags.add("--json", "FILE", "write the results to a file", json);
  flags.add("--svg", "FILE", "draw them", svg);
  if (!flags.parse(argc, argv)) return examples::done;
  if (!json.empty()) examples::check_writable("--json", json);
  if (!svg.empty()) examples::check_writable("--svg", svg);
  if (threads > 0) torch::set_num_threads(static_cast<int>(threads));
  if (!only.empty() && std::ranges::find(cases(), only, &Case::name) == cases().end())
    throw reprise::Error(reprise::Errc::bad_argument, "--only " + only + ": no such case; see --help");
  if (pairs == 0) pairs = quick ? 3 : 9;

  std::printf("%-22s%-16s%11s%11s%11s%11s%11s%8s  %-11s%10s\n", "", "budget", "E", "F", "budget", "peak", "held", "ratio", "middle half",
              "planning");
  std::vector<Row> rows;
  const auto add = [&](const Case& test, const reprise::Budget& budget, std::string name, double aim) {
    rows.push_back(measure(test, budget, pairs));
    rows.back().budget = std::move(name);
    rows.back().aim = aim;
    print(rows.back());
  };
  for (const Case& test : cases()) {
    if (!only.empty() && test.name != only) continue;
    for (const double q : test.savable) add(test, reprise::Budget::savable(q), percent(q, "savable"), aim_of(q));
    for (const double q : test.share) add(test, reprise::Budget::share(q), percent(q, "of E"), 0);
  }
  auto results = nlohmann::ordered_json::array();
  bool equal = true;
  for (const Row& row : rows) {
    results.push_back(to_json(row));
    equal = equal && !(row.problem && row.ratio > 0);
  }
  const auto write = [](const std::string& path, const std::string& text) {
    std::ofstream file(path);
    if (!(file << text << std::flush)) throw reprise::Error(reprise::Errc::io, path + ": cannot be written");
  };
  if (!json.empty()) write(json, results.dump(2) + "\n");
  if (!svg.empty()) write(svg, picture(rows));
  return equal ? examples::done : examples::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("train_step", [&] { return bench(argc, argv); });
}
