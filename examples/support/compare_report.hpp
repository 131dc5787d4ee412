#pragma once
// What a comparison of variants says: a table, two bar charts, and the numbers as JSON. Needs no
// LibTorch.
//
//   std::vector<Measured> runs = {{.variant = "eager", .batch = 8, .peak = 900_MiB, .seconds = {1.1, 1.0}},
//                                 {.variant = "TrainStep", .batch = 8, .peak = 450_MiB, .seconds = {1.2, 1.1}, .equal = "yes"}};
//   summary_table(runs);       | 8 | TrainStep | 450 MiB | 50.0 % | … | 110 % | yes |
//   memory_chart(runs, cap);   bars side by side for each batch size, labelled with their share of eager
//
// What did not fit is in all of them, as "out of memory".

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reprise/base/units.hpp>
#include <reprise/report/svg.hpp>

#include "statistics.hpp"

namespace examples {

enum class Fate { ran, out_of_memory, no_plan, failed };

struct Measured {
  std::string variant{};
  std::int64_t batch = 0;
  Fate fate = Fate::ran;
  std::string why{};  ///< where it did not run
  /// of LibTorch's allocator, at most during a step; arenas count as a whole
  reprise::Bytes peak{};
  reprise::Bytes live{};            ///< the same, of what is in use in arenas: what a plan predicts
  reprise::Bytes resident{};        ///< of the process, at most during a step
  reprise::Bytes predicted{};       ///< 0 where nobody predicts
  reprise::Bytes budget{};          ///< 0 for none
  std::vector<double> seconds{};    ///< forward and backward, step by step
  std::size_t recomputed = 0;       ///< ops that ran again in a step; 0 where that is not counted
  std::vector<std::string> bits{};  ///< a digest of loss and gradients after each step
  std::string equal{};  ///< to eager: "yes" or "no"; where eager did not run, to the first that did

  [[nodiscard]] bool over_budget() const {
    return fate == Fate::ran && budget > reprise::Bytes{0} && peak > budget;
  }
  [[nodiscard]] double median() const { return seconds.empty() ? 0 : quantile(seconds, 0.5); }
};

inline constexpr const char* variant_names[] = {"eager", "checkpoint", "MemoryBudget", "TrainStep"};

[[nodiscard]] inline const Measured* find_run(const std::vector<Measured>& runs, std::int64_t batch,
                                              const std::string& variant) {
  for (const Measured& m : runs)
    if (m.batch == batch && m.variant == variant) return &m;
  return nullptr;
}

[[nodiscard]] inline std::vector<std::int64_t> batches_of(const std::vector<Measured>& runs) {
  std::vector<std::int64_t> all;
  for (const Measured& m : runs)
    if (std::find(all.begin(), all.end(), m.batch) == all.end()) all.push_back(m.batch);
  return all;
}

/// What the bits of a batch size are compared with: eager's where it ran, else those of the first
/// that ran.
[[nodiscard]] inline const Measured* bits_reference(const std::vector<Measured>& runs,
                                                    std::int64_t batch) {
  const Measured* eager = find_run(runs, batch, "eager");
  if (eager != nullptr && eager->fate == Fate::ran) return eager;
  for (const Measured& m : runs)
    if (m.batch == batch && m.fate == Fate::ran) return &m;
  return nullptr;
}

/// Says of each run whether its loss, gradients and buffers are eager's, bit for bit.
inline void compare_bits(std::vector<Measured>& runs) {
  for (Measured& m : runs) {
    if (m.fate != Fate::ran) continue;
    const Measured* other = bits_reference(runs, m.batch);
    const bool same = m.bits == other->bits, eager = other->variant == "eager";
    if (eager) m.equal = same ? "yes" : "no";
    else m.equal = other == &m ? "not known" : (same ? "as " : "not as ") + other->variant;
  }
}
[[nodiscard]] inline bool bits_differ(const Measured& m) {
  return m.equal == "no" || m.equal.starts_with("not as");
}

[[nodiscard]] inline std::string percent_text(double part, double whole) {
  return whole > 0 ? reprise::reporting::short_number(100 * part / whole, 1) + " %" : "";
}

[[nodiscard]] inline std::string summary_table(const std::vector<Measured>& runs) {
  std::ostringstream out;
  out << "| batch | variant | allocator peak | of eager | in use | predicted | resident peak | "
         "step, median | middle half | of eager | ran again | equal to eager |\n"
      << "|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";
  for (const Measured& m : runs) {
    out << "| " << m.batch << " | " << m.variant << " | ";
    if (m.fate != Fate::ran) {
      out << (m.fate == Fate::out_of_memory
                  ? "out of memory"
                  : (m.fate == Fate::no_plan ? "no plan: " : "failed: ") + m.why)
          << " | | | | | | | | | |\n";
      continue;
    }
    const Measured* eager = find_run(runs, m.batch, "eager");
    const bool known = eager != nullptr && eager->fate == Fate::ran;
    const auto share = [&](double part, double whole) {
      return known ? percent_text(part, whole) : std::string("not known");
    };
    out << format_bytes(m.peak)
        << (m.over_budget() ? ", over the budget of " + format_bytes(m.budget) : "") << " | "
        << share(static_cast<double>(m.peak.count),
                 known ? static_cast<double>(eager->peak.count) : 0)
        << " | " << format_bytes(m.live) << " | "
        << (m.predicted > reprise::Bytes{0} ? format_bytes(m.predicted) : "") << " | "
        << format_bytes(m.resident) << " | "
        << reprise::reporting::short_number(m.median() * 1000, 1) << " ms | "
        << reprise::reporting::short_number(quantile(m.seconds, 0.25) * 1000, 1) << " to "
        << reprise::reporting::short_number(quantile(m.seconds, 0.75) * 1000, 1) << " | "
        << share(m.median(), known ? eager->median() : 0) << " | "
        << (m.recomputed > 0 ? std::to_string(m.recomputed) : "") << " | " << m.equal << " |\n";
  }
  return out.str();
}

namespace detail {

inline constexpr const char* variant_colors[] = {"#8a8d91", "#f28e2b", "#59a14f", "#4e79a7"};

/// Bars side by side for each batch size; `value` gives a bar's height.
template <class Value>
std::string bars(const std::vector<Measured>& runs, const std::string& title,
                 reprise::reporting::AxisUnit unit, const Value& value,
                 std::optional<reprise::Bytes> cap) {
  const std::vector<std::int64_t> batches = batches_of(runs);
  double most = cap ? static_cast<double>(cap->count) : 0;
  for (const Measured& m : runs)
    if (m.fate == Fate::ran) most = std::max(most, value(m));
  const reprise::reporting::AxisTicks axis = reprise::reporting::axis_ticks(most * 1.08, unit);
  reprise::reporting::Chart chart{
      {.title = title,
       .subtitle = "% of eager at the same batch size; numbers without % are" + axis.suffix,
       .x_label = "batch size",
       .unit = unit},
      {.x_max = static_cast<double>(batches.size()), .y_max = most * 1.08}};
  std::vector<std::string> names;
  for (const std::int64_t b : batches) names.push_back(std::to_string(b));
  chart.categories(names);
  constexpr double width = 0.2, margin = 0.1;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    const Measured* eager = find_run(runs, batches[i], "eager");
    for (std::size_t v = 0; v < std::size(variant_names); ++v) {
      const Measured* m = find_run(runs, batches[i], variant_names[v]);
      if (m == nullptr) continue;
      const double left = static_cast<double>(i) + margin + width * static_cast<double>(v);
      if (m->fate != Fate::ran) {
        chart.label(left + width / 2, 0,
                    m->fate == Fate::out_of_memory ? "OOM"
                    : m->fate == Fate::no_plan     ? "no plan"
                                                   : "failed");
        continue;
      }
      chart.box(left + 0.01, left + width - 0.01, 0, value(*m), variant_colors[v],
                m->variant + ", batch " + std::to_string(m->batch) + ": " + format_bytes(m->peak) +
                    ", " + reprise::reporting::short_number(m->median() * 1000, 1) + " ms");
      const bool shares = eager != nullptr && eager->fate == Fate::ran && v > 0;
      chart.label(left + width / 2, value(*m),
                  shares
                      ? reprise::reporting::short_number(100 * value(*m) / value(*eager), 0) + "%"
                      : reprise::reporting::short_number(value(*m) / axis.unit,
                                                         value(*m) < 10 * axis.unit ? 2 : 1));
    }
  }
  if (cap) chart.horizontal(static_cast<double>(cap->count), "limit " + format_bytes(*cap));
  std::vector<reprise::reporting::LegendEntry> legend;
  for (std::size_t v = 0; v < std::size(variant_names); ++v)
    legend.push_back({variant_colors[v], variant_names[v]});
  chart.legend(std::move(legend));
  return chart.svg();
}

}  // namespace detail

[[nodiscard]] inline std::string memory_chart(const std::vector<Measured>& runs,
                                              const std::string& model,
                                              std::optional<reprise::Bytes> cap) {
  return detail::bars(
      runs, model + ": peak memory by batch size", reprise::reporting::AxisUnit::bytes,
      [](const Measured& m) { return static_cast<double>(m.peak.count); }, cap);
}
[[nodiscard]] inline std::string latency_chart(const std::vector<Measured>& runs,
                                               const std::string& model) {
  return detail::bars(
      runs, model + ": time of a step by batch size", reprise::reporting::AxisUnit::microseconds,
      [](const Measured& m) { return m.median() * 1e6; }, std::nullopt);
}

inline nlohmann::json to_json(const Measured& m) {
  constexpr const char* fates[] = {"ran", "out of memory", "no plan", "failed"};
  return {{"variant", m.variant},
          {"batch", m.batch},
          {"fate", fates[static_cast<int>(m.fate)]},
          {"why", m.why},
          {"peak_bytes", m.peak.count},
          {"live_bytes", m.live.count},
          {"resident_bytes", m.resident.count},
          {"predicted_bytes", m.predicted.count},
          {"budget_bytes", m.budget.count},
          {"seconds", m.seconds},
          {"recomputed", m.recomputed},
          {"bits", m.bits},
          {"equal_to_eager", m.equal}};
}

[[nodiscard]] inline Measured measured_of(const nlohmann::json& j) {
  Measured m;
  m.variant = j.at("variant").get<std::string>();
  m.batch = j.at("batch").get<std::int64_t>();
  const auto fate = j.at("fate").get<std::string>();
  m.fate = fate == "ran"             ? Fate::ran
           : fate == "out of memory" ? Fate::out_of_memory
           : fate == "no plan"       ? Fate::no_plan
                                     : Fate::failed;
  m.why = j.at("why").get<std::string>();
  m.peak = {j.at("peak_bytes").get<std::int64_t>()};
  m.live = {j.at("live_bytes").get<std::int64_t>()};
  m.resident = {j.at("resident_bytes").get<std::int64_t>()};
  m.predicted = {j.at("predicted_bytes").get<std::int64_t>()};
  m.budget = {j.at("budget_bytes").get<std::int64_t>()};
  m.seconds = j.at("seconds").get<std::vector<double>>();
  m.recomputed = j.at("recomputed").get<std::size_t>();
  m.bits = j.at("bits").get<std::vector<std::string>>();
  m.equal = j.at("equal_to_eager").get<std::string>();
  return m;
}

}  // namespace examples
