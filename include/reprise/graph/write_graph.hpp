#pragma once
// Writes a StepGraph as a reprise.graph document, one value or node a line.
//
//   write_graph(std::cout, graph);
//     {"format": "reprise.graph", "version": 1, "name": "toy",
//      "values": [
//       {"id": 0, "name": "x", "bytes": 4096, "role": "input", "persistent": true},
//       ...
//
// Defaults are left out, except that every node has name, op, phase, inputs and outputs and every
// value a name. `extra` comes last, without members that stand already. The text is made, and
// checked, before any of it is written.

#include <algorithm>
#include <fstream>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/json_records.hpp>
#include <reprise/graph/json_text.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise {

/// The members of a JSON object's text. Throws Errc::bad_graph where it is not an object.
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

/// Appends one JSON object to a text: the graph's own members, then what `extra` has beside them.
/// `always` names the members that are written whatever their value is, unless `extra` marks them,
/// by null, as left out.
class GraphObject {
 public:
  GraphObject(std::string& out, std::string where, const std::string& extra,
              std::span<const std::string_view> always)
      : out_(out), where_(std::move(where)), extra_(parse_extra(extra, where_)), always_(always) {}

  void number(std::string_view key, auto value) { append_json_number(start(key), value); }
  void boolean(std::string_view key, bool value) { start(key) += value ? "true" : "false"; }
  void string(std::string_view key, std::string_view value) {
    if (!is_utf8(value))
      throw Error(Errc::bad_graph,
                  where_ + ": " + std::string(key) + " is not UTF-8: " + printable(value));
    if (!value.empty() || !left_out(key)) append_json_string(start(key), value);
  }
  /// A member that the file may have left out where it has this value.
  void string_or(std::string_view key, std::string_view value, bool is_default) {
    if (!is_default || !left_out(key)) append_json_string(start(key), value);
  }
  /// The ids of values, by the numbers that files use.
  void ids(std::string_view key, const StepGraph& graph, std::span<const ValueId> values) {
    if (values.empty() && left_out(key)) return;
    start(key) += '[';
    for (std::size_t i = 0; i < values.size(); ++i)
      append_json_number(out_ += i == 0 ? "" : ", ", graph.value(values[i]).id);
    out_ += ']';
  }
  /// The text, for what is not one of the above.
  std::string& start(std::string_view key) {
    out_ += written_.empty() ? "{" : ", ";
    written_.push_back(key);
    append_json_string(out_, key);
    return out_ += ": ";
  }
  void finish() {
    const std::vector<std::string_view> own = written_;
    for (const JsonField& f : extra_) {
      const bool stands = std::find(own.begin(), own.end(), f.key) != own.end();
      if (!stands && !marks_left_out(f)) start(f.key) += json_text(f);
    }
    out_ += '}';
  }

 private:
  [[nodiscard]] bool marks_left_out(const JsonField& f) const {
    return f.kind == JsonKind::null &&
           std::find(always_.begin(), always_.end(), f.key) != always_.end();
  }
  [[nodiscard]] bool left_out(std::string_view key) const {
    return std::any_of(extra_.begin(), extra_.end(),
                       [&](const JsonField& f) { return f.key == key && marks_left_out(f); });
  }

  std::string& out_;
  std::string where_;
  std::vector<JsonField> extra_;
  std::span<const std::string_view> always_;
  std::vector<std::string_view> written_{};
};

inline void append_value(std::string& out, const StepGraph& graph, const Value& v) {
  static constexpr std::string_view always[] = {"name"};
  GraphObject o{out, "values: " + std::to_string(v.id), v.extra, always};
  o.number("id", v.id);
  o.string("name", v.name);
  o.number("bytes", v.bytes.count);
  o.string("role", to_string(v.role));
  if (v.persistent) o.boolean("persistent", true);
  if (v.initial) o.boolean("initial", true);
  if (v.alias_of.valid()) o.number("alias_of", graph.value(v.alias_of).id);
  if (v.overwrites.valid()) o.number("overwrites", graph.value(v.overwrites).id);
  o.finish();
}

inline void append_node(std::string& out, const StepGraph& graph, NodeId id) {
  static constexpr std::string_view always[] = {"name", "op", "phase", "inputs", "outputs"};
  const Node& n = graph.node(id);
  GraphObject o{out, "nodes: " + std::to_string(n.id), n.extra, always};
  o.number("id", n.id);
  o.string("name", n.name);
  o.string("op", n.op);
  o.string_or("phase", to_string(n.phase), n.phase == Phase::forward);
  o.number("time_us", n.time.count);
  if (n.workspace != Bytes{0}) o.number("workspace_bytes", n.workspace.count);
  o.ids("inputs", graph, graph.inputs(id));
  o.ids("outputs", graph, graph.outputs(id));
  if (!graph.updates(id).empty()) o.ids("updates", graph, graph.updates(id));
  if (!n.recomputable) o.boolean("recomputable", false);
  if (n.forward.valid()) o.number("forward_node", graph.node(n.forward).id);
  o.finish();
}

/// The document's text. Throws Errc::bad_graph where a name or an `extra` cannot be written as
/// JSON.
[[nodiscard]] inline std::string graph_text(const StepGraph& graph) {
  static constexpr std::string_view always[] = {"name", "outputs"};
  std::string out;
  GraphObject o{out, "graph", graph.extra(), always};
  o.string("format", "reprise.graph");
  o.number("version", std::int64_t{1});
  o.string("name", graph.name());
  o.start("values") += '[';
  for (std::size_t i = 0; i < graph.value_count(); ++i)
    append_value(out += i == 0 ? "\n  " : ",\n  ", graph, graph.value(ValueId{i}));
  out += "\n]";
  o.start("nodes") += '[';
  for (std::size_t i = 0; i < graph.node_count(); ++i)
    append_node(out += i == 0 ? "\n  " : ",\n  ", graph, NodeId{i});
  out += "\n]";
  o.ids("outputs", graph, graph.outputs());
  o.finish();
  return out += '\n';
}

/// Throws Errc::bad_graph before anything is written, Errc::io where the stream fails.
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

}  // namespace reprise
