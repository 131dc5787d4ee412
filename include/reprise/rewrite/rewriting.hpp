#pragma once
// A Rewriting is an explicit schedule, as plain data that any backend can run. Every use names its
// slot, every storage the steps that allocate and free it, and every clone the side effects that it
// must not repeat.
//
//   norm relu flat wide sum norm relu flat grad         a schedule for the toy of the plan format
//
//   Rewriting program = rewrite(graph, schedule);
//   program.steps[0]      norm      reads x          writes h       note_and_perform: it updates mean, and has a later clone
//   program.steps[2]      flat      reads h.relu     writes h.flat  frees the allocation of h, drops h, h.relu and h.flat
//   program.steps[5]      norm#1    reads x          writes h#1     leave_out: mean does not change
//   program.steps[8]      grad      reads x, h.flat#1               frees the allocation of h#1
//
// A slot is written once: h and h#1 are two slots. h, h.relu and h.flat are three slots of one
// allocation, and are freed with it. A backend looks nothing up by name: it needs the graph's ids
// and the Rewriting. write_listing (report/listing.hpp) prints a Rewriting.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/base/ids.hpp>
#include <reprise/graph/schedule.hpp>
#include <reprise/graph/simulate.hpp>
#include <reprise/graph/step_graph.hpp>

namespace reprise::rewriting {

/// one instance of a value: a backend keeps a tensor for it
using SlotId = Id<struct SlotTag>;
/// one instance of a storage: a backend keeps bytes for it
using AllocationId = Id<struct AllocationTag>;

struct Slot {
  ValueId value{};
  AllocationId allocation{};
  bool operator==(const Slot&) const = default;
};

struct Allocation {
  StorageId storage{};
  Bytes bytes{};
  bool at_start = false;    ///< persistent and initial storages: no step allocates them
  bool persistent = false;  ///< never freed
  bool operator==(const Allocation&) const = default;
};

/// The effect of a step on the persistent values that its node updates (batch-norm statistics, a
/// random generator).
enum class Effects : std::uint8_t {
  none,     ///< the node updates nothing
  perform,  ///< they are updated
  /// the same, but the node has a later clone: the state that the node reads there (a generator's)
  /// is noted first
  note_and_perform,
  leave_out,  ///< a clone: it computes with the noted state, and changes nothing
};

[[nodiscard]] constexpr std::string_view to_string(Effects effects) {
  constexpr std::string_view names[] = {"none", "perform", "note_and_perform", "leave_out"};
  return names[static_cast<std::size_t>(effects)];
}

/// One run of a node.
struct ProgramStep {
  NodeId node{};
  std::uint32_t clone = 0;  ///< 0 for its first run, then 1, 2, …
  Effects effects = Effects::none;
  std::vector<SlotId> reads{};  ///< in the order of graph.inputs(node)
  /// in the order of graph.outputs(node); none for a persistent value that does not exist then
  std::vector<SlotId> writes{};
  /// in the order of graph.outputs(node): the value that it is a view of or overwrites; else none
  std::vector<SlotId> targets{};
  std::vector<AllocationId> allocates{};  ///< when it starts
  std::vector<AllocationId> frees{};      ///< when it has finished
  std::vector<SlotId> drops{};            ///< the slots of the freed allocations
  bool operator==(const ProgramStep&) const = default;
};

struct Rewriting {
  std::vector<ProgramStep> steps{};
  std::vector<Slot> slots{};
  std::vector<Allocation> allocations{};
  /// slots of persistent and initial values, in the graph's order: filled before the first step
  std::vector<SlotId> at_start{};
  std::vector<SlotId> outputs{};  ///< in the order of graph.outputs(): exist after the last step
  Bytes peak{};                   ///< of the schedule

  bool operator==(const Rewriting&) const = default;
};

/// The schedule of a rewriting.
[[nodiscard]] inline Schedule schedule_of(const Rewriting& program) {
  Schedule schedule;
  for (const ProgramStep& step : program.steps) schedule.push_back(step.node);
  return schedule;
}

class RewritingMaker {
 public:
  RewritingMaker(const StepGraph& graph, std::span<const NodeId> schedule)
      : graph_(graph), schedule_(schedule), resolution_(resolve(graph, schedule)) {}

  Rewriting make() {
    make_slots();
    make_steps();
    place_allocations();
    for (std::uint32_t instance : resolution_.step_outputs)
      program_.outputs.push_back(slot(instance));
    Simulation cost;
    sweep(graph_, schedule_, resolution_.storages, cost);
    program_.peak = cost.peak;
    return std::move(program_);
  }

 private:
  static SlotId slot(std::uint32_t instance) {
    return instance == no_index ? SlotId{} : SlotId{instance};
  }

  static std::vector<SlotId> slots(std::span<const std::uint32_t> instances) {
    std::vector<SlotId> list;
    list.reserve(instances.size());
    for (std::uint32_t i : instances) list.push_back(slot(i));
    return list;
  }

  void make_slots() {
    for (const StorageInstance& s : resolution_.storages)
      program_.allocations.push_back({s.storage, s.bytes, s.made_by == no_index, s.persistent});
    for (std::size_t i = 0; i < resolution_.values.size(); ++i) {
      const ValueInstance& v = resolution_.values[i];
      program_.slots.push_back({v.value, AllocationId{v.storage}});
      if (v.made_by == no_index) program_.at_start.push_back(SlotId{i});
    }
  }

  void make_steps() {
    const std::vector<std::uint32_t> total = run_counts(graph_, schedule_);
    std::vector<std::uint32_t> runs(graph_.node_count(), 0);
    program_.steps.reserve(schedule_.size());
    for (std::size_t i = 0; i < schedule_.size(); ++i) {
      ProgramStep step;
      step.node = schedule_[i];
      step.clone = runs[step.node.index]++;
      step.effects = effects(step.node, step.clone, total[step.node.index]);
      step.reads = slots(resolution_.inputs[i]);
      step.writes = slots(resolution_.outputs[i]);
      step.targets = slots(resolution_.targets[i]);
      program_.steps.push_back(std::move(step));
    }
  }

  [[nodiscard]] Effects effects(NodeId n, std::uint32_t clone, std::uint32_t total) const {
    if (graph_.updates(n).empty()) return Effects::none;
    if (clone > 0) return Effects::leave_out;
    return total > 1 ? Effects::note_and_perform : Effects::perform;
  }

  void place_allocations() {
    const auto freed = [&](const StorageInstance& s) {
      return !s.persistent && s.last < schedule_.size();
    };
    for (std::size_t i = 0; i < resolution_.storages.size(); ++i) {
      const StorageInstance& s = resolution_.storages[i];
      if (s.made_by != no_index) program_.steps[s.made_by].allocates.push_back(AllocationId{i});
      if (freed(s)) program_.steps[s.last].frees.push_back(AllocationId{i});
    }
    for (std::size_t i = 0; i < resolution_.values.size(); ++i) {
      const StorageInstance& s = resolution_.storages[resolution_.values[i].storage];
      if (freed(s)) program_.steps[s.last].drops.push_back(SlotId{i});
    }
  }

  const StepGraph& graph_;
  std::span<const NodeId> schedule_;
  Resolution resolution_;
  Rewriting program_;
};

/// Numbers the clones, gives every use its instance by the rule, places the frees, and maps the
/// outputs. Throws Errc::bad_schedule with the first broken rule.
[[nodiscard]] inline Rewriting rewrite(const StepGraph& graph, std::span<const NodeId> schedule) {
  return RewritingMaker{graph, schedule}.make();
}

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::AllocationId;
using rewriting::Effects;
using rewriting::ProgramStep;
using rewriting::rewrite;
using rewriting::Rewriting;
using rewriting::SlotId;
using rewriting::to_string;
}  // namespace reprise
