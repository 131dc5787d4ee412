#pragma once
// write_graph() writes a StepGraph as a reprise.graph document, one value or node per line.
//
//   write_graph(std::cout, graph);
//     {"format":"reprise.graph","version":1,"name":"toy","values":[
//       {"id":0,"name":"x","bytes":4096,"role":"input","persistent":true},
//       ...
//
// Defaults are left out, except that every node has name, op, phase, inputs and outputs, and every
// value a name. `extra` comes last, without members that are written already. The text is complete
// and checked before any of it is written.

#include <algorithm>
#include <fstream>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/json_records.hpp>
#include <reprise/graph/json_text.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

/// The members of a JSON object's text. Throws Errc::bad_graph if it is not an object.
[[nodiscard]] inline std::vector<JsonField> parse_extra(const std::string& json,
                                                        const std::string& where) {
  struct Members {
    std::vector<JsonField> list;
    static bool begin_list(std::string_view) { return false; }
    void member(JsonField&& f) { list.push_back(std::move(f)); }
    static void record(std::string_view, std::size_t, const JsonFields&) {}
  } members;
  constexpr std::size_t depth_outside = 2;  // an element of a list of the document
  try {
    if (!json.empty()) read_json_records(json, members, max_json_depth - depth_outside);
  } catch (const Error& e) {
    throw Error(Errc::bad_graph, where + ": extra is not the text of a JSON object: " + e.what());
  }
  return std::move(members.list);
}

/// One JSON object's text: the graph's own members, then the other members of `extra`. `always`
/// names members that are written with any value, unless `extra` marks them as left out, by null.
class GraphObject {
 public:
  GraphObject(std::string where, const std::string& extra, std::span<const std::string_view> always)
      : where_(std::move(where)), extra_(parse_extra(extra, where_)), always_(always) {}

  void add(std::string_view key, const nlohmann::json& value) { add_text(key, value.dump()); }
  /// A member that the file may have left out if it has this value.
  void add_or(std::string_view key, const nlohmann::json& value, bool is_default) {
    if (!is_default || !left_out(key)) add(key, value);
  }
  void string(std::string_view key, std::string_view value) {
    if (!is_utf8(value))
      throw Error(Errc::bad_graph,
                  where_ + ": " + std::string(key) + " is not UTF-8: " + printable(value));
    add_or(key, value, value.empty());
  }
  /// The ids of values, by the numbers that files use.
  void ids(std::string_view key, const StepGraph& graph, std::span<const ValueId> values) {
    const auto number = [&](ValueId v) { return graph.value(v).id; };
    add_or(key, values | ranges::views::transform(number) | ranges::to<std::vector>(),
           values.empty());
  }
  /// A list of objects, one per line.
  void list(std::string_view key, const auto& ids, const auto& text_of) {
    std::string lines;
    for (const auto id : ids) (lines += lines.empty() ? "[\n  " : ",\n  ") += text_of(id);
    add_text(key, (lines.empty() ? "[" : lines) + "\n]");
  }
  /// The whole object. Members of `extra` are written unchanged: its numbers keep their text.
  [[nodiscard]] std::string text() && {
    const std::vector<std::string_view> own = written_;
    for (const JsonField& f : extra_)
      if (!std::ranges::count(own, f.key) && !marks_left_out(f)) add_text(f.key, json_text(f));
    return std::move(text_);
  }

 private:
  void add_text(std::string_view key, std::string_view json) {
    written_.push_back(key);
    add_json_member(text_, key, json);
  }
  [[nodiscard]] bool marks_left_out(const JsonField& f) const {
    return f.kind == JsonKind::null && std::ranges::count(always_, f.key) != 0;
  }
  [[nodiscard]] bool left_out(std::string_view key) const {
    return std::ranges::any_of(
        extra_, [&](const JsonField& f) { return f.key == key && marks_left_out(f); });
  }

  std::string where_, text_{};
  std::vector<JsonField> extra_;
  std::span<const std::string_view> always_;
  std::vector<std::string_view> written_{};
};

[[nodiscard]] inline std::string value_text(const StepGraph& graph, const Value& v) {
  static constexpr std::string_view always[] = {"name"};
  GraphObject o{"values: " + std::to_string(v.id), v.extra, always};
  o.add("id", v.id);
  o.string("name", v.name);
  o.add("bytes", v.bytes.count);
  o.add("role", to_string(v.role));
  if (v.persistent) o.add("persistent", true);
  if (v.initial) o.add("initial", true);
  if (v.alias_of.valid()) o.add("alias_of", graph.value(v.alias_of).id);
  if (v.overwrites.valid()) o.add("overwrites", graph.value(v.overwrites).id);
  return std::move(o).text();
}

[[nodiscard]] inline std::string node_text(const StepGraph& graph, NodeId id) {
  static constexpr std::string_view always[] = {"name", "op", "phase", "inputs", "outputs"};
  const Node& n = graph.node(id);
  GraphObject o{"nodes: " + std::to_string(n.id), n.extra, always};
  o.add("id", n.id);
  o.string("name", n.name);
  o.string("op", n.op);
  o.add_or("phase", to_string(n.phase), n.phase == Phase::forward);
  o.add("time_us", n.time.count);
  if (n.workspace != Bytes{0}) o.add("workspace_bytes", n.workspace.count);
  o.ids("inputs", graph, graph.inputs(id));
  o.ids("outputs", graph, graph.outputs(id));
  if (!graph.updates(id).empty()) o.ids("updates", graph, graph.updates(id));
  if (!n.recomputable) o.add("recomputable", false);
  if (n.forward.valid()) o.add("forward_node", graph.node(n.forward).id);
  return std::move(o).text();
}

/// The document's text. Throws Errc::bad_graph if a name or an `extra` cannot be written as JSON.
[[nodiscard]] inline std::string graph_text(const StepGraph& graph) {
  static constexpr std::string_view always[] = {"name", "outputs"};
  GraphObject o{"graph", graph.extra(), always};
  o.add("format", "reprise.graph");
  o.add("version", 1);
  o.string("name", graph.name());
  o.list("values", graph.value_ids(), [&](ValueId v) { return value_text(graph, graph.value(v)); });
  o.list("nodes", graph.node_ids(), [&](NodeId n) { return node_text(graph, n); });
  o.ids("outputs", graph, graph.outputs());
  return std::move(o).text() + '\n';
}

/// Throws Errc::bad_graph before anything is written, Errc::io if the stream fails.
inline void write_graph(std::ostream& out, const StepGraph& graph) {
  if (!(out << graph_text(graph) << std::flush))
    throw Error(Errc::io, "the graph could not be written: the stream has failed");
}

inline void write_graph_file(const std::string& path, const StepGraph& graph) {
  const std::string text = graph_text(graph);
  std::ofstream out{path, std::ios::binary};
  if (!out) throw Error(Errc::io, path + ": cannot be opened for writing");
  if (!(out << text << std::flush))
    throw Error(Errc::io, path + ": could not be written completely");
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::graph_text;
using graphs::write_graph;
using graphs::write_graph_file;
}  // namespace reprise
