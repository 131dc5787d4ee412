#pragma once
// Writes and reads reprise.plan, version 1: a Plan as a JSON document.
//
// ```cpp
// write_plan_file("plan.json", graph, plan);
// PlanFile read = read_plan_file("plan.json", graph);       // ids looked up, digest compared
// std::vector<std::string> untrue = false_claims(graph, read);
// Plan same = plan_from_file("resnet50.plan.json", graph);    // refused for another graph
// ```
//
// The schedule is written in the graph file's own node ids. The digest covers everything on which a
// schedule's meaning depends: sizes, and who reads and makes which values. It does not cover names,
// open fields of the format, and measurements (times and workspaces), which differ from one capture
// of a model to the next.

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/hash_bytes.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/json_records.hpp>
#include <reprise/plan/planner.hpp>
#include <reprise/plan/step_plans.hpp>

namespace reprise::planning {

/// The begin of this library's digests; other digests are not compared.
inline constexpr std::string_view graph_hash_kind = "reprise-1:";

/// FNV-1a over everything that a schedule's meaning depends on, as 16 hexadecimal digits.
[[nodiscard]] inline std::string graph_hash(const StepGraph& graph) {
  std::uint64_t h = fnv_start;
  const auto mix = [&](std::uint64_t x) {
    for (int i = 0; i < 8; ++i, x >>= 8) h = fnv_step(h, x & 255);
  };
  const auto mix_value = [&](ValueId v) {
    mix(v.valid() ? static_cast<std::uint64_t>(graph.value(v).id) : ~std::uint64_t{0});
  };
  for (const Value& v : graph.values()) {
    mix(static_cast<std::uint64_t>(v.id));
    mix(static_cast<std::uint64_t>(v.bytes.count));
    mix((v.persistent ? 1u : 0u) | (v.initial ? 2u : 0u));
    mix_value(v.alias_of);
    mix_value(v.overwrites);
  }
  for (NodeId n : graph.node_ids()) {
    const Node& node = graph.node(n);
    mix(static_cast<std::uint64_t>(node.id));
    mix(node.recomputable ? 1 : 0);
    for (auto list : {graph.inputs(n), graph.outputs(n), graph.updates(n)}) {
      mix(list.size());
      for (ValueId v : list) mix_value(v);
    }
  }
  for (ValueId v : graph.outputs()) mix_value(v);
  char text[32];
  std::snprintf(text, sizeof text, "%s%016llx", std::string(graph_hash_kind).c_str(),
                static_cast<unsigned long long>(h));
  return text;
}

/// The content of a plan file: a schedule and claims about it, each of which may be missing.
struct PlanFile {
  Schedule schedule{};
  std::optional<std::string> graph{}, graph_hash{}, strategy{};
  std::optional<double> budget{}, time{}, baseline_time{};
  std::optional<double> peak{}, baseline_peak{};

  /// What TrainStep's save_plan() and load_plan() call.
  static void write(const std::filesystem::path& path, const StepGraph& graph, const Plan& plan);
  /// Throws Errc::io where there is no such file; it is read when the graph is known.
  [[nodiscard]] static GivenPlan reader(const std::filesystem::path& path);
};

[[nodiscard]] inline std::string plan_text(const StepGraph& graph, const Plan& plan) {
  const auto number = [&](NodeId n) { return graph.node(n).id; };
  const nlohmann::ordered_json document = {
      {"format", "reprise.plan"},
      {"version", 1},
      {"graph", as_utf8(graph.name())},
      {"graph_hash", graph_hash(graph)},
      {"budget_bytes", plan.budget.count},
      {"peak_bytes", plan.peak.count},
      {"time_us", plan.time.count},
      {"baseline_peak_bytes", plan.baseline_peak.count},
      {"baseline_time_us", plan.baseline_time.count},
      {"strategy", plan.strategy},
      {"seed", plan.seed},
      {"plan_seconds", plan.seconds},
      {"schedule", plan.schedule | ranges::views::transform(number) | ranges::to<std::vector>()},
  };
  return document.dump() + '\n';
}

/// Writes the whole file or nothing: to a new file next to it, which then replaces it. Follows
/// links. Writes directly to what is no file (a device, a pipe).
inline void write_file_atomically(const std::string& name, const std::string& text) {
  std::error_code failed;
  std::filesystem::path target{name};
  if (std::filesystem::is_symlink(target, failed))
    target = std::filesystem::weakly_canonical(target, failed);
  const std::string path = failed ? name : target.string();
  if (std::filesystem::exists(path, failed) && !std::filesystem::is_regular_file(path, failed) &&
      !std::filesystem::is_directory(path, failed)) {
    std::ofstream out{path, std::ios::binary};
    if (!(out << text << std::flush))
      throw Error(Errc::io, path + ": could not be written completely");
    return;
  }
  const std::string part = path + ".part";
  {
    std::ofstream out{part, std::ios::binary};
    if (!out) throw Error(Errc::io, path + ": cannot be opened for writing");
    if (!(out << text << std::flush)) {
      out.close();
      std::remove(part.c_str());
      throw Error(Errc::io, path + ": could not be written completely");
    }
  }
  std::filesystem::rename(part, path, failed);
  if (failed) {
    std::remove(part.c_str());
    throw Error(Errc::io, path + ": " + failed.message());
  }
}

inline void write_plan_file(const std::string& path, const StepGraph& graph, const Plan& plan) {
  write_file_atomically(path, plan_text(graph, plan));
}

/// Reads the members of a plan file in any order; ignores unknown members.
class PlanReader {
 public:
  static bool begin_list(std::string_view) { return false; }
  static void record(std::string_view, std::size_t, const JsonFields&) {}

  void member(const JsonField& f) {
    take(f, "graph", file_.graph);
    take(f, "graph_hash", file_.graph_hash);
    take(f, "strategy", file_.strategy);
    take(f, "budget_bytes", file_.budget);
    take(f, "peak_bytes", file_.peak);
    take(f, "time_us", file_.time);
    take(f, "baseline_peak_bytes", file_.baseline_peak);
    take(f, "baseline_time_us", file_.baseline_time);
    if (f.key == "format") is_plan_ = f.kind == JsonKind::string && f.text == "reprise.plan";
    if (f.key == "version") is_version_1_ = f.kind == JsonKind::integer && f.integer == 1;
    if (f.key == "schedule") schedule_ = f;
  }

  [[nodiscard]] PlanFile finish(const StepGraph& graph) {
    if (!is_plan_) throw Error(Errc::bad_format, "format: not a reprise.plan");
    if (!is_version_1_) throw Error(Errc::bad_format, "version: not 1");
    if (schedule_.kind != JsonKind::array) throw Error(Errc::bad_format, "schedule: not a list");
    if (!schedule_.only_integers) throw refuse_schedule();
    std::unordered_map<std::int64_t, NodeId> node_of;
    for (NodeId n : graph.node_ids()) node_of.emplace(graph.node(n).id, n);
    for (std::int64_t id : schedule_.integers) {
      const auto it = node_of.find(id);
      if (it == node_of.end())
        throw Error(Errc::bad_schedule, "schedule: step " + std::to_string(file_.schedule.size()) +
                                            ": no node " + std::to_string(id) + whose(graph));
      file_.schedule.push_back(it->second);
    }
    return std::move(file_);
  }

 private:
  [[nodiscard]] std::string whose(const StepGraph& graph) const {
    if (file_.graph_hash && file_.graph_hash->starts_with(graph_hash_kind) &&
        *file_.graph_hash != graph_hash(graph))
      return "; the plan was made for another model, or for other shapes";
    return file_.graph
               ? "; the plan is for '" + *file_.graph + "', the graph is '" + graph.name() + "'"
               : "";
  }

  static void take(const JsonField& f, std::string_view key, std::optional<std::string>& out) {
    if (f.key != key) return;
    if (f.kind != JsonKind::string) throw Error(Errc::bad_format, f.key + ": not a string");
    out = f.text;
  }
  static void take(const JsonField& f, std::string_view key, std::optional<double>& out) {
    if (f.key != key) return;
    if (f.kind != JsonKind::integer && f.kind != JsonKind::number)
      throw Error(Errc::bad_format, f.key + ": not a number");
    out = f.number;
  }

  /// The error for the first item of the list that is no integer.
  [[nodiscard]] Error refuse_schedule() const {
    const nlohmann::json list = nlohmann::json::parse(json_text(schedule_));
    const auto is_id = [](const nlohmann::json& step) {
      constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
      return step.is_number_unsigned() ? step.get<std::uint64_t>() <= most
                                       : step.is_number_integer();
    };
    const auto wrong = std::ranges::find_if_not(list, is_id);
    const std::string where = "schedule: step " + std::to_string(wrong - list.begin()) + ": ";
    return wrong->is_object()
               ? Error(Errc::bad_schedule, where + "transfers are not part of version 1")
               : Error(Errc::bad_format, where + "not a node id");
  }

  PlanFile file_{};
  JsonField schedule_{};
  bool is_plan_ = false, is_version_1_ = false;
};

/// Throws Errc::bad_format if the text is not a plan, Errc::bad_schedule if it names other nodes or
/// another graph.
[[nodiscard]] inline PlanFile parse_plan(const std::string& text, const StepGraph& graph) {
  PlanReader reader;
  read_json_records(text, reader);
  return reader.finish(graph);
}

[[nodiscard]] inline PlanFile read_plan_file(const std::string& path, const StepGraph& graph) {
  std::ifstream in{path, std::ios::binary};
  if (!in) throw Error(Errc::io, path + ": cannot be opened for reading");
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) throw Error(Errc::io, path + ": cannot be read");
  try {
    return parse_plan(text.str(), graph);
  } catch (const Error& e) {
    throw Error(e.code(), path + ": " + e.what());
  }
}

/// The wrong claims of a plan file, one line each: an invalid schedule, another graph, a wrong peak
/// or time. A peak above the budget is not wrong: a plan does not claim to be inside its budget.
[[nodiscard]] inline std::vector<std::string> false_claims(const StepGraph& graph,
                                                           const PlanFile& file) {
  std::vector<std::string> lines;
  if (file.graph && *file.graph != graph.name())
    lines.push_back("graph: the plan is for '" + *file.graph + "', not for '" + graph.name() + "'");
  if (file.graph_hash && file.graph_hash->starts_with(graph_hash_kind) &&
      *file.graph_hash != graph_hash(graph))
    lines.push_back("graph_hash: the plan was made for another graph (" + *file.graph_hash +
                    ", not " + graph_hash(graph) + ")");
  const Simulation s = simulate(graph, file.schedule), baseline = simulate(graph, own_order(graph));
  if (!s.valid) {
    lines.push_back("schedule: " + s.violation->message);
    return lines;
  }
  const auto compare = [&](const char* field, const std::optional<double>& claimed, double is,
                           double tolerance) {
    if (!claimed ||
        std::abs(*claimed - is) <= tolerance * std::max(std::abs(*claimed), std::abs(is)))
      return;
    std::ostringstream line;
    line.precision(17);
    line << field << ": the plan claims " << *claimed << ", it is " << is;
    lines.push_back(line.str());
  };
  compare("peak_bytes", file.peak, static_cast<double>(s.peak.count), 0);
  compare("baseline_peak_bytes", file.baseline_peak, static_cast<double>(baseline.peak.count), 0);
  compare("time_us", file.time, s.time.count, 1e-6);
  compare("baseline_time_us", file.baseline_time, baseline.time.count, 1e-6);
  return lines;
}

/// Throws Errc::bad_schedule if the file was made for another graph, or its schedule cannot be run.
[[nodiscard]] inline Plan plan_from_file(const std::string& path, const StepGraph& graph) {
  const PlanFile file = read_plan_file(path, graph);
  if (file.graph_hash && file.graph_hash->starts_with(graph_hash_kind) &&
      *file.graph_hash != graph_hash(graph))
    throw Error(Errc::bad_schedule,
                "'" + path + "' was made for another model, or for other shapes: its graph is " +
                    *file.graph_hash + ", this one is " + graph_hash(graph));
  Plan plan = plan_own_order(graph);
  plan.schedule = file.schedule;
  const Simulation cost = simulate(graph, plan.schedule);
  if (!cost.valid) throw Error(Errc::bad_schedule, "'" + path + "': " + cost.violation->message);
  plan.peak = cost.peak;
  plan.time = cost.time;
  plan.strategy = file.strategy.value_or("file");
  return plan;
}

inline void PlanFile::write(const std::filesystem::path& path, const StepGraph& graph,
                            const Plan& plan) {
  write_plan_file(path.string(), graph, plan);
}

inline GivenPlan PlanFile::reader(const std::filesystem::path& path) {
  if (!std::ifstream(path))
    throw Error(Errc::io,
                "cannot read the plan file '" + path.string() + "': " + std::strerror(errno));
  return [path](const StepGraph& now) { return plan_from_file(path.string(), now); };
}

}  // namespace reprise::planning

namespace reprise {
using planning::parse_plan;
using planning::plan_from_file;
using planning::plan_text;
using planning::PlanFile;
using planning::read_plan_file;
using planning::write_plan_file;
}  // namespace reprise
