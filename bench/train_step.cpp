// A training step inside a budget beside stock eager, in one run: time, memory, planning.
//
//   train_step [--quick] [--only NAME] [--at Q] [--pairs N] [--threads N] [--json FILE] [--svg FILE]
//
// For each model and budget two copies take turns, step by step, on the same batch; the median of
// the ratios of their times is the result (see replay_overhead.cpp). Budgets are F + q (E - F): E
// is eager's peak, F what no schedule can go below. At the end both copies must be equal, bit for
// bit. A budget for which no plan is found is shown as such.
//
// What is timed: forward and backward of replayed steps, from the third after the last plan was
// made on (captured, replayed and timed, planned once more with these times, the new arena
// touched). Rechecks are off: they run the user's own code, at eager's time and a little more.
// Resident memory is measured in processes of their own, one for eager and one for each budget
// (given in bytes, so that the first step is bounded as well): what a process that trains three
// steps grows by, the model included.
//
// The last line is the executor's own cost: a program of 1000 ops on one number beside the same
// calls made by hand below autograd.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <reprise/base/error.hpp>
#include <reprise/base/units.hpp>
#include <reprise/plan/plan_file.hpp>
#include <reprise/profile/mem_probes/resident_probe.hpp>
#include <reprise/report/svg.hpp>

#include "cases.hpp"
#include "side_by_side.hpp"

namespace {

using examples::Mode;
using examples::quantile;
using examples::Trainer;
using examples::TrainerOptions;

struct Case : bench::ModelCase {
  std::vector<double> savable{100, 70, 50, 35, 25};
  std::vector<double> share{};  // of the whole peak
};

struct Row : bench::BudgetRow {
  const Case* test = nullptr;
  reprise::Bytes resident{}, eager_resident{};
};

const std::vector<Case>& cases() {
  using models::Config;
  static const std::vector<Case> all{
      {bench::resnet50},
      {bench::resnet152},
      {bench::bert},
      {bench::gpt2},
      {{"resnet50-16",
        "ResNet-50, batch 16",
        {.model = "resnet50", .config = Config::full, .batch = 16}},
       {},
       {50}},
      {{"bert-16",
        "BERT-base, 16 x 128",
        {.model = "bert", .config = Config::full, .batch = 16, .size = 128}},
       {},
       {50}},
  };
  return all;
}

double aim_of(double savable) {
  return savable == 100 ? 0.95 : savable == 50 ? 1.00 : savable == 25 ? 1.20 : 0;
}

std::string percent(double value, const char* of) {
  char text[48];
  std::snprintf(text, sizeof text, "%.0f %% %s", value, of);
  return text;
}

// ── resident memory, in processes of their own ───────────────────────────────────────────────────

constexpr int resident_steps = 3;

/// In the child: trains, and prints what the process has grown by.
int print_resident(const Case& test, std::int64_t budget, const std::string& plan) {
  const reprise::Bytes idle = reprise::ResidentProbe::process_peak();
  TrainerOptions options = test.trainer;
  if (budget > 0) options.budget = reprise::Budget(reprise::Bytes{budget});
  options.plan_in = plan;
  Trainer trainer(options, budget > 0 ? Mode::replay : Mode::eager);
  const auto batch = trainer.make_batch(0);
  for (int i = 0; i < resident_steps; ++i) trainer.step(batch);
  std::printf("resident %lld\n",
              static_cast<long long>((reprise::ResidentProbe::process_peak() - idle).count));
  return examples::done;
}

/// Of eager where no budget is given; 0 where the child failed.
reprise::Bytes resident_of(const Case& test, reprise::Bytes budget = {},
                           const std::string& plan = {}) {
  std::string command = "\"" + std::filesystem::read_symlink("/proc/self/exe").string() +
                        "\" --child --only " + test.name + " --threads " +
                        std::to_string(torch::get_num_threads());
  if (budget > reprise::Bytes{0})
    command += " --child-budget " + std::to_string(budget.count) + " --child-plan \"" + plan + "\"";
  std::FILE* child = ::popen(command.c_str(), "r");
  if (child == nullptr) return {};
  long long bytes = 0;
  char line[256];
  while (std::fgets(line, sizeof line, child) != nullptr)
    static_cast<void>(std::sscanf(line, "resident %lld", &bytes));
  return ::pclose(child) == 0 ? reprise::Bytes{bytes} : reprise::Bytes{0};
}

reprise::Bytes resident_inside(const Case& test, const Trainer& ours, reprise::Bytes budget) {
  const auto plan = std::filesystem::temp_directory_path() /
                    ("reprise-bench-" + std::to_string(::getpid()) + ".plan.json");
  ours.compiled()->save_plan(plan);
  const reprise::Bytes resident = resident_of(test, budget, plan.string());
  std::filesystem::remove(plan);
  return resident;
}

// ── time ─────────────────────────────────────────────────────────────────────────────────────────

Row measure(const Case& test, const reprise::Budget& budget, std::int64_t pairs, bool resident) {
  Row row;
  row.test = &test;
  row.name = test.name;
  row.what = test.what;
  TrainerOptions options = test.trainer;
  options.budget = budget;
  std::optional<Trainer> eager(std::in_place, test.trainer, Mode::eager);
  Trainer ours(options, Mode::replay);
  int settled = -2;  // steps since the last plan
  const auto counts = [&](std::int64_t, const examples::StepRecord& step) {
    settled = step.plan_seconds > 0 ? 0 : settled + 1;
    return settled >= 3;
  };
  if (!bench::run_pairs(row, *eager, ours, pairs, counts)) return row;
  if (row.last.peak != row.last.predicted_peak) row.problem = "the peak is not the predicted one";
  eager.reset();
  if (resident) row.resident = resident_inside(test, ours, row.last.budget);
  return row;
}

/// Microseconds that the executor spends on an op beside the op itself.
double executor_overhead() {
  constexpr int ops = 1000, rounds = 200;
  auto p = torch::ones({1}).requires_grad_();
  const auto chain = [&](torch::Tensor y) {
    for (int i = 0; i < ops; ++i) y = at::neg(y);
    return y;
  };
  const auto x = torch::ones({1});
  // All ops but one are on a tensor that needs no gradient: the program is the chain.
  auto captured = reprise::capture(
      std::vector<torch::Tensor>{p}, [&](const torch::Tensor& in) { return (chain(in) * p).sum(); },
      {}, x);
  reprise::LibTorchProgram program(captured, reprise::own_order(captured.graph()));
  const auto model = reprise::tensors::tensors_of(std::vector<torch::Tensor>{p});
  const std::vector<torch::Tensor> inputs{x};
  const auto seconds = [](const auto& run) {
    const auto start = std::chrono::steady_clock::now();
    run();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<double> difference;
  for (int i = 0; i < rounds; ++i) {
    p.mutable_grad() = torch::Tensor();
    const double ours = seconds([&] {
      program.run({model.parameters, model.buffers, inputs, model.parameters});
    });
    const double bare = seconds([&] {
      const at::AutoDispatchBelowADInplaceOrView below;
      chain(x);
    });
    difference.push_back((ours - bare) * 1e6 / ops);
  }
  return quantile(difference, 0.5);
}

void print(const Row& row) {
  std::printf("%-22s%-16s", row.what.c_str(), row.budget.c_str());
  if (row.ratio == 0) {
    std::printf("below the smallest feasible peak found: %s\n", row.problem.value_or("").c_str());
    return;
  }
  std::printf("%11s%11s%11s%11s%11s%11s%11s%8.3f  %.3f-%.3f%8.1f s%6zu%8.1f %%  %s\n",
              format_bytes(row.eager_peak).c_str(), format_bytes(row.last.floor).c_str(),
              format_bytes(row.last.budget).c_str(), format_bytes(row.last.peak).c_str(),
              format_bytes(row.last.reserved_peak).c_str(), format_bytes(row.resident).c_str(),
              format_bytes(row.eager_resident).c_str(), row.ratio, row.low, row.high, row.plan_s,
              row.last.recomputed, 100 * row.last.extra_time_predicted,
              bench::verdict(row).c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Row& row) {
  nlohmann::ordered_json json = bench::common_json(row);
  if (row.ratio == 0) return json;
  json.update({{"predicted_peak_bytes", row.last.predicted_peak.count},
               {"reserved_peak_bytes", row.last.reserved_peak.count},
               {"arena_bytes", row.last.arena.count},
               {"resident_peak_bytes", row.resident.count},
               {"eager_resident_peak_bytes", row.eager_resident.count},
               {"extra_time_predicted", row.last.extra_time_predicted}});
  return json;
}

/// One column a row, a colour a model; eager's time as a line across. Where no plan was found there
/// is no column.
std::string picture(const std::vector<Row>& rows) {
  static constexpr std::string_view colours[] = {"#0b62a4", "#a4480b", "#2f7d32",
                                                 "#7a3fa0", "#6b7280", "#a40b5c"};
  std::vector<double> ratios;
  std::vector<std::string_view> colour;
  std::vector<std::string> names;
  std::vector<reprise::reporting::LegendEntry> legend;
  double most = 1;
  for (const Row& row : rows) {
    const auto k = static_cast<std::size_t>(row.test - cases().data()) % std::size(colours);
    ratios.push_back(row.ratio);
    colour.push_back(colours[k]);
    names.push_back(row.budget.substr(0, row.budget.find(' ')) +
                    (row.budget.ends_with("E") ? " % E" : " %"));
    if (legend.empty() || legend.back().label != row.what)
      legend.push_back({std::string(colours[k]), row.what});
    most = std::max(most, row.ratio);
  }
  reprise::reporting::Chart chart{
      {.title = "Step time inside a budget, eager is 1",
       .subtitle = "budget: per cent of the way from the floor F to eager's peak E",
       .x_label = "budget"},
      {.x_max = static_cast<double>(rows.size()), .y_max = most}};
  chart.columns(ratios, colour);
  chart.categories(names);
  chart.legend(legend);
  chart.horizontal(1, "eager");
  return chart.svg();
}

int run(int argc, char** argv) {
  bench::StepFlags options;
  bool child = false;
  std::int64_t at = 0, child_budget = 0;
  std::string svg, child_plan;
  examples::Flags flags("train_step", "Time and memory of a step inside a budget, beside eager.");
  options.add_to(flags, "few steps, and no resident memory: is it in the right place?",
                 "one case: resnet50, resnet152, bert, gpt2, resnet50-16, bert-16 or overhead",
                 "steps of each copy; 0: 9, or 3 where quick");
  flags.add("--at", "Q", "one budget of those of each case; 0: all", at, 0, 100);
  flags.add("--svg", "FILE", "draw them", svg);
  flags.add("--child", "of the benchmark's own use: measures resident memory", child);
  flags.add("--child-budget", "BYTES", "of a child", child_budget);
  flags.add("--child-plan", "FILE", "of a child", child_plan);
  if (!flags.parse(argc, argv)) return examples::done;
  if (!svg.empty()) examples::check_writable("--svg", svg);
  options.apply(cases(), "overhead");
  const auto chosen = std::ranges::find(cases(), options.only, &Case::name);
  if (child && chosen != cases().end()) return print_resident(*chosen, child_budget, child_plan);
  const bool quick = options.quick;
  const std::int64_t pairs = options.pairs > 0 ? options.pairs : quick ? 3 : 9;

  std::vector<Row> rows;
  const auto add = [&](const Case& test, const reprise::Budget& budget, std::string name,
                       double aim, reprise::Bytes eager_resident) {
    rows.push_back(measure(test, budget, pairs, !quick));
    rows.back().budget = std::move(name);
    rows.back().aim = aim;
    rows.back().eager_resident = eager_resident;
    print(rows.back());
  };
  if (options.only != "overhead")
    std::printf("%-22s%-16s%11s%11s%11s%11s%11s%11s%11s%8s  %-11s%10s%6s%10s\n", "", "budget", "E",
                "F", "budget", "peak", "held", "resident", "eager's", "ratio", "middle half",
                "planning", "again", "predicted");
  const auto wanted = [&](double q) { return at == 0 || static_cast<double>(at) == q; };
  for (const Case& test : cases()) {
    if (!options.wants(test.name)) continue;
    const reprise::Bytes eager_resident = quick ? reprise::Bytes{} : resident_of(test);
    for (const double q : test.savable)
      if (wanted(q))
        add(test, reprise::Budget::savable(q), percent(q, "savable"), aim_of(q), eager_resident);
    for (const double q : test.share)
      if (wanted(q)) add(test, reprise::Budget::share(q), percent(q, "of E"), 0, eager_resident);
  }
  if (options.wants("overhead")) {
    const double us = executor_overhead();
    std::printf("executor, per op beside the op itself: %.2f us (aim: under 2) %s\n", us,
                us < 2 ? "met" : "missed");
  }
  auto results = nlohmann::ordered_json::array();
  bool equal = true;
  for (const Row& row : rows) {
    results.push_back(to_json(row));
    equal = equal && !row.failed();
  }
  if (!options.json.empty()) bench::write_text(options.json, results.dump(2) + "\n");
  if (!svg.empty()) bench::write_text(svg, picture(rows));
  return equal ? examples::done : examples::check_failed;
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run("train_step", [&] { return run(argc, argv); });
}
