#pragma once
// lint() runs a Rewriting on paper and refuses it at the first step that would go wrong.
//
//   lint(graph, rewrite(graph, schedule));      returns; had rewrite() let grad of the toy read the first h.flat:
//
//   lint: freed_early: step 8: node 5 (grad): value 4 (h.flat): is used after its storage was freed
//
// lint() shares no code with rewrite(), so it finds errors there before anything runs. It tracks by
// itself the newest slot of each value, allocations, last uses and updates. It also refuses two
// things that the plan format allows and that would give other numbers:
//
//   effect_order   a run reads a persistent storage after another number of writes than in the graph's own order: through a view, or
//                  after a node that has the persistent value among its outputs
//   apart          a node writes a storage in place and makes another value of the same storage, but its two targets were recomputed
//                  separately, so one does not see writes through the other

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/rewriting.hpp>
#include <reprise/rewrite/write_order.hpp>

namespace reprise::rewriting {

enum class LintRule : std::uint8_t {
  malformed,     ///< a list does not fit the node or the graph, or an id does not exist
  runs_again,    ///< a node that is not recomputable has a clone
  never_runs,    ///< a node has no step
  clone_number,  ///< the clones of a node are not numbered 0, 1, 2, …
  effects,       ///< an update is repeated, left out, or not noted for a later clone
  /// a persistent storage is read or updated after another number of writes than in the graph's own
  /// order
  effect_order,
  not_written,    ///< a slot is used before it is written
  wrong_value,    ///< a slot is used, or written, as another value than its own
  freed_early,    ///< a slot is used after its storage was freed
  overwritten,    ///< a slot is used after its storage was overwritten
  not_newest,     ///< a slot is used although a newer instance of its value exists
  wrong_target,   ///< a view or in-place write names another target than this step's own
  wrong_storage,  ///< a slot is in another storage than its value, or than the target of its view
  /// a step writes in place a storage of which it also makes another view or version, and these are
  /// in different storages
  apart,
  written_twice,  ///< a slot is written twice
  allocation,     ///< a step does not allocate exactly the storages of its results
  freed_twice,    ///< a storage is freed that does not exist, or that is persistent
  freed_late,     ///< a storage is freed after a later step than its last use
  drops,          ///< the slots that a step drops are not those of its freed storages
  leak,           ///< a storage that is no output exists at the end
  peak,           ///< the program's peak is not the schedule's
};

[[nodiscard]] constexpr std::string_view to_string(LintRule rule) {
  constexpr std::string_view names[] = {
      "malformed",    "runs_again",   "never_runs",    "clone_number", "effects",
      "effect_order", "not_written",  "wrong_value",   "freed_early",  "overwritten",
      "not_newest",   "wrong_target", "wrong_storage", "apart",        "written_twice",
      "allocation",   "freed_twice",  "freed_late",    "drops",        "leak",
      "peak"};
  return names[static_cast<std::size_t>(rule)];
}

class Linter {
 public:
  Linter(const StepGraph& graph, const Rewriting& program)
      : graph_(graph),
        program_(program),
        order_(graph),
        newest_(graph.value_count()),
        runs_(graph.node_count(), 0),
        total_(graph.node_count(), 0),
        written_(program.slots.size(), false),
        state_(program.allocations.size(), State::not_yet),
        owned_(program.allocations.size(), false),
        last_use_(program.allocations.size(), 0),
        holds_(program.allocations.size()) {}

  void check() {
    check_tables();
    begin();
    for (now_ = 0; now_ < program_.steps.size(); ++now_) check_step(program_.steps[now_]);
    node_ = NodeId{};
    end();
  }

 private:
  enum class State : std::uint8_t { not_yet, live, freed };

  // ── before the first step ──────────────────────────────────────────────────────────────────────

  void check_tables() {
    for (const Allocation& a : program_.allocations) {
      if (a.storage.index >= graph_.storage_count())
        fail(LintRule::malformed, {}, "an allocation is of no storage");
      const Storage& s = graph_.storage(a.storage);
      if (a.bytes != s.bytes || a.persistent != s.persistent ||
          a.at_start != (s.persistent || graph_.value(s.owner).initial))
        fail(LintRule::allocation, s.owner, "has an allocation that is not like its storage");
    }
    for (const Slot& slot : program_.slots) {
      if (slot.value.index >= graph_.value_count() ||
          slot.allocation.index >= program_.allocations.size())
        fail(LintRule::malformed, {}, "a slot is of no value, or in no allocation");
      if (allocation_of(slot).storage != graph_.value(slot.value).storage)
        fail(LintRule::wrong_storage, slot.value, "has a slot in another storage");
    }
    for (const ProgramStep& step : program_.steps) {
      if (step.node.index >= graph_.node_count())
        fail(LintRule::malformed, {}, "a step runs no node");
      ++total_[step.node.index];
    }
  }

  void begin() {
    for (std::size_t i = 0; i < program_.allocations.size(); ++i) {
      const Allocation& a = program_.allocations[i];
      if (!a.at_start) continue;
      state_[i] = State::live;
      if (!a.persistent) live_ += a.bytes;
    }
    live_ += graph_.persistent_bytes();
    peak_ = graph_.persistent_bytes();
    for (SlotId s : program_.at_start) {
      const ValueId v = slot(s).value;
      if (!graph_.value(v).persistent && !graph_.value(v).initial)
        fail(LintRule::malformed, v, "is not there at the start");
      if (newest_[v.index].valid()) fail(LintRule::malformed, v, "is there at the start twice");
      write(s);
      newest_[v.index] = s;
    }
    std::vector<bool> there(graph_.storage_count(), false);
    for (const Allocation& a : program_.allocations) {
      if (a.at_start && there[a.storage.index])
        fail(LintRule::allocation, graph_.storage(a.storage).owner, "is there at the start twice");
      there[a.storage.index] = there[a.storage.index] || a.at_start;
    }
    for (ValueId id : graph_.value_ids()) {
      const Value& v = graph_.value(id);
      if ((v.persistent || v.initial) && !newest_[id.index].valid())
        fail(LintRule::malformed, id, "has no slot at the start");
    }
  }

  // ── a step ─────────────────────────────────────────────────────────────────────────────────────

  void check_step(const ProgramStep& step) {
    node_ = step.node;
    if (step.reads.size() != graph_.inputs(node_).size() ||
        step.writes.size() != graph_.outputs(node_).size() ||
        step.targets.size() != graph_.outputs(node_).size())
      fail(LintRule::malformed, {},
           "does not read, write or target as many slots as the node has inputs and outputs");
    check_run(step);
    for (std::size_t k = 0; k < step.reads.size(); ++k) use(step.reads[k], graph_.inputs(node_)[k]);
    for (std::size_t k = 0; k < step.targets.size(); ++k) check_target(step, k);
    allocate(step);
    for (std::size_t k = 0; k < step.writes.size(); ++k) check_write(step, k);
    overwrite(step);
    publish(step);
    peak_ = std::max(peak_, live_ + graph_.node(node_).workspace);
    free(step);
  }

  void check_run(const ProgramStep& step) {
    const bool first = runs_[node_.index] == 0;
    if (!first && !graph_.node(node_).recomputable)
      fail(LintRule::runs_again, {}, "is not recomputable and runs again");
    if (step.clone != runs_[node_.index]++)
      fail(LintRule::clone_number, {}, "is not clone " + std::to_string(step.clone));
    const Effects expected = expected_effects(first);
    if (step.effects != expected)
      fail(LintRule::effects, {},
           "has effects '" + std::string(to_string(step.effects)) + "' and must have '" +
               std::string(to_string(expected)) + "'");
    if (const WriteOrder::Touch* t = order_.run(node_, first))
      fail(LintRule::effect_order, graph_.storage(t->storage).owner,
           "has been written " + std::to_string(order_.writes(t->storage)) + " times by now, and " +
               std::to_string(t->writes_before) + " times in the graph's own order");
  }

  [[nodiscard]] Effects expected_effects(bool first) const {
    if (graph_.updates(node_).empty()) return Effects::none;
    if (!first) return Effects::leave_out;
    return total_[node_.index] > 1 ? Effects::note_and_perform : Effects::perform;
  }

  void use(SlotId s, ValueId v) {
    const Slot& used = slot(s);
    if (!written_[s.index])
      fail(LintRule::not_written, v, "is used in a slot that nothing has written");
    if (used.value != v) fail(LintRule::wrong_value, v, "is used in a slot of another value");
    if (state_[used.allocation.index] != State::live)
      fail(LintRule::freed_early, v, "is used after its storage was freed");
    if (!newest_[v.index].valid())
      fail(LintRule::overwritten, v, "is used after its storage was overwritten");
    if (newest_[v.index] != s)
      fail(LintRule::not_newest, v, "is used in an instance that is not the newest");
    last_use_[used.allocation.index] = now_;
  }

  void check_target(const ProgramStep& step, std::size_t k) {
    const ValueId v = graph_.outputs(node_)[k], target = graph_.value(v).target();
    if (graph_.value(v).persistent || !target.valid()) {
      if (step.targets[k].valid())
        fail(LintRule::malformed, v, "is no view and overwrites nothing, yet has a target");
      return;
    }
    const auto made = graph_.outputs(node_);
    const auto here = std::find(made.begin(), made.end(), target);
    if (here == made.end() || graph_.value(target).persistent) use(step.targets[k], target);
    else if (step.targets[k] != step.writes[static_cast<std::size_t>(here - made.begin())])
      fail(LintRule::wrong_target, v, "has not the target that this step makes");
  }

  void allocate(const ProgramStep& step) {
    for (AllocationId a : step.allocates) {
      if (a.index >= program_.allocations.size())
        fail(LintRule::malformed, {}, "allocates nothing that there is");
      if (state_[a.index] != State::not_yet)
        fail(LintRule::allocation, {}, "allocates what has been allocated");
      state_[a.index] = State::live;
      live_ += program_.allocations[a.index].bytes;
    }
  }

  void check_write(const ProgramStep& step, std::size_t k) {
    const ValueId v = graph_.outputs(node_)[k];
    const Value& value = graph_.value(v);
    const SlotId s = step.writes[k];
    if (value.persistent && !newest_[v.index].valid()) {
      if (s.valid()) fail(LintRule::overwritten, v, "is written, but its storage was taken over");
      return;
    }
    if (slot(s).value != v)
      fail(LintRule::wrong_value, v, "is written into a slot of another value");
    const AllocationId a = slot(s).allocation;
    if (value.persistent || !value.owns()) {
      const SlotId beside = value.persistent ? newest_[v.index] : step.targets[k];
      if (a != slot(beside).allocation)
        fail(LintRule::wrong_storage, v, "does not lie where what it is made of lies");
    } else {
      if (owned_[a.index] ||
          std::find(step.allocates.begin(), step.allocates.end(), a) == step.allocates.end())
        fail(LintRule::allocation, v, "owns bytes that this step does not allocate for it");
      owned_[a.index] = true;
    }
    write(s);
  }

  // Each slot is written once in the program.
  void write(SlotId s) {
    if (written_[s.index])
      fail(LintRule::written_twice, slot(s).value, "is written into a slot that has been written");
    const AllocationId a = slot(s).allocation;
    written_[s.index] = true;
    holds_[a.index].push_back(s);
    last_use_[a.index] = now_;
  }

  void overwrite(const ProgramStep& step) {
    for (std::size_t k = 0; k < step.writes.size(); ++k) {
      if (!graph_.value(graph_.outputs(node_)[k]).overwrites.valid() || !step.writes[k].valid())
        continue;
      const Slot& written = slot(step.writes[k]);
      for (SlotId s : holds_[written.allocation.index])
        if (newest_[slot(s).value.index] == s) newest_[slot(s).value.index] = SlotId{};
      for (SlotId s : step.writes)
        if (s.valid() && slot(s).allocation != written.allocation &&
            allocation_of(slot(s)).storage == allocation_of(written).storage)
          fail(LintRule::apart, slot(s).value,
               "does not lie where value " + label(graph_.value(written.value)) + " is written");
    }
  }

  // A value that another output of the same node overwrites never exists for other nodes.
  void publish(const ProgramStep& step) {
    const auto made = graph_.outputs(node_);
    for (std::size_t k = 0; k < made.size(); ++k) {
      const bool gone = std::any_of(made.begin(), made.end(), [&](ValueId w) {
        return graph_.value(w).overwrites == made[k];
      });
      if (!gone && step.writes[k].valid()) newest_[made[k].index] = step.writes[k];
    }
    for (AllocationId a : step.allocates)
      if (!owned_[a.index]) fail(LintRule::allocation, {}, "allocates what no output of it owns");
  }

  void free(const ProgramStep& step) {
    std::size_t slots = 0;
    for (AllocationId a : step.frees) {
      if (a.index >= program_.allocations.size())
        fail(LintRule::malformed, {}, "frees nothing that there is");
      const ValueId owner = graph_.storage(program_.allocations[a.index].storage).owner;
      if (state_[a.index] != State::live || program_.allocations[a.index].persistent)
        fail(LintRule::freed_twice, owner, "is freed, and is not there or persistent");
      if (last_use_[a.index] != now_)
        fail(LintRule::freed_late, owner, "is freed later than after its last use");
      state_[a.index] = State::freed;
      live_ -= program_.allocations[a.index].bytes;
      slots += holds_[a.index].size();
    }
    for (SlotId s : step.drops) {
      const AllocationId a = slot(s).allocation;
      const auto held = std::find(holds_[a.index].begin(), holds_[a.index].end(), s);
      if (state_[a.index] != State::freed || held == holds_[a.index].end())
        fail(LintRule::drops, slot(s).value, "is dropped, and is not in what is freed");
      holds_[a.index].erase(held);
    }
    if (step.drops.size() != slots)
      fail(LintRule::drops, {}, "does not drop all slots of what it frees");
  }

  // ── after the last step ────────────────────────────────────────────────────────────────────────

  void end() {
    for (NodeId n : graph_.node_ids())
      if (runs_[n.index] == 0) node_ = n, fail(LintRule::never_runs, {}, "never runs");
    if (program_.outputs.size() != graph_.outputs().size())
      fail(LintRule::malformed, {}, "not as many slots are handed over as the graph has outputs");
    std::vector<bool> handed_over(program_.allocations.size(), false);
    for (std::size_t k = 0; k < program_.outputs.size(); ++k) {
      use(program_.outputs[k], graph_.outputs()[k]);
      handed_over[slot(program_.outputs[k]).allocation.index] = true;
    }
    for (std::size_t i = 0; i < program_.allocations.size(); ++i) check_gone(i, handed_over[i]);
    for (std::size_t i = 0; i < program_.slots.size(); ++i)
      if (!written_[i])
        fail(LintRule::not_written, program_.slots[i].value, "has a slot that nothing writes");
    if (peak_ != program_.peak)
      fail(LintRule::peak, {},
           "the program's peak is " + std::to_string(peak_.count) + " bytes, the schedule's " +
               std::to_string(program_.peak.count));
  }

  void check_gone(std::size_t i, bool handed_over) const {
    const Allocation& a = program_.allocations[i];
    const ValueId owner = graph_.storage(a.storage).owner;
    if (state_[i] == State::not_yet)
      fail(LintRule::allocation, owner, "has an allocation that nothing makes");
    const bool may_stay = a.persistent || handed_over || program_.steps.empty();
    if (state_[i] == State::live && !may_stay)
      fail(LintRule::leak, owner, "is still there at the end, and not handed over");
  }

  // ── messages ───────────────────────────────────────────────────────────────────────────────────

  [[nodiscard]] const Slot& slot(SlotId s) const {
    if (s.index >= program_.slots.size())
      fail(LintRule::malformed, {}, "names a slot that there is not");
    return program_.slots[s.index];
  }
  [[nodiscard]] const Allocation& allocation_of(const Slot& s) const {
    return program_.allocations[s.allocation.index];
  }

  [[noreturn]] void fail(LintRule rule, ValueId v, const std::string& what) const {
    std::string text = "lint: " + std::string(to_string(rule)) + ": ";
    if (node_.valid() && now_ < program_.steps.size())
      text += "step " + std::to_string(now_) + ": ";
    if (node_.valid()) text += "node " + label(graph_.node(node_)) + ": ";
    if (v.valid()) text += "value " + label(graph_.value(v)) + ": ";
    throw Error(Errc::bad_schedule, text + what);
  }

  template <class Item>
  static std::string label(const Item& item) {
    return std::to_string(item.id) + (item.name.empty() ? "" : " (" + item.name + ")");
  }

  const StepGraph& graph_;
  const Rewriting& program_;
  WriteOrder order_;
  // by value: its newest instance; none if it does not exist
  std::vector<SlotId> newest_;
  std::vector<std::uint32_t> runs_, total_;  // by node: steps so far, and in total
  std::vector<bool> written_;                // by slot
  std::vector<State> state_;                 // by allocation
  // by allocation: whether its owner has been written
  std::vector<bool> owned_;
  std::vector<std::size_t> last_use_;       // by allocation: the last step that uses it
  std::vector<std::vector<SlotId>> holds_;  // by allocation: its written slots
  Bytes live_{}, peak_{};
  std::size_t now_ = 0;
  NodeId node_{};
};

/// Throws Errc::bad_schedule with the rule, the step, the node and the value; changes nothing.
inline void lint(const StepGraph& graph, const Rewriting& program) {
  Linter{graph, program}.check();
}

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::lint;
using rewriting::to_string;
}  // namespace reprise
