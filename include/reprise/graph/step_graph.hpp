#pragma once
// A StepGraph is one training step: its ops (nodes), their results (values), and the owners of the
// bytes (storages).
//
//   x ──norm──▶ h ──relu_──▶ h.relu ──view──▶ h.flat        h, h.relu and h.flat are three values in one storage:
//                                                           relu_ overwrites h, view aliases h.relu.
//
// ```cpp
// graph.node(relu);       // .name = "relu", .op = "aten::relu_", .phase = forward, .time = 10 us
// graph.inputs(relu);     // h
// graph.outputs(relu);    // h.relu
// graph.value(h_relu);    // .bytes = 0, .overwrites = h, .storage = that of h
// ```
//
// Nodes are in an order in which they can be run, the graph's own order. A NodeId, ValueId or
// StorageId is an index. `Node::id` and `Value::id` are the numbers in files, which need not be
// dense. The plan format defines valid values and the cost of a schedule. Only GraphBuilder makes a
// StepGraph, and checks it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <range/v3/view/iota.hpp>
#include <range/v3/view/transform.hpp>

#include <reprise/base/error.hpp>
#include <reprise/base/ids.hpp>
#include <reprise/base/units.hpp>

namespace reprise::graphs {

/// The part that a value has in the training step.
enum class Role : std::uint8_t {
  parameter,
  buffer,
  input,
  activation,
  gradient,
  optimizer_state,
  constant,
  other
};
inline constexpr std::size_t role_count = 8;

/// The phase of the step in which a node was recorded. A label: planning does not depend on it.
enum class Phase : std::uint8_t { forward, backward, optimizer };

[[nodiscard]] constexpr std::string_view to_string(Role role) {
  constexpr std::string_view names[] = {"parameter", "buffer",          "input",    "activation",
                                        "gradient",  "optimizer_state", "constant", "other"};
  return names[static_cast<std::size_t>(role)];
}

[[nodiscard]] constexpr std::string_view to_string(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "optimizer"};
  return names[static_cast<std::size_t>(phase)];
}

struct Value {
  std::int64_t id = 0;  ///< the number in files
  std::string name{};
  Bytes bytes{};  ///< owned bytes; 0 for a view and for an in-place result
  Role role = Role::other;
  bool persistent = false;  ///< resident from start to end, never freed, never recomputed
  bool initial = false;     ///< live at the start without a producer, counted to its last use
  ValueId alias_of{};       ///< the value that this is a view of
  ValueId overwrites{};     ///< the value whose storage this value overwrote
  StorageId storage{};      ///< set by the builder
  NodeId producer{};        ///< set by the builder; none for a value from before the step
  /// JSON object with the file's other members (shape, dtype, …); empty without any
  std::string extra{};

  /// The value whose storage this value is in, directly; none if it owns its bytes.
  [[nodiscard]] ValueId target() const { return alias_of.valid() ? alias_of : overwrites; }
  [[nodiscard]] bool owns() const { return !target().valid(); }
  bool operator==(const Value&) const = default;
};

struct Node {
  std::int64_t id = 0;  ///< the number in files
  std::string name{};
  std::string op{};
  Phase phase = Phase::forward;
  Microseconds time{};
  Bytes workspace{};         ///< live while the node runs, in addition to its inputs and outputs
  bool recomputable = true;  ///< false if it may run only once
  /// for a backward node: its forward node, if known
  NodeId forward{};
  /// JSON object with the file's other members; empty without any
  std::string extra{};

  bool operator==(const Node&) const = default;
};

struct Storage {
  ValueId owner{};  ///< the value that allocated the bytes
  Bytes bytes{};
  bool persistent = false;

  bool operator==(const Storage&) const = default;
};

/// Many short lists in two arrays: list i is items[starts[i] .. starts[i + 1]).
template <class T>
struct FlatLists {
  std::vector<std::uint32_t> starts{0};
  std::vector<T> items;

  template <class List>
  void push_back(const List& list) {
    items.insert(items.end(), list.begin(), list.end());
    starts.push_back(static_cast<std::uint32_t>(items.size()));
  }
  [[nodiscard]] std::span<const T> operator[](std::size_t i) const {
    return {items.data() + starts[i], starts[i + 1] - starts[i]};
  }
  [[nodiscard]] std::size_t size() const { return starts.size() - 1; }
  bool operator==(const FlatLists&) const = default;
};

/// 0, 1, 2, … as ids: for (NodeId n : ids<NodeId>(count)).
template <class IdType>
[[nodiscard]] auto ids(std::size_t count) {
  return ranges::views::iota(std::size_t{0}, count) |
         ranges::views::transform([](std::size_t i) { return IdType{i}; });
}

class StepGraph {
 public:
  /// Largest size of one value or workspace: sums over any schedule of practical length stay exact.
  static constexpr Bytes largest_value{std::int64_t{1} << 53};

  StepGraph() = default;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t node_count() const { return nodes_.size(); }
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }
  [[nodiscard]] std::size_t storage_count() const { return storages_.size(); }

  /// All ids, in order, for loops and filters:
  ///   graph.node_ids() | views::filter([&](NodeId n) { return graph.node(n).recomputable; })
  [[nodiscard]] auto node_ids() const { return ids<NodeId>(nodes_.size()); }
  [[nodiscard]] auto value_ids() const { return ids<ValueId>(values_.size()); }
  [[nodiscard]] auto storage_ids() const { return ids<StorageId>(storages_.size()); }

  [[nodiscard]] const Node& node(NodeId n) const { return nodes_[n.index]; }
  [[nodiscard]] const Value& value(ValueId v) const { return values_[v.index]; }
  [[nodiscard]] const Storage& storage(StorageId s) const { return storages_[s.index]; }
  [[nodiscard]] std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size()}; }
  [[nodiscard]] std::span<const Value> values() const { return {values_.data(), values_.size()}; }
  [[nodiscard]] std::span<const Storage> storages() const {
    return {storages_.data(), storages_.size()};
  }

  /// The values that the node reads, as given (a value may occur twice). Values of which the node's
  /// outputs are aliases or overwrites are read too, listed here or not.
  [[nodiscard]] std::span<const ValueId> inputs(NodeId n) const { return inputs_[n.index]; }
  [[nodiscard]] std::span<const ValueId> outputs(NodeId n) const { return outputs_[n.index]; }
  /// Persistent values that the node also writes, on its first occurrence only.
  [[nodiscard]] std::span<const ValueId> updates(NodeId n) const { return updates_[n.index]; }
  /// Nodes that have the value among their inputs, or make an alias or overwrite of it; each once,
  /// in the graph's order.
  [[nodiscard]] std::span<const NodeId> readers(ValueId v) const { return readers_[v.index]; }
  /// Values that must exist at the end of the step.
  [[nodiscard]] std::span<const ValueId> outputs() const { return step_outputs_; }

  /// Bytes of all persistent storages: always counted.
  [[nodiscard]] Bytes persistent_bytes() const { return persistent_bytes_; }
  /// JSON object with the file's other top-level members; empty without any.
  [[nodiscard]] const std::string& extra() const { return extra_; }

  /// Costs are measured after the structure is known; only costs may change.
  void set_time(NodeId n, Microseconds time) {
    if (!(time.count >= 0 && time.count <= std::numeric_limits<double>::max()))
      throw Error(Errc::bad_argument,
                  "time of node " + std::to_string(node(n).id) + " is not a finite number >= 0");
    nodes_[n.index].time = time;
  }
  void set_workspace(NodeId n, Bytes bytes) {
    if (bytes < Bytes{0} || bytes > largest_value)
      throw Error(Errc::bad_argument, "workspace of node " + std::to_string(node(n).id) +
                                          " is not from 0 to 2^53 bytes");
    nodes_[n.index].workspace = bytes;
  }
  void set_name(std::string name) { name_ = std::move(name); }

  /// The same nodes, values and lists in the same order, names and other members included.
  bool operator==(const StepGraph&) const = default;

 private:
  friend class GraphBuilder;

  std::string name_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<Storage> storages_;
  FlatLists<ValueId> inputs_, outputs_, updates_;
  FlatLists<NodeId> readers_;
  std::vector<ValueId> step_outputs_;
  Bytes persistent_bytes_{};
  std::string extra_;
};

}  // namespace reprise::graphs

namespace reprise {
using graphs::Node;
using graphs::Phase;
using graphs::Role;
using graphs::role_count;
using graphs::StepGraph;
using graphs::Storage;
using graphs::to_string;
using graphs::Value;
}  // namespace reprise
