#pragma once
// GraphBuilder makes a StepGraph, and refuses with field and id whatever the plan format does not
// allow.
//
// ```cpp
// GraphBuilder b{"toy"};
// const ValueId x = b.add_value(
//     {.id = 0, .name = "x", .bytes = 4096_B, .role = Role::input, .persistent = true});
// const ValueId h = b.add_value({.id = 2, .name = "h", .bytes = 8192_B, .role = Role::activation});
// b.add_node({.id = 0, .name = "norm", .op = "aten::native_batch_norm"}, {x}, {h});
// b.add_output(h);
// StepGraph graph = std::move(b).build();
// ```
//
// Rules for one value or one node are checked when it is added; an invalid one is not added. Rules
// for several are checked in build(). The simulator checks whether the graph's own order can be run
// (graph/simulate.hpp).

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <unordered_map>
#include <utility>

#include <reprise/base/error.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

class GraphBuilder {
 public:
  /// Largest size of one value or workspace, and of all values together.
  static constexpr Bytes largest_value = StepGraph::largest_value;
  static constexpr Bytes largest_total{std::int64_t{1} << 56};

  explicit GraphBuilder(std::string name = {}) { graph_.name_ = std::move(name); }

  void reserve(std::size_t nodes, std::size_t values) {
    graph_.nodes_.reserve(nodes);
    graph_.values_.reserve(values);
  }

  /// `alias_of` and `overwrites` may name a value that is added later. The builder sets `storage`
  /// and `producer`.
  ValueId add_value(Value v) {
    const ValueId id{graph_.values_.size()};
    if (value_of_.contains(v.id)) throw bad("values", v.id, v.name, "id stands twice");
    if (v.bytes < Bytes{0}) throw bad("values", v.id, v.name, "bytes is negative");
    if (v.bytes > largest_value) throw bad("values", v.id, v.name, "bytes is larger than 2^53");
    if (total_ + v.bytes > largest_total)
      throw bad("values", v.id, v.name, "all bytes together are more than 2^56");
    if (v.persistent && v.initial) throw bad("values", v.id, v.name, "both initial and persistent");
    if (v.alias_of.valid() && v.overwrites.valid())
      throw bad("values", v.id, v.name, "both alias_of and overwrites");
    if (!v.owns() && v.bytes != Bytes{0})
      throw bad("values", v.id, v.name,
                "a view or overwriting value owns no bytes, so bytes must be 0");
    if (!v.owns() && v.initial)
      throw bad("values", v.id, v.name,
                "an initial value owns its bytes: it cannot be a view or overwrite anything");
    if (v.target() == id) throw bad("values", v.id, v.name, "alias_of or overwrites names itself");
    v.storage = {};
    v.producer = {};
    value_of_.emplace(v.id, id.index);
    total_ += v.bytes;
    graph_.values_.push_back(std::move(v));
    return id;
  }

  NodeId add_node(Node n, std::span<const ValueId> inputs, std::span<const ValueId> outputs,
                  std::span<const ValueId> updates = {}) {
    const NodeId id{graph_.nodes_.size()};
    if (node_of_.contains(n.id)) throw bad("nodes", n.id, n.name, "id stands twice");
    if (!std::isfinite(n.time.count) || n.time.count < 0)
      throw bad("nodes", n.id, n.name, "time_us is not a finite number >= 0");
    if (!std::isfinite(time_ + n.time.count))
      throw bad("nodes", n.id, n.name, "all times together are not a finite number");
    if (n.workspace < Bytes{0}) throw bad("nodes", n.id, n.name, "workspace_bytes is negative");
    if (n.workspace > largest_value)
      throw bad("nodes", n.id, n.name, "workspace_bytes is larger than 2^53");
    for (auto [list, field] :
         {std::pair{inputs, "inputs"}, {outputs, "outputs"}, {updates, "updates"}})
      for (ValueId v : list)
        if (v.index >= graph_.values_.size())
          throw bad("nodes", n.id, n.name, std::string(field) + ": no such value");
    check_updates(n, inputs, updates);
    check_outputs(n, outputs);
    for (ValueId v : outputs) graph_.values_[v.index].producer = id;
    node_of_.emplace(n.id, id.index);
    time_ += n.time.count;
    graph_.nodes_.push_back(std::move(n));
    graph_.inputs_.push_back(inputs);
    graph_.outputs_.push_back(outputs);
    graph_.updates_.push_back(updates);
    return id;
  }

  NodeId add_node(Node n, std::initializer_list<ValueId> inputs,
                  std::initializer_list<ValueId> outputs,
                  std::initializer_list<ValueId> updates = {}) {
    return add_node(std::move(n), std::span{inputs.begin(), inputs.size()},
                    std::span{outputs.begin(), outputs.size()},
                    std::span{updates.begin(), updates.size()});
  }

  void add_output(ValueId v) {
    if (v.index >= graph_.values_.size()) throw Error(Errc::bad_graph, "outputs: no such value");
    graph_.step_outputs_.push_back(v);
  }

  void set_extra(std::string json) { graph_.extra_ = std::move(json); }

  /// The value or node with this number in files; none without one.
  [[nodiscard]] ValueId find_value(std::int64_t id) const { return find<ValueId>(value_of_, id); }
  [[nodiscard]] NodeId find_node(std::int64_t id) const { return find<NodeId>(node_of_, id); }
  [[nodiscard]] const Value& value(ValueId v) const { return graph_.values_[v.index]; }

  [[nodiscard]] StepGraph build() && {
    for (const Value& v : graph_.values_) {
      if (v.target().valid() && v.target().index >= graph_.values_.size())
        throw bad("values", v.id, v.name, "alias_of or overwrites names no value");
      if (!v.persistent && !v.initial && !v.producer.valid())
        throw bad("values", v.id, v.name, "has no producer and is neither persistent nor initial");
    }
    for (const Node& n : graph_.nodes_)
      if (n.forward.valid() && n.forward.index >= graph_.nodes_.size())
        throw bad("nodes", n.id, n.name, "forward names no node");
    assign_storages();
    collect_readers();
    return std::move(graph_);
  }

 private:
  using Index = std::unordered_map<std::int64_t, std::uint32_t>;  // by the number in files

  template <class IdType>
  static IdType find(const Index& index, std::int64_t id) {
    const auto it = index.find(id);
    return it == index.end() ? IdType{} : IdType{it->second};
  }

  static Error bad(std::string_view list, std::int64_t id, const std::string& name,
                   const std::string& what) {
    std::string text{list};
    text += ": " + std::to_string(id);
    if (!name.empty()) text += " (" + name + ")";
    return Error(Errc::bad_graph, text + ": " + what);
  }

  void check_updates(const Node& n, std::span<const ValueId> inputs,
                     std::span<const ValueId> updates) const {
    if (updates.empty()) return;
    std::vector<ValueId> read(inputs.begin(), inputs.end());
    std::sort(read.begin(), read.end());
    for (ValueId v : updates) {
      const Value& value = graph_.values_[v.index];
      if (!value.persistent)
        throw bad("nodes", n.id, n.name,
                  "updates value " + std::to_string(value.id) + ", which is not persistent");
      if (std::binary_search(read.begin(), read.end(), v))
        throw bad(
            "nodes", n.id, n.name,
            "updates value " + std::to_string(value.id) + " and reads it; leave it out of inputs");
    }
  }

  void check_outputs(const Node& n, std::span<const ValueId> outputs) const {
    std::vector<ValueId> made;
    for (ValueId v : outputs) {
      const Value& value = graph_.values_[v.index];
      if (value.initial)
        throw bad("values", value.id, value.name,
                  "is initial and has a producer, node " + std::to_string(n.id));
      if (value.persistent && n.recomputable)
        throw bad("nodes", n.id, n.name,
                  "writes the persistent value " + std::to_string(value.id) +
                      ", so recomputable must be false");
      if (value.persistent) continue;
      if (value.producer.valid())
        throw two_producers(value, graph_.nodes_[value.producer.index], n);
      made.push_back(v);
    }
    std::sort(made.begin(), made.end());
    const auto twice = std::adjacent_find(made.begin(), made.end());
    if (twice != made.end()) throw two_producers(graph_.values_[twice->index], n, n);
  }

  static Error two_producers(const Value& v, const Node& first, const Node& second) {
    return bad("values", v.id, v.name,
               "has two producers, nodes " + std::to_string(first.id) + " and " +
                   std::to_string(second.id));
  }

  // A value's storage is that of the value at the end of its alias_of / overwrites chain. Each
  // chain is followed once: 0 = not visited, 1 = on the present chain, 2 = done.
  void assign_storages() {
    std::vector<std::uint8_t> state(graph_.values_.size(), 0);
    std::vector<ValueId> chain;
    for (std::size_t i = 0; i < graph_.values_.size(); ++i) {
      ValueId v{i};
      while (state[v.index] == 0) {
        state[v.index] = 1;
        chain.push_back(v);
        const Value& value = graph_.values_[v.index];
        if (value.owns()) break;
        v = value.target();
        if (state[v.index] == 1)
          throw bad("values", value.id, value.name, "alias_of and overwrites run in a circle");
      }
      for (; !chain.empty(); chain.pop_back()) settle(chain.back(), state);
    }
    for (const Storage& s : graph_.storages_)
      if (s.persistent) graph_.persistent_bytes_ += s.bytes;
  }

  void settle(ValueId v, std::vector<std::uint8_t>& state) {
    Value& value = graph_.values_[v.index];
    if (value.owns()) {
      value.storage = StorageId{graph_.storages_.size()};
      graph_.storages_.push_back({v, value.bytes, value.persistent});
    } else {
      value.storage = graph_.values_[value.target().index].storage;
      if (value.persistent && !graph_.storages_[value.storage.index].persistent)
        throw bad("values", value.id, value.name, "is persistent, but what it is a view of is not");
    }
    state[v.index] = 2;
  }

  void collect_readers() {
    std::vector<std::vector<NodeId>> readers(graph_.values_.size());
    const auto note = [&](ValueId v, NodeId n) {
      auto& list = readers[v.index];
      if (list.empty() || list.back() != n) list.push_back(n);
    };
    for (std::size_t i = 0; i < graph_.nodes_.size(); ++i) {
      const NodeId n{i};
      for (ValueId v : graph_.inputs_[i]) note(v, n);
      for (ValueId v : graph_.outputs_[i]) {
        const ValueId target = graph_.values_[v.index].target();
        if (target.valid()) note(target, n);
      }
    }
    for (const auto& list : readers) graph_.readers_.push_back(list);
  }

  StepGraph graph_;
  Index value_of_, node_of_;
  Bytes total_{};
  double time_ = 0;
};

}  // namespace reprise::graphs

namespace reprise {
using graphs::GraphBuilder;
}  // namespace reprise
