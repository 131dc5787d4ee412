#pragma once
// IrBackend computes with hashes instead of tensors: two programs of one graph do the same where
// every output's hash, and what is left in every persistent storage, is the same. Microseconds a
// program, no LibTorch.
//
// ```cpp
// const auto eager = Rewriter<IrBackend>{}.rewrite(graph, own_order(graph)).run();
// const auto again = Rewriter<IrBackend>{}.rewrite(graph, schedule).run();
// eager == again;   // whatever valid schedule it is
// ```
//
// It models bytes, not values, so that what goes wrong with real memory goes wrong here:
//
//   bytes of h          norm(x)               relu_ mixes itself into them: whoever reads them through an old slot sees it
//   h.relu              those bytes           h.flat: a path ("flat of h") applied to what the bytes are when it is read
//   freed bytes         garbage               mean, after norm: norm(mean, x); a clone leaves it, and computes with what was noted
//
// An op's result is a hash of the node, its op and attributes, what it reads, and what it found in
// the values that it updates.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/concepts.hpp>

namespace reprise::rewriting {

/// 64 bits that change with each of those put in, and with their order.
class IrHash {
 public:
  IrHash() = default;
  explicit IrHash(std::uint64_t start) : state_(start) {}

  IrHash& add(std::uint64_t x) {  // splitmix64's finish
    state_ = (state_ ^ x) + 0x9e3779b97f4a7c15u;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9u;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111ebu;
    state_ ^= state_ >> 31;
    return *this;
  }
  IrHash& add(std::string_view text) {
    for (const char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
    return add(text.size());
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243f6a8885a308d3u;
};

struct IrResult {
  std::vector<std::uint64_t> outputs{};  ///< beside graph.outputs()
  /// what is in each persistent storage at the end, in the graph's order
  std::vector<std::uint64_t> persistent{};
  /// the first node whose clone made something else than its first run; none
  NodeId diverged{};
  bool operator==(const IrResult&) const = default;
};

/// Keeps all that it needs: graph and rewriting may be gone when it runs.
class IrProgram {
 public:
  /// `input` stands for what the persistent and initial storages hold at the start.
  [[nodiscard]] IrResult run(std::uint64_t input = 0) const {
    Memory memory{.bytes = {},
                  .noted = std::vector<std::uint64_t>(node_count_, 0),
                  .made = std::vector<std::uint64_t>(value_count_, 0)};
    for (std::size_t a = 0; a < storage_.size(); ++a)
      memory.bytes.push_back(IrHash{input}.add(storage_[a].index).value());
    IrResult result;
    for (const Instruction& i : instructions_) {
      execute(i, memory);
      if (!agrees(i, memory) && !result.diverged.valid()) result.diverged = i.node;
      for (AllocationId a : i.frees) memory.bytes[a.index] = IrHash{garbage}.add(a.index).value();
    }
    for (SlotId s : outputs_) result.outputs.push_back(read(s, memory));
    for (AllocationId a : persistent_) result.persistent.push_back(memory.bytes[a.index]);
    return result;
  }

 private:
  friend class IrCompiler;

  static constexpr std::uint64_t garbage = 0xdeadbeef;

  enum class Making : std::uint8_t { fresh, view, in_place };
  struct Write {
    SlotId slot{};
    std::size_t index = 0;  ///< among the node's outputs
    Making making = Making::fresh;
  };
  struct Instruction {
    NodeId node{};
    std::uint64_t op = 0;
    Effects effects = Effects::none;
    bool first = true;
    std::vector<SlotId> reads{};  ///< inputs, and what is viewed or overwritten
    std::vector<SlotId> updates{};
    std::vector<Write> writes{};  ///< each behind what it is a view of or overwrites
    std::vector<AllocationId> frees{};
  };
  struct Place {
    AllocationId allocation{};
    ValueId value{};
    std::uint64_t path = 0;  ///< how the bytes are looked at; 0 for all of them
  };
  struct Memory {
    std::vector<std::uint64_t> bytes{};  ///< by allocation
    std::vector<std::uint64_t> noted{};  ///< by node: what its first run found in what it updates
    std::vector<std::uint64_t> made{};   ///< by value: what its producer's first run made
  };

  [[nodiscard]] std::uint64_t read(SlotId s, const Memory& memory) const {
    const Place& place = places_[s.index];
    return IrHash{place.path}.add(memory.bytes[place.allocation.index]).value();
  }

  void mix_into(SlotId s, std::uint64_t what, Memory& memory) const {
    const Place& place = places_[s.index];
    std::uint64_t& bytes = memory.bytes[place.allocation.index];
    bytes = IrHash{bytes}.add(place.path).add(what).value();
  }

  void execute(const Instruction& i, Memory& memory) const {
    IrHash hash{i.op};
    for (SlotId s : i.reads) hash.add(read(s, memory));
    hash.add(found(i, memory));
    const bool performs = i.effects == Effects::perform || i.effects == Effects::note_and_perform;
    for (std::size_t k = 0; performs && k < i.updates.size(); ++k)
      mix_into(i.updates[k], IrHash{hash}.add(k).value(), memory);
    for (const Write& w : i.writes) {
      const std::uint64_t result = IrHash{hash}.add(garbage).add(w.index).value();
      if (w.making == Making::fresh) memory.bytes[places_[w.slot.index].allocation.index] = result;
      else if (w.making == Making::in_place) mix_into(w.slot, result, memory);
    }
  }

  // What the run takes from the values that it updates: a generator's state, for one.
  std::uint64_t found(const Instruction& i, Memory& memory) const {
    if (i.effects == Effects::leave_out) return memory.noted[i.node.index];
    IrHash state;
    for (SlotId s : i.updates) state.add(read(s, memory));
    if (i.effects == Effects::note_and_perform) memory.noted[i.node.index] = state.value();
    return state.value();
  }

  bool agrees(const Instruction& i, Memory& memory) const {
    bool same = true;
    for (const Write& w : i.writes) {
      std::uint64_t& first = memory.made[places_[w.slot.index].value.index];
      if (i.first) first = read(w.slot, memory);
      else same = same && first == read(w.slot, memory);
    }
    return same;
  }

  std::vector<Instruction> instructions_;
  std::vector<Place> places_;       // by slot
  std::vector<StorageId> storage_;  // by allocation
  std::vector<SlotId> outputs_;
  std::vector<AllocationId> persistent_;
  std::size_t node_count_ = 0, value_count_ = 0;
};

/// Works out, once, how each slot looks at its bytes, and in which order a node's outputs are made.
class IrCompiler {
 public:
  IrCompiler(const StepGraph& graph, const Rewriting& rewriting)
      : graph_(graph), rewriting_(rewriting), at_start_(graph.value_count()) {}

  IrProgram compile() {
    program_.node_count_ = graph_.node_count();
    program_.value_count_ = graph_.value_count();
    program_.outputs_ = rewriting_.outputs;
    for (std::size_t a = 0; a < rewriting_.allocations.size(); ++a) {
      program_.storage_.push_back(rewriting_.allocations[a].storage);
      if (rewriting_.allocations[a].persistent) program_.persistent_.push_back(AllocationId{a});
    }
    for (const Slot& s : rewriting_.slots) program_.places_.push_back({s.allocation, s.value, 0});
    for (SlotId s : rewriting_.at_start) at_start_[rewriting_.slots[s.index].value.index] = s;
    for (SlotId s : rewriting_.at_start)
      place(s).path = path_at_start(rewriting_.slots[s.index].value);
    for (const ProgramStep& step : rewriting_.steps) add(step);
    return std::move(program_);
  }

 private:
  using Making = IrProgram::Making;

  IrProgram::Place& place(SlotId s) { return program_.places_[s.index]; }

  [[nodiscard]] std::uint64_t path_at_start(ValueId v) const {
    if (graph_.value(v).owns()) return 0;
    return IrHash{path_at_start(graph_.value(v).target())}.add(v.index).value();
  }

  void add(const ProgramStep& step) {
    const Node& node = graph_.node(step.node);
    IrProgram::Instruction i;
    i.node = step.node;
    i.op = IrHash{}.add(static_cast<std::uint64_t>(node.id)).add(node.op).add(node.extra).value();
    i.effects = step.effects;
    i.first = step.clone == 0;
    i.reads = step.reads;
    i.frees = step.frees;
    for (ValueId v : graph_.updates(step.node)) i.updates.push_back(at_start_[v.index]);
    std::vector<bool> placed(step.writes.size(), false);
    for (std::size_t k = 0; k < step.writes.size(); ++k) add_write(step, k, placed, i);
    program_.instructions_.push_back(std::move(i));
  }

  // Behind its target, where that is made by the same step.
  void add_write(const ProgramStep& step, std::size_t k, std::vector<bool>& placed,
                 IrProgram::Instruction& i) {
    if (placed[k] || !step.writes[k].valid()) return;
    placed[k] = true;
    const Value& value = graph_.value(graph_.outputs(step.node)[k]);
    const SlotId slot = step.writes[k], target = step.targets[k];
    if (value.persistent) {
      place(slot).path = path_at_start(graph_.outputs(step.node)[k]);
      i.writes.push_back({slot, k, Making::in_place});
      return;
    }
    if (!target.valid()) {
      i.writes.push_back({slot, k, Making::fresh});
      return;
    }
    bool made_here = false;
    for (std::size_t j = 0; j < step.writes.size(); ++j)
      if (step.writes[j] == target) made_here = true, add_write(step, j, placed, i);
    if (!made_here) i.reads.push_back(target);
    const bool view = value.alias_of.valid();
    place(slot).path =
        view ? IrHash{place(target).path}.add(i.op).add(k).value() : place(target).path;
    i.writes.push_back({slot, k, view ? Making::view : Making::in_place});
  }

  const StepGraph& graph_;
  const Rewriting& rewriting_;
  std::vector<SlotId> at_start_;  // by value
  IrProgram program_;
};

struct IrBackend {
  using Program = IrProgram;

  [[nodiscard]] Program compile(const StepGraph& graph, const Rewriting& rewriting) const {
    return IrCompiler{graph, rewriting}.compile();
  }
};

static_assert(GraphBackend<IrBackend>);

}  // namespace reprise::rewriting

namespace reprise {
using rewriting::IrBackend;
}  // namespace reprise
