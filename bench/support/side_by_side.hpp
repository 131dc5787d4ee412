#pragma once
// A copy inside a budget and an eager one that take turns, step by step, on the same batch: what
// the benchmarks of both ways share.
//
//   BudgetRow row;
//   if (run_pairs(row, eager, ours, pairs, [](std::int64_t i, const examples::StepRecord&) { return i >= 2; }))   // which pairs count
//     …                              row.ratio: the median of the ratios of their times; row.low, row.high: the middle half
//   results.push_back(common_json(row));
//   write_text(file, results.dump(2) + "\n");

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <reprise/base/error.hpp>

#include "support/cli.hpp"
#include "support/output.hpp"
#include "support/statistics.hpp"
#include "support/trainer.hpp"

namespace bench {

struct BudgetRow {
  std::string name{}, what{}, budget{};
  double aim = 0;  ///< 0: none
  std::optional<std::string> problem{};
  double eager_s = 0, step_s = 0, ratio = 0, low = 0, high = 0, plan_s = 0;
  examples::StepRecord last{};
  reprise::Bytes eager_peak{};

  /// Something is wrong with what was measured; a budget out of reach is not.
  [[nodiscard]] bool failed() const { return problem && ratio > 0; }
};

/// False, and row.problem says why, where the budget cannot be reached. `Eager`: a Trainer, or an
/// EagerProcess.
template <class Eager>
bool run_pairs(BudgetRow& row, Eager& eager, examples::Trainer& ours, std::int64_t pairs,
               const std::function<bool(std::int64_t, const examples::StepRecord&)>& counts) {
  const auto batch = ours.make_batch(0);
  std::vector<double> eager_s, step_s, ratios;
  try {
    for (std::int64_t i = 0; static_cast<std::int64_t>(ratios.size()) < pairs; ++i) {
      examples::StepRecord a, b;
      for (const bool first : {true, false}) {
        if (first == (i % 2 == 0)) a = eager.step(batch, ours.held());
        else b = ours.step(batch, eager.held());
      }
      row.plan_s += b.plan_seconds;
      row.eager_peak = a.peak;
      row.last = b;
      if (!counts(i, b)) continue;
      eager_s.push_back(a.seconds);
      step_s.push_back(b.seconds);
      ratios.push_back(b.seconds / a.seconds);
    }
  } catch (const reprise::Error& e) {
    if (e.code() != reprise::Errc::budget_unreachable) throw;
    row.problem = e.what();
    return false;
  }
  row.eager_s = examples::quantile(eager_s, 0.5);
  row.step_s = examples::quantile(step_s, 0.5);
  row.ratio = examples::quantile(ratios, 0.5);
  row.low = examples::quantile(ratios, 0.25);
  row.high = examples::quantile(ratios, 0.75);
  if (const auto difference = first_difference(eager, ours))
    row.problem = "NOT EQUAL: " + *difference;
  return true;
}

[[nodiscard]] inline std::string verdict(const BudgetRow& row) {
  if (row.problem) return *row.problem;
  if (row.aim == 0) return "";
  return row.ratio <= row.aim ? "met" : "missed";
}

[[nodiscard]] inline nlohmann::ordered_json common_json(const BudgetRow& row) {
  nlohmann::ordered_json json{{"case", row.name},
                              {"budget", row.budget},
                              {"threads", torch::get_num_threads()},
                              {"problem", nullptr}};
  if (row.problem) json["problem"] = *row.problem;
  if (row.ratio == 0) return json;
  json.update({{"eager_peak_bytes", row.eager_peak.count},
               {"floor_bytes", row.last.floor.count},
               {"budget_bytes", row.last.budget.count},
               {"peak_bytes", row.last.peak.count},
               {"recomputed_nodes", row.last.recomputed},
               {"plan_s", row.plan_s},
               {"eager_step_s", row.eager_s},
               {"step_s", row.step_s},
               {"ratio", row.ratio},
               {"ratio_quartiles", {row.low, row.high}}});
  if (row.aim > 0) json["aim"] = row.aim;
  return json;
}

/// Flags that every benchmark of steps has.
struct StepFlags {
  bool quick = false;
  std::int64_t pairs = 0, threads = 0;
  std::string only, json;

  void add_to(examples::Flags& flags, const std::string& quick_help, const std::string& only_help,
              const std::string& pairs_help) {
    flags.add("--quick", quick_help, quick);
    flags.add("--only", "NAME", only_help, only);
    flags.add("--pairs", "N", pairs_help, pairs);
    flags.add("--threads", "N", "0: as LibTorch decides", threads, 0, 4096);
    flags.add("--json", "FILE", "write the results to a file", json);
  }
  /// After parsing: files that cannot be written and names that are none are refused before
  /// anything runs. `other`: what --only may name beside the cases.
  template <class Cases>
  void apply(const Cases& cases, const std::string& other = "") const {
    if (!json.empty()) examples::check_writable("--json", json);
    if (threads > 0) torch::set_num_threads(static_cast<int>(threads));
    if (only.empty() || only == other) return;
    for (const auto& each : cases)
      if (each.name == only) return;
    throw reprise::Error(reprise::Errc::bad_argument,
                         "--only " + only + ": no such case; see --help");
  }
  [[nodiscard]] bool wants(const std::string& name) const { return only.empty() || only == name; }
};

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text << std::flush))
    throw reprise::Error(reprise::Errc::io, path + ": cannot be written");
}

}  // namespace bench
