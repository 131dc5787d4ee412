#pragma once
// simulate() computes what a schedule costs, to the byte: the one rule that planner, rewriter and
// executors share. Linear in the schedule.
//
//   h = norm(x)  8192 B, relu_ overwrites h, wide 16384 B, sum, grad reads relu; x is persistent, 4096 B
//
//   schedule          norm   relu_  wide   sum    norm   relu_  grad
//   h, 1st storage    |------|
//   wide                            |-------|
//   h, 2nd storage                                 |-------------|       live from the occurrence that makes it
//   live + workspace  ...                                                to the last one that uses a value in it
//
// ```cpp
// simulate(graph, schedule).peak;  // the largest sum, persistent storages included
// resolve(graph, schedule);        // every use with the instance that it reads
// ```
//
// Each occurrence of a node makes new instances of its outputs; an input is the newest instance of
// its value. Overwriting ends every value in that storage. A value that is not used is freed when
// its producer has finished. Outputs of the step live to the end.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::graphs {

/// No occurrence: made before the step, or no such instance.
inline constexpr std::uint32_t no_index = std::numeric_limits<std::uint32_t>::max();

/// One allocation of a storage. It is live during the occurrences first .. last, both included.
struct StorageInstance {
  StorageId storage{};
  Bytes bytes{};
  std::uint32_t first = 0;
  std::uint32_t last = 0;            ///< schedule.size() for a storage that lives to the end
  std::uint32_t made_by = no_index;  ///< none for an initial storage
  bool persistent = false;           ///< live from start to end
};

/// One version of a value that an occurrence made, or an initial one.
struct ValueInstance {
  ValueId value{};
  std::uint32_t storage = 0;         ///< index into Resolution::storages
  std::uint32_t made_by = no_index;  ///< occurrence; none for an initial value
};

/// Every use with the instance that it reads or makes. Lists are by occurrence and contain indices
/// into `values`.
struct Resolution {
  std::vector<ValueInstance> values;
  std::vector<StorageInstance> storages;
  FlatLists<std::uint32_t> inputs;  ///< in the order of graph.inputs(node)
  /// in the order of graph.outputs(node); no_index for a persistent value that does not exist then
  FlatLists<std::uint32_t> outputs;
  /// in the order of graph.outputs(node): the value that it is a view of or overwrites; else
  /// no_index
  FlatLists<std::uint32_t> targets;
  std::vector<std::uint32_t> step_outputs;  ///< in the order of graph.outputs()
};

enum class Rule : std::uint8_t {
  unknown_node,  ///< the schedule names no node
  runs_again,    ///< a node that is not recomputable occurs twice
  /// an occurrence comes after another number of updates than in the graph's own order
  update_order,
  missing_input,   ///< an input does not exist, or has been overwritten
  missing_target,  ///< the value that an output is a view of, or overwrites, does not exist
  never_runs,      ///< a node does not occur
  missing_output,  ///< an output of the step does not exist at the end
};

/// The first rule that a schedule breaks.
struct Violation {
  Rule rule{};
  std::size_t step = 0;  ///< index into the schedule; its size for a violation at the end
  NodeId node{};
  ValueId value{};
  std::string message{};
};

struct Simulation {
  bool valid = false;
  std::optional<Violation> violation{};  ///< if not valid; all members below are then empty
  Bytes peak{};
  std::size_t peak_step = 0;  ///< the first occurrence with the peak
  Microseconds time{};
  /// by occurrence, persistent storages and workspace included
  std::vector<Bytes> live_during{};
  /// by occurrence, after the storages without later use were freed
  std::vector<Bytes> live_after{};
};

/// Adds doubles almost exactly (Neumaier), because schedules repeat small times after large ones.
class ExactSum {
 public:
  void add(double x) {
    const double t = sum_ + x;
    lost_ += std::abs(sum_) >= std::abs(x) ? (sum_ - t) + x : (x - t) + sum_;
    sum_ = t;
  }
  [[nodiscard]] double value() const { return sum_ + lost_; }

 private:
  double sum_ = 0, lost_ = 0;
};

/// Runs a schedule symbolically, one occurrence at a time. Stops for good at the first violation.
class ScheduleInterpreter {
 public:
  explicit ScheduleInterpreter(const StepGraph& graph)
      : graph_(graph),
        newest_(graph.value_count(), no_index),
        was_newest_(graph.value_count(), no_index),
        next_(graph.value_count()),
        previous_(graph.value_count()),
        placed_(graph.value_count(), no_index),
        runs_(graph.node_count(), 0),
        updated_(graph.value_count(), 0) {
    count_updates();
    place_what_is_there();
  }

  /// False if the occurrence breaks a rule: see violation().
  bool step(NodeId n) {
    if (n.index >= graph_.node_count()) return fail(Rule::unknown_node, n, {}, "no such node");
    const bool first = ++runs_[n.index] == 1;
    if (!first && !graph_.node(n).recomputable)
      return fail(Rule::runs_again, n, {}, "is not recomputable and runs again");
    if (!updates_fit(n, first)) return false;
    if (first)
      for (ValueId v : graph_.updates(n)) ++updated_[v.index];
    if (!read_inputs(n) || !place_outputs(n)) return false;
    overwrite();
    publish(n);
    now_ += 1;
    return true;
  }

  /// Checks that every node has run and that the outputs exist; they live to the end.
  bool finish() {
    for (NodeId n : graph_.node_ids())
      if (runs_[n.index] == 0) return fail(Rule::never_runs, n, {}, "never runs");
    for (ValueId v : graph_.outputs()) {
      if (newest_[v.index] == no_index)
        return fail(Rule::missing_output, {}, v,
                    "is an output of the step and does not exist at the end");
      result_.step_outputs.push_back(newest_[v.index]);
      result_.storages[storage_of(v)].last = now_;
    }
    for (StorageInstance& s : result_.storages)
      if (s.persistent) s.last = now_;
    return true;
  }

  [[nodiscard]] const std::optional<Violation>& violation() const { return violation_; }
  [[nodiscard]] const Resolution& result() const& { return result_; }
  [[nodiscard]] Resolution result() && { return std::move(result_); }

 private:
  // Counts, for each value that a node reads or updates, the updates before the node in the graph's
  // own order.
  void count_updates() {
    std::vector<bool> ever(graph_.value_count(), false);
    for (NodeId n : graph_.node_ids())
      for (ValueId v : graph_.updates(n)) ever[v.index] = true;
    std::vector<std::uint32_t> done(graph_.value_count(), 0);
    std::vector<Seen> list;
    for (NodeId n : graph_.node_ids()) {
      list.clear();
      for (ValueId v : graph_.inputs(n))
        if (ever[v.index]) list.push_back({v, done[v.index], true});
      for (ValueId v : graph_.updates(n)) list.push_back({v, done[v.index], false});
      seen_.push_back(list);
      for (ValueId v : graph_.updates(n)) ++done[v.index];
    }
  }

  void place_what_is_there() {
    std::vector<std::uint32_t> instance(graph_.storage_count(), no_index);
    for (StorageId id : graph_.storage_ids()) {
      const Storage& s = graph_.storage(id);
      if (!s.persistent && !graph_.value(s.owner).initial) continue;
      instance[id.index] = static_cast<std::uint32_t>(result_.storages.size());
      result_.storages.push_back({id, s.bytes, 0, 0, no_index, s.persistent});
      holds_.push_back(ValueId{});
    }
    for (ValueId id : graph_.value_ids()) {
      const Value& v = graph_.value(id);
      if (v.persistent || v.initial) make(id, instance[v.storage.index], no_index);
    }
  }

  bool updates_fit(NodeId n, bool first) {
    for (const Seen& s : seen_[n.index])
      if ((first || s.read) && updated_[s.value.index] != s.before)
        return fail(Rule::update_order, n, s.value,
                    "stands after " + std::to_string(updated_[s.value.index]) +
                        " updates of the value, not " + std::to_string(s.before));
    return true;
  }

  bool read_inputs(NodeId n) {
    scratch_.clear();
    for (ValueId v : graph_.inputs(n)) {
      if (newest_[v.index] == no_index)
        return fail(Rule::missing_input, n, v, "is read and does not exist");
      scratch_.push_back(newest_[v.index]);
      result_.storages[storage_of(v)].last = now_;
    }
    result_.inputs.push_back(scratch_);
    return true;
  }

  // Gives each output its storage, without making any of them the newest instance yet: all outputs
  // of an occurrence are made at once.
  bool place_outputs(NodeId n) {
    taken_.clear();
    for (ValueId v : graph_.outputs(n)) placed_[v.index] = no_index;
    for (ValueId v : graph_.outputs(n))
      if (!place(n, v)) return false;
    return true;
  }

  bool place(NodeId n, ValueId v) {
    chain_.clear();
    for (;; v = chain_.back(), chain_.pop_back()) {
      const Value& value = graph_.value(v);
      const ValueId target = value.target();
      if (placed_[v.index] == no_index) {
        if (value.persistent) {
          placed_[v.index] = newest_[v.index] == no_index ? no_index : storage_of(v);
        } else if (value.owns()) {
          placed_[v.index] = static_cast<std::uint32_t>(result_.storages.size());
          result_.storages.push_back({value.storage, value.bytes, now_, now_, now_, false});
          holds_.push_back(ValueId{});
        } else if (made_here(n, target) && placed_[target.index] == no_index) {
          chain_.push_back(v);
          chain_.push_back(target);
          continue;
        } else {
          if (!made_here(n, target) && newest_[target.index] == no_index)
            return fail(Rule::missing_target, n, target,
                        "is viewed or overwritten and does not exist");
          const std::uint32_t s = made_here(n, target) ? placed_[target.index] : storage_of(target);
          placed_[v.index] = s;
          result_.storages[s].last = now_;
          if (value.overwrites.valid()) taken_.push_back(s);
        }
      }
      if (chain_.empty()) return true;
    }
  }

  [[nodiscard]] bool made_here(NodeId n, ValueId v) const {
    const Value& value = graph_.value(v);
    return !value.persistent && value.producer == n;
  }

  void overwrite() {
    for (std::uint32_t s : taken_) {
      for (ValueId v = holds_[s]; v.valid(); v = next_[v.index]) newest_[v.index] = no_index;
      holds_[s] = ValueId{};
    }
  }

  void publish(NodeId n) {
    const auto outputs = graph_.outputs(n);
    scratch_.clear();
    targets_.clear();
    const std::size_t before = result_.values.size();
    for (ValueId v : outputs) {
      if (placed_[v.index] == no_index) {
        scratch_.push_back(no_index);
        continue;
      }
      scratch_.push_back(static_cast<std::uint32_t>(result_.values.size()));
      result_.values.push_back({v, placed_[v.index], now_});
    }
    for (ValueId v : outputs) targets_.push_back(target_instance(n, v, before));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (scratch_[i] != no_index && !overwritten_here(n, outputs[i]))
        set_newest(outputs[i], scratch_[i]);
    result_.outputs.push_back(scratch_);
    result_.targets.push_back(targets_);
  }

  // The target's instance may have been overwritten by now. It is therefore searched among the
  // storage's instances of this occurrence, or among the newest instances when the occurrence
  // started.
  [[nodiscard]] std::uint32_t target_instance(NodeId n, ValueId v, std::size_t before) const {
    const ValueId target = graph_.value(v).target();
    if (!target.valid() || graph_.value(v).persistent) return no_index;
    if (!made_here(n, target)) return was_newest_[target.index];
    for (std::size_t i = before; i < result_.values.size(); ++i)
      if (result_.values[i].value == target) return static_cast<std::uint32_t>(i);
    return no_index;
  }

  [[nodiscard]] bool overwritten_here(NodeId n, ValueId v) const {
    for (ValueId w : graph_.outputs(n))
      if (graph_.value(w).overwrites == v) return true;
    return false;
  }

  void make(ValueId v, std::uint32_t storage, std::uint32_t by) {
    result_.values.push_back({v, storage, by});
    set_newest(v, static_cast<std::uint32_t>(result_.values.size() - 1));
  }

  // Moves v from its old storage's list of values to its new storage's list.
  void set_newest(ValueId v, std::uint32_t instance) {
    if (newest_[v.index] != no_index) {
      const ValueId p = previous_[v.index], q = next_[v.index];
      if (p.valid()) next_[p.index] = q;
      else holds_[storage_of(v)] = q;
      if (q.valid()) previous_[q.index] = p;
    }
    newest_[v.index] = instance;
    was_newest_[v.index] = instance;
    ValueId& head = holds_[result_.values[instance].storage];
    previous_[v.index] = ValueId{};
    next_[v.index] = head;
    if (head.valid()) previous_[head.index] = v;
    head = v;
  }

  [[nodiscard]] std::uint32_t storage_of(ValueId v) const {
    return result_.values[newest_[v.index]].storage;
  }

  bool fail(Rule rule, NodeId n, ValueId v, const std::string& what) {
    std::string text = "step " + std::to_string(now_);
    if (n.valid())
      text += ": node " +
              (n.index < graph_.node_count() ? label(graph_.node(n)) : std::to_string(n.index));
    if (v.valid()) text += ": value " + label(graph_.value(v));
    violation_ = Violation{rule, now_, n, v, text + " " + what};
    return false;
  }

  template <class Item>
  static std::string label(const Item& item) {
    return std::to_string(item.id) + (item.name.empty() ? "" : " (" + item.name + ")");
  }

  struct Seen {
    ValueId value{};
    std::uint32_t before = 0;
    bool read = false;  ///< among the inputs: applies to every occurrence, not only to the first
  };

  const StepGraph& graph_;
  Resolution result_;
  // by value: its newest instance; no_index if it does not exist
  std::vector<std::uint32_t> newest_;
  std::vector<std::uint32_t> was_newest_;  // the same, without the effect of overwriting
  // by storage instance: head of the list of values whose newest instance is in it
  std::vector<ValueId> holds_;
  std::vector<ValueId> next_, previous_;  // by value: that list
  std::vector<std::uint32_t> placed_;     // by value: its storage in the running occurrence
  std::vector<std::uint32_t> runs_;       // by node
  std::vector<std::uint32_t> updated_;    // by value: updates so far
  FlatLists<Seen> seen_;                  // by node
  std::vector<std::uint32_t> taken_, scratch_, targets_;
  std::vector<ValueId> chain_;
  std::uint32_t now_ = 0;
  std::optional<Violation> violation_;
};

/// Every use with the instance that it reads. Throws Errc::bad_schedule with the first violated
/// rule.
[[nodiscard]] inline Resolution resolve(const StepGraph& graph, std::span<const NodeId> schedule) {
  ScheduleInterpreter replay{graph};
  for (NodeId n : schedule)
    if (!replay.step(n)) throw Error(Errc::bad_schedule, replay.violation()->message);
  if (!replay.finish()) throw Error(Errc::bad_schedule, replay.violation()->message);
  return std::move(replay).result();
}

/// Live bytes during each occurrence, workspace included, and after it.
inline void sweep(const StepGraph& graph, std::span<const NodeId> schedule,
                  std::span<const StorageInstance> storages, Simulation& result) {
  const std::size_t end = schedule.size();
  std::vector<Bytes> made(end + 1), freed(end + 1);
  for (const StorageInstance& s : storages) {
    if (s.persistent) continue;
    made[s.first] += s.bytes;
    freed[s.last] += s.bytes;
  }
  Bytes live = graph.persistent_bytes();
  result.peak = live;
  result.live_during.resize(end);
  result.live_after.resize(end);
  for (std::size_t i = 0; i < end; ++i) {
    live += made[i];
    result.live_during[i] = live + graph.node(schedule[i]).workspace;
    if (result.live_during[i] > result.peak) {
      result.peak = result.live_during[i];
      result.peak_step = i;
    }
    live -= freed[i];
    result.live_after[i] = live;
  }
}

[[nodiscard]] inline Microseconds total_time(const StepGraph& graph,
                                             std::span<const NodeId> schedule) {
  ExactSum time;
  for (NodeId n : schedule) time.add(graph.node(n).time.count);
  return {time.value()};
}

/// Never throws because of the schedule: an invalid one gives the first violated rule.
[[nodiscard]] inline Simulation simulate(const StepGraph& graph, std::span<const NodeId> schedule) {
  Simulation result;
  ScheduleInterpreter replay{graph};
  const bool runs =
      std::all_of(schedule.begin(), schedule.end(), [&](NodeId n) { return replay.step(n); });
  if (!runs || !replay.finish()) {
    result.violation = replay.violation();
    return result;
  }
  result.valid = true;
  sweep(graph, schedule, replay.result().storages, result);
  result.time = total_time(graph, schedule);
  return result;
}

/// Live bytes during each occurrence, by the role of the storage's owner, without workspace.
[[nodiscard]] inline std::vector<std::array<Bytes, role_count>> bytes_by_role(
    const StepGraph& graph, std::span<const NodeId> schedule) {
  const Resolution resolution = resolve(graph, schedule);
  std::vector<std::array<Bytes, role_count>> change(schedule.size() + 2);
  for (const StorageInstance& s : resolution.storages) {
    const auto role = static_cast<std::size_t>(graph.value(graph.storage(s.storage).owner).role);
    change[s.first][role] += s.bytes;
    change[s.last + 1][role] -= s.bytes;
  }
  for (std::size_t i = 1; i < change.size(); ++i)
    for (std::size_t r = 0; r < role_count; ++r) change[i][r] += change[i - 1][r];
  change.resize(schedule.size());
  return change;
}

/// Throws Errc::bad_graph if the graph's own order cannot be run.
inline void check_runnable(const StepGraph& graph) {
  const Simulation own = simulate(graph, own_order(graph));
  if (!own.valid)
    throw Error(Errc::bad_graph,
                "nodes: the graph's own order cannot be run: " + own.violation->message);
}

/// The largest number of bytes that must be live at once in addition to the persistent storages,
/// and for which node.
struct FloorNeed {
  Bytes bytes{};
  /// the node with these inputs, outputs and workspace; none for the outputs of the step
  NodeId node{};
};

[[nodiscard]] inline FloorNeed floor_need(const StepGraph& graph) {
  std::vector<std::uint32_t> counted(graph.storage_count(), 0);
  std::uint32_t round = 0;
  const auto resident = [&](std::span<const ValueId> values) {
    Bytes sum;
    for (ValueId v : values) {
      const StorageId s = graph.value(v).storage;
      if (std::exchange(counted[s.index], round) != round && !graph.storage(s).persistent)
        sum += graph.storage(s).bytes;
    }
    return sum;
  };
  round = 1;
  FloorNeed most{resident(graph.outputs()), NodeId{}};
  for (NodeId n : graph.node_ids()) {
    ++round;
    const Bytes bytes =
        resident(graph.inputs(n)) + resident(graph.outputs(n)) + graph.node(n).workspace;
    if (bytes > most.bytes) most = {bytes, n};
  }
  return most;
}

/// A lower bound on the peak of every schedule: persistent storages plus the larger of the step's
/// outputs and the largest single node's inputs, outputs and workspace.
[[nodiscard]] inline Bytes floor_bytes(const StepGraph& graph) {
  return graph.persistent_bytes() + floor_need(graph).bytes;
}

}  // namespace reprise::graphs

namespace reprise {
using graphs::floor_bytes;
using graphs::Rule;
using graphs::simulate;
using graphs::Simulation;
using graphs::Violation;
}  // namespace reprise
