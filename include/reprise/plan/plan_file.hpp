#pragma once
// reprise.plan, version 1: a Plan as a JSON document, in and out.
//
//   write_plan_file("plan.json", graph, plan);
//   PlanFile file = read_plan_file("plan.json", graph);       // ids looked up, digest compared
//   std::vector<std::string> untrue = false_claims(graph, file);
//
// The schedule is written in the graph file's own node ids. The digest covers what a schedule's meaning depends on: sizes, and who
// reads and makes what. Names, what the format leaves open, and measurements (times, workspaces: they differ from one capture of a
// model to the next) are not part of it.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include <reprise/error.hpp>
#include <reprise/plan/planner.hpp>

namespace reprise {

/// What this library's digests start with; others are not compared.
inline constexpr std::string_view graph_hash_kind = "reprise-1:";

/// FNV-1a over everything that a schedule's meaning depends on, as 16 hexadecimal digits.
[[nodiscard]] inline std::string graph_hash(const StepGraph& graph) {
  std::uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&](std::uint64_t x) {
    for (int i = 0; i < 8; ++i, x >>= 8) h = (h ^ (x & 255)) * 0x100000001b3u;
  };
  const auto mix_value = [&](ValueId v) { mix(v.valid() ? static_cast<std::uint64_t>(graph.value(v).id) : ~std::uint64_t{0}); };
  for (const Value& v : graph.values()) {
    mix(static_cast<std::uint64_t>(v.id));
    mix(static_cast<std::uint64_t>(v.bytes.count));
    mix((v.persistent ? 1u : 0u) | (v.initial ? 2u : 0u));
    mix_value(v.alias_of);
    mix_value(v.overwrites);
  }
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const NodeId n{i};
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
  std::snprintf(text, sizeof text, "%s%016llx", std::string(graph_hash_kind).c_str(), static_cast<unsigned long long>(h));
  return text;
}

/// A plan as it stands in a file: a schedule and claims about it, each of which may be missing.
struct PlanFile {
  Schedule schedule{};
  std::optional<std::string> graph{}, graph_hash{}, strategy{};
  std::optional<double> budget{}, time{}, baseline_time{};
  std::optional<double> peak{}, baseline_peak{};
};

[[nodiscard]] inline std::string plan_text(const StepGraph& graph, const Plan& plan) {
  nlohmann::ordered_json doc;
  doc["format"] = "reprise.plan";
  doc["version"] = 1;
  doc["graph"] = graph.name();
  doc["graph_hash"] = graph_hash(graph);
  doc["budget_bytes"] = plan.budget.count;
  doc["peak_bytes"] = plan.peak.count;
  doc["time_us"] = plan.time.count;
  doc["baseline_peak_bytes"] = plan.baseline_peak.count;
  doc["baseline_time_us"] = plan.baseline_time.count;
  doc["strategy"] = plan.strategy;
  doc["seed"] = plan.seed;
  doc["plan_seconds"] = plan.seconds;
  auto& schedule = doc["schedule"] = nlohmann::ordered_json::array();
  for (NodeId n : plan.schedule) schedule.push_back(graph.node(n).id);
  return doc.dump() + "\n";
}

/// Whole or not at all: written beside the file and put in its place at the end. A link is followed; what is no file (a device, a
/// pipe) is written to as it is.
inline void write_file_atomically(const std::string& name, const std::string& text) {
  std::error_code failed;
  std::filesystem::path target{name};
  if (std::filesystem::is_symlink(target, failed)) target = std::filesystem::weakly_canonical(target, failed);
  const std::string path = failed ? name : target.string();
  if (std::filesystem::exists(path, failed) && !std::filesystem::is_regular_file(path, failed) && !std::filesystem::is_directory(path, failed)) {
    std::ofstream out{path, std::ios::binary};
    if (!(out << text << std::flush)) throw Error(Errc::io, path + ": could not be written completely");
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

/// Throws Errc::bad_format for what is not a plan, Errc::bad_schedule for one that names other nodes or another graph.
[[nodiscard]] inline PlanFile parse_plan(const std::string& text, const StepGraph& graph) {
  const auto bad = [](const std::string& what) { return Error(Errc::bad_format, what); };
  nlohmann::json doc;
  try {
    doc = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& e) {
    throw bad(std::string("not JSON: ") + e.what());
  }
  if (!doc.is_object() || doc.value("format", nlohmann::json{}) != "reprise.plan") throw bad("format: not a reprise.plan");
  if (doc.value("version", nlohmann::json{}) != 1) throw bad("version: not 1");
  PlanFile file;
  const auto read_text = [&](const char* field, std::optional<std::string>& out) {
    if (!doc.contains(field)) return;
    if (!doc[field].is_string()) throw bad(std::string(field) + ": not a string");
    out = doc[field].get<std::string>();
  };
  const auto read_number = [&](const char* field, std::optional<double>& out) {
    if (!doc.contains(field)) return;
    if (!doc[field].is_number()) throw bad(std::string(field) + ": not a number");
    out = doc[field].get<double>();
  };
  read_text("graph", file.graph);
  read_text("graph_hash", file.graph_hash);
  read_text("strategy", file.strategy);
  read_number("budget_bytes", file.budget);
  read_number("peak_bytes", file.peak);
  read_number("time_us", file.time);
  read_number("baseline_peak_bytes", file.baseline_peak);
  read_number("baseline_time_us", file.baseline_time);
  if (!doc.contains("schedule") || !doc["schedule"].is_array()) throw bad("schedule: not a list");
  std::unordered_map<std::int64_t, NodeId> node_of;
  for (std::size_t i = 0; i < graph.node_count(); ++i) node_of.emplace(graph.nodes()[i].id, NodeId{i});
  std::size_t step = 0;
  for (const auto& item : doc["schedule"]) {
    if (item.is_object()) throw Error(Errc::bad_schedule, "schedule: step " + std::to_string(step) +
        ": transfers are not part of version 1");
    if (!item.is_number_integer()) throw bad("schedule: step " + std::to_string(step) + ": not a node id");
    const bool too_large = item.is_number_unsigned() &&
        item.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const auto it = too_large ? node_of.end() : node_of.find(item.get<std::int64_t>());
    if (it == node_of.end())
      throw Error(Errc::bad_schedule, "schedule: step " + std::to_string(step) + ": no node " + item.dump() +
                                          (file.graph ? "; the plan is for '" + *file.graph + "', the graph is '" + graph.name() +
                                              "'" : ""));
    file.schedule.push_back(it->second);
    ++step;
  }
  return file;
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

/// What a plan file says that is not so, one line each: an invalid schedule, another graph, a wrong peak or time. A peak above
/// the budget is not among them: a plan does not claim to be inside it.
[[nodiscard]] inline std::vector<std::string> false_claims(const StepGraph& graph, const PlanFile& file) {
  std::vector<std::string> lines;
  if (file.graph && *file.graph != graph.name()) lines.push_back("graph: the plan is for '" + *file.graph + "', not for '" + graph.name() +
      "'");
  if (file.graph_hash && file.graph_hash->starts_with(graph_hash_kind) && *file.graph_hash != graph_hash(graph))
    lines.push_back("graph_hash: the plan was made for another graph (" + *file.graph_hash + ", not " + graph_hash(graph) + ")");
  const Simulation s = simulate(graph, file.schedule), baseline = simulate(graph, own_order(graph));
  if (!s.valid) {
    lines.push_back("schedule: " + s.violation->message);
    return lines;
  }
  const auto compare = [&](const char* field, const std::optional<double>& claimed, double is, double tolerance) {
    if (!claimed || std::abs(*claimed - is) <= tolerance * std::max(std::abs(*claimed), std::abs(is))) return;
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

}  // namespace reprise
