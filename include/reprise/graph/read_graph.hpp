#pragma once
// read_graph() reads a StepGraph from a reprise.graph document.
//
//   read_graph_file("toy.json")                     a StepGraph whose own order can be run, or one clear Error:
//     toy.json: line 4, column 17 (offset 120): syntax error while parsing value - unexpected '}'; expected '[', '{', or a literal
//     toy.json: values: 2 (h): bytes: -1 is not a whole number from 0 to 2^53
//     toy.json: nodes: 5: inputs: no value 99
//     toy.json: nodes: the graph's own order cannot be run: step 1: node 1 (relu): value 2 (h) is read and does not exist
//
// Types are not converted: 3.0 and true are no ids, 0 is not false. Null is allowed for alias_of
// and overwrites only. json_records.hpp has the rules for JSON itself (depth, repeated members,
// numbers out of range).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/base/utf8.hpp>
#include <reprise/graph/builder.hpp>
#include <reprise/graph/json_records.hpp>
#include <reprise/graph/json_text.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

/// The role with this name; empty without one.
[[nodiscard]] constexpr std::optional<Role> role_from(std::string_view name) {
  for (std::size_t i = 0; i < role_count; ++i)
    if (to_string(static_cast<Role>(i)) == name) return static_cast<Role>(i);
  return std::nullopt;
}

/// The phase with this name; empty without one.
[[nodiscard]] constexpr std::optional<Phase> phase_from(std::string_view name) {
  for (Phase p : {Phase::forward, Phase::backward, Phase::optimizer})
    if (to_string(p) == name) return p;
  return std::nullopt;
}

/// One element of `values` or `nodes`. Fields are taken one by one; the rest goes to `extra`.
class GraphRecord {
 public:
  GraphRecord(std::string_view list, std::size_t index, const JsonFields& fields)
      : fields_(fields), list_(list), index_(index) {
    id_ = *integer("id", Need::always);
    has_id_ = true;
    name_ = string("name");
  }

  enum class Need : std::uint8_t { always, optional };

  [[nodiscard]] std::int64_t id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  std::optional<std::int64_t> integer(std::string_view key, Need need) {
    const JsonField* f = take(key, need);
    if (f == nullptr) return std::nullopt;
    if (f->kind != JsonKind::integer) throw wrong(*f, "an integer of at most 64 bits");
    return f->integer;
  }

  /// An integer; any other type is left for `extra`.
  std::optional<std::int64_t> hint(std::string_view key) {
    const JsonField* f = fields_.find(key);
    if (f == nullptr || f->kind != JsonKind::integer) return std::nullopt;
    return integer(key, Need::optional);
  }

  /// An id, or null.
  std::optional<std::int64_t> reference(std::string_view key) {
    const JsonField* f = fields_.find(key);
    if (f == nullptr || f->kind == JsonKind::null) return std::nullopt;
    return integer(key, Need::optional);
  }

  Bytes bytes(std::string_view key, Need need) {
    const JsonField* f = take(key, need);
    if (f == nullptr) return {};
    if (f->kind != JsonKind::integer || f->integer < 0 ||
        Bytes{f->integer} > StepGraph::largest_value)
      throw wrong(*f, "a whole number from 0 to 2^53");
    if (need == Need::optional && f->integer == 0) put_back();
    return {f->integer};
  }

  Microseconds time(std::string_view key) {
    const JsonField* f = take(key, Need::always);
    if ((f->kind != JsonKind::integer && f->kind != JsonKind::number) || f->number < 0)
      throw wrong(*f, "a number >= 0");
    return {f->number};
  }

  bool boolean(std::string_view key, bool otherwise) {
    const JsonField* f = take(key, Need::optional);
    if (f == nullptr) return otherwise;
    if (f->kind != JsonKind::boolean) throw wrong(*f, "true or false");
    if (f->boolean == otherwise) put_back();
    return f->boolean;
  }

  std::string string(std::string_view key) {
    const JsonField* f = take(key, Need::optional);
    if (f == nullptr) {
      left_out_.push_back(key);
      return {};
    }
    if (f->kind != JsonKind::string) throw wrong(*f, "a string");
    return f->text;
  }

  Role role(std::string_view key) {
    const JsonField* f = take(key, Need::always);
    const auto role = f->kind == JsonKind::string ? role_from(f->text) : std::nullopt;
    if (!role)
      throw wrong(*f,
                  "a role: parameter, buffer, input, activation, gradient, optimizer_state, "
                  "constant or other");
    return *role;
  }

  Phase phase(std::string_view key) {
    const JsonField* f = take(key, Need::optional);
    if (f == nullptr) {
      left_out_.push_back(key);
      return Phase::forward;
    }
    const auto phase = f->kind == JsonKind::string ? phase_from(f->text) : std::nullopt;
    if (!phase) throw wrong(*f, "a phase: forward, backward or optimizer");
    return *phase;
  }

  std::vector<std::int64_t> ids(std::string_view key) {
    const JsonField* f = take(key, Need::optional);
    if (f == nullptr) {
      left_out_.push_back(key);
      return {};
    }
    if (!f->only_integers) throw wrong(*f, "a list of ids (integers)");
    return f->integers;
  }

  /// As ids(), for a list that the writer leaves out if it is empty.
  std::vector<std::int64_t> optional_ids(std::string_view key) {
    if (fields_.find(key) == nullptr) return {};
    std::vector<std::int64_t> list = ids(key);
    if (list.empty()) put_back();
    return list;
  }

  [[nodiscard]] std::string extra() const {
    std::string out;
    for (const JsonField& f : fields_.list)
      if (std::find(taken_.begin(), taken_.end(), f.key) == taken_.end())
        add_json_member(out, f.key, json_text(f));
    for (std::string_view key : left_out_) add_json_member(out, key, "null");
    return out;
  }

 private:
  const JsonField* take(std::string_view key, Need need) {
    const JsonField* f = fields_.find(key);
    if (f != nullptr) taken_.push_back(key);
    else if (need == Need::always) throw error(std::string(key) + " is missing");
    return f;
  }
  // A default that the file spells out stays in `extra`.
  void put_back() { taken_.pop_back(); }

  [[nodiscard]] Error wrong(const JsonField& f, const char* expected) const {
    return error(f.key + ": " + printable(json_text(f)) + " is not " + expected);
  }
  [[nodiscard]] Error error(const std::string& what) const {
    std::string where =
        list_ + (has_id_ ? ": " + std::to_string(id_) : ": element " + std::to_string(index_));
    if (!name_.empty()) where += " (" + printable(name_) + ")";
    return Error(Errc::bad_graph, where + ": " + what);
  }

  const JsonFields& fields_;
  std::string list_, name_{};
  std::size_t index_;
  std::int64_t id_ = 0;
  bool has_id_ = false;
  std::vector<std::string_view> taken_{}, left_out_{};
};

/// Collects a document's values and nodes, and makes a StepGraph when all ids are known: lists may
/// come in any order.
class GraphReader {
 public:
  bool begin_list(std::string_view key) {
    if (key == "values") return has_values_ = true;
    if (key == "nodes") return has_nodes_ = true;
    return false;
  }

  void member(const JsonField& f) {
    if (f.key == "format") read_format(f);
    else if (f.key == "version") read_version(f);
    else if (f.key == "name") read_name(f);
    else if (f.key == "outputs") read_outputs(f);
    else if (f.key == "values" || f.key == "nodes") throw wrong(Errc::bad_graph, f, "a list");
    else add_json_member(extra_, f.key, json_text(f));
  }

  void record(std::string_view list, std::size_t index, const JsonFields& fields) {
    GraphRecord record{list, index, fields};
    if (list == "values") read_value(record);
    else read_node(record);
  }

  [[nodiscard]] StepGraph finish() {
    require(has_format_, "format", "it must be \"reprise.graph\"");
    require(has_version_, "version", "it must be 1");
    require(has_values_, "values", "it must be a list of values");
    require(has_nodes_, "nodes", "it must be a list of nodes");
    if (!has_name_) add_json_member(extra_, "name", "null");
    if (!has_outputs_) add_json_member(extra_, "outputs", "null");
    GraphBuilder builder{std::move(name_)};
    builder.reserve(nodes_.size(), values_.size());
    builder.set_extra(std::move(extra_));
    add_values(builder);
    add_nodes(builder);
    for (std::int64_t id : outputs_)
      builder.add_output(find(id, [] { return std::string("outputs"); }));
    return std::move(builder).build();
  }

 private:
  struct ReadValue {
    Value value{};
    std::optional<std::int64_t> alias_of{}, overwrites{};
  };
  struct ReadNode {
    Node node{};
    std::optional<std::int64_t> forward{};
    std::vector<std::int64_t> inputs{}, outputs{}, updates{};
  };

  void read_format(const JsonField& f) {
    if (f.kind != JsonKind::string || f.text != "reprise.graph")
      throw wrong(Errc::bad_format, f, "\"reprise.graph\"");
    has_format_ = true;
  }
  void read_version(const JsonField& f) {
    if (f.kind != JsonKind::integer || f.integer != 1)
      throw wrong(Errc::bad_format, f, "1, the version that this reader knows");
    has_version_ = true;
  }
  void read_name(const JsonField& f) {
    if (f.kind != JsonKind::string) throw wrong(Errc::bad_graph, f, "a string");
    name_ = f.text;
    has_name_ = true;
  }
  void read_outputs(const JsonField& f) {
    if (!f.only_integers) throw wrong(Errc::bad_graph, f, "a list of ids (integers)");
    outputs_ = f.integers;
    has_outputs_ = true;
  }

  void read_value(GraphRecord& r) {
    ReadValue v;
    v.value.id = r.id();
    v.value.name = r.name();
    v.value.bytes = r.bytes("bytes", GraphRecord::Need::always);
    v.value.role = r.role("role");
    v.value.persistent = r.boolean("persistent", false);
    v.value.initial = r.boolean("initial", false);
    v.alias_of = r.reference("alias_of");
    v.overwrites = r.reference("overwrites");
    v.value.extra = r.extra();
    value_of_.emplace(v.value.id, ValueId{values_.size()});
    values_.push_back(std::move(v));
  }

  void read_node(GraphRecord& r) {
    ReadNode n;
    n.node.id = r.id();
    n.node.name = r.name();
    n.node.op = r.string("op");
    n.node.phase = r.phase("phase");
    n.node.time = r.time("time_us");
    n.node.workspace = r.bytes("workspace_bytes", GraphRecord::Need::optional);
    n.node.recomputable = r.boolean("recomputable", true);
    n.inputs = r.ids("inputs");
    n.outputs = r.ids("outputs");
    n.updates = r.optional_ids("updates");
    n.forward = r.hint("forward_node");
    n.node.extra = r.extra();
    node_of_.emplace(n.node.id, NodeId{nodes_.size()});
    nodes_.push_back(std::move(n));
  }

  void add_values(GraphBuilder& builder) {
    for (ReadValue& v : values_) {
      const auto in = [&](const char* field) {
        return [&v, field] { return "values: " + std::to_string(v.value.id) + ": " + field; };
      };
      if (v.alias_of) v.value.alias_of = find(*v.alias_of, in("alias_of"));
      if (v.overwrites) v.value.overwrites = find(*v.overwrites, in("overwrites"));
      builder.add_value(std::move(v.value));
    }
  }

  void add_nodes(GraphBuilder& builder) {
    std::vector<ValueId> inputs, outputs, updates;
    for (ReadNode& n : nodes_) {
      find_all(n, n.inputs, "inputs", inputs);
      find_all(n, n.outputs, "outputs", outputs);
      find_all(n, n.updates, "updates", updates);
      if (n.forward) set_forward(n);
      builder.add_node(std::move(n.node), inputs, outputs, updates);
    }
  }

  // A member of this name from another tool may mean something else.
  void set_forward(ReadNode& n) const {
    const auto it = node_of_.find(*n.forward);
    if (it == node_of_.end())
      add_json_member(n.node.extra, "forward_node", std::to_string(*n.forward));
    else n.node.forward = it->second;
  }

  void find_all(const ReadNode& n, const std::vector<std::int64_t>& ids, const char* field,
                std::vector<ValueId>& out) const {
    out.clear();
    for (std::int64_t id : ids)
      out.push_back(find(id, [&] { return "nodes: " + std::to_string(n.node.id) + ": " + field; }));
  }
  template <class Where>
  ValueId find(std::int64_t id, Where where) const {
    const auto it = value_of_.find(id);
    if (it == value_of_.end())
      throw Error(Errc::bad_graph, where() + ": no value " + std::to_string(id));
    return it->second;
  }

  static Error wrong(Errc code, const JsonField& f, const char* expected) {
    return Error(code, f.key + ": " + printable(json_text(f)) + " is not " + expected);
  }
  static void require(bool there, const char* key, const char* what) {
    if (!there) throw Error(Errc::bad_format, std::string(key) + " is missing; " + what);
  }

  bool has_format_ = false, has_version_ = false, has_name_ = false, has_outputs_ = false,
       has_values_ = false, has_nodes_ = false;
  std::string name_, extra_;
  std::vector<ReadValue> values_;
  std::vector<ReadNode> nodes_;
  std::vector<std::int64_t> outputs_;
  std::unordered_map<std::int64_t, ValueId> value_of_;
  std::unordered_map<std::int64_t, NodeId> node_of_;
};

/// Reads to the end of the text. Throws Errc::bad_format or Errc::bad_graph.
[[nodiscard]] inline StepGraph parse_graph(std::string_view text) {
  GraphReader reader;
  read_json_records(text, reader);
  StepGraph graph = reader.finish();
  check_runnable(graph);
  return graph;
}

/// Reads to the end of the stream. Throws Errc::io, Errc::bad_format or Errc::bad_graph.
[[nodiscard]] inline StepGraph read_graph(std::istream& in) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0)
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
  if (!in.eof() || in.bad())
    throw Error(Errc::io, "the graph cannot be read: the stream has failed");
  return parse_graph(text);
}

/// As read_graph(); messages start with the path.
[[nodiscard]] inline StepGraph read_graph_file(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  if (!in) throw Error(Errc::io, path + ": cannot be opened for reading");
  try {
    return read_graph(in);
  } catch (const Error& e) {
    throw Error(e.code(), path + ": " + e.what());
  }
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::parse_graph;
using graphs::read_graph;
using graphs::read_graph_file;
}  // namespace reprise
