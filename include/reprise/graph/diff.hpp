#pragma once
// diff() finds the first node at which two captures of one step differ. This reveals state of user
// code inside a step.
//
//   step 1:  mm  mul {other: 2.0}  sum          diff(first, second)
//   step 2:  mm  mul {other: 3.0}  sum          "node 1 (head/mul): attributes differ: {"other":2.0} and {"other":3.0}"
//
// Values are compared by their origin, not by their numbers. Two operands are the same if the same
// output of the same node made them, or if they are the same value from before the step.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

struct Difference {
  NodeId node{};  ///< in both graphs; the length of the shorter graph if it ends first
  std::string message{};
};

class GraphDiff {
 public:
  GraphDiff(const StepGraph& a, const StepGraph& b)
      : a_(a), b_(b), partner_(a.value_count()), taken_(b.value_count(), false) {}

  [[nodiscard]] std::optional<Difference> first() {
    const std::size_t common = std::min(a_.node_count(), b_.node_count());
    for (std::size_t i = 0; i < common; ++i) {
      const NodeId n{i};
      const std::string what = compare(n);
      if (!what.empty()) return Difference{n, label(n) + ": " + what};
    }
    if (a_.node_count() != b_.node_count())
      return Difference{NodeId{common}, "one step has " + std::to_string(a_.node_count()) +
                                            " nodes, the other " + std::to_string(b_.node_count()) +
                                            "; the first " + std::to_string(common) +
                                            " are the same"};
    if (!same_values(a_.outputs(), b_.outputs()))
      return Difference{NodeId{common}, "the steps hand over different values"};
    return std::nullopt;
  }

 private:
  [[nodiscard]] std::string label(NodeId n) const {
    return "node " + std::to_string(a_.node(n).id) + " (" + a_.node(n).name + ")";
  }

  std::string compare(NodeId n) {
    const Node &x = a_.node(n), &y = b_.node(n);
    if (x.op != y.op) return "op differs: " + x.op + " and " + y.op;
    if (x.extra != y.extra) return "attributes differ: " + x.extra + " and " + y.extra;
    std::string operands = compare_lists(a_.inputs(n), b_.inputs(n), "operand");
    if (!operands.empty()) return operands;
    const std::string updates = compare_lists(a_.updates(n), b_.updates(n), "updated value");
    return updates.empty() ? compare_results(n) : updates;
  }

  std::string compare_lists(std::span<const ValueId> x, std::span<const ValueId> y,
                            const std::string& what) {
    if (x.size() != y.size())
      return "number of " + what + "s differs: " + std::to_string(x.size()) + " and " +
             std::to_string(y.size());
    for (std::size_t k = 0; k < x.size(); ++k)
      if (!same(x[k], y[k]))
        return what + " " + std::to_string(k) + " differs: " + describe(a_, x[k]) + " and " +
               describe(b_, y[k]);
    return {};
  }

  std::string compare_results(NodeId n) {
    const auto x = a_.outputs(n), y = b_.outputs(n);
    if (x.size() != y.size())
      return "number of results differs: " + std::to_string(x.size()) + " and " +
             std::to_string(y.size());
    for (std::size_t k = 0; k < x.size(); ++k) {
      const Value &v = a_.value(x[k]), &w = b_.value(y[k]);
      if (v.bytes != w.bytes)
        return "result " + std::to_string(k) + " differs in size: " + format_bytes(v.bytes) +
               " and " + format_bytes(w.bytes);
      if (v.extra != w.extra)
        return "result " + std::to_string(k) + " differs: " + v.extra + " and " + w.extra;
      if (!pair(x[k], y[k])) return "result " + std::to_string(k) + " is another value";
    }
    for (std::size_t k = 0; k < x.size(); ++k)
      if (!same_target(x[k], y[k]))
        return "result " + std::to_string(k) + " lies in another storage";
    return {};
  }

  bool same_target(ValueId x, ValueId y) {
    const Value &v = a_.value(x), &w = b_.value(y);
    if (v.alias_of.valid() != w.alias_of.valid() || v.overwrites.valid() != w.overwrites.valid())
      return false;
    return !v.target().valid() || same(v.target(), w.target());
  }

  bool same_values(std::span<const ValueId> x, std::span<const ValueId> y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [&](ValueId v, ValueId w) { return same(v, w); });
  }

  // Known to correspond, or both from before the step and alike.
  bool same(ValueId x, ValueId y) {
    if (partner_[x.index].valid()) return partner_[x.index] == y;
    const Value &v = a_.value(x), &w = b_.value(y);
    const bool outside = !v.producer.valid() && !w.producer.valid();
    // The name of a wrapped number is a number in the order of first use, so its contents decide.
    const bool alike = v.role == w.role && v.bytes == w.bytes && v.extra == w.extra &&
                       (v.name == w.name || v.role == Role::constant);
    return outside && alike && pair(x, y);
  }

  bool pair(ValueId x, ValueId y) {
    if (partner_[x.index].valid()) return partner_[x.index] == y;
    if (taken_[y.index]) return false;
    partner_[x.index] = y;
    taken_[y.index] = true;
    return true;
  }

  static std::string describe(const StepGraph& graph, ValueId v) {
    const Value& value = graph.value(v);
    return "value " + std::to_string(value.id) + " (" + value.name + ")" +
           (value.extra.empty() ? "" : " " + value.extra);
  }

  const StepGraph& a_;
  const StepGraph& b_;
  std::vector<ValueId> partner_;
  std::vector<bool> taken_;
};

/// Empty if the steps are the same. Times and workspaces are not compared, because they are
/// measurements.
[[nodiscard]] inline std::optional<Difference> diff(const StepGraph& a, const StepGraph& b) {
  return GraphDiff(a, b).first();
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::diff;
using graphs::Difference;
}  // namespace reprise
