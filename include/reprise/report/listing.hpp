#pragma once
// write_listing() prints a rewriting: one line per step, clones as norm#1, their results as h#1, +
// and - for bytes.
//
//   0  h = norm(x)  + h 8192 B  notes and updates mean
//   1  h.relu = relu(h)
//   2  h.flat = flat(h.relu)  - h
//   3  wide = wide(x)  + wide 16384 B
//   4  loss = sum(wide)  + loss 4 B  - wide
//   5  h#1 = norm#1(x)  + h#1 8192 B  leaves mean alone
//   6  h.relu#1 = relu#1(h#1)
//   7  h.flat#1 = flat#1(h.relu#1)
//   8  g = grad(x, h.flat#1)  + g 4096 B  - h#1
//   peak 20548 B, hands over loss, g

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <reprise/base/error.hpp>
#include <reprise/graph/step_graph.hpp>
#include <reprise/rewrite/names.hpp>
#include <reprise/rewrite/rewriting.hpp>

namespace reprise::reporting {

class ListingWriter {
 public:
  ListingWriter(std::ostream& out, const StepGraph& graph, const Rewriting& program)
      : out_(out),
        graph_(graph),
        program_(program),
        clone_of_(program.slots.size(), 0),
        owner_(program.allocations.size()) {
    for (const ProgramStep& step : program.steps)
      for (SlotId s : step.writes)
        if (s.valid()) clone_of_[s.index] = step.clone;
    for (std::size_t i = 0; i < program.slots.size(); ++i)
      if (graph.value(program.slots[i].value).owns() &&
          !owner_[program.slots[i].allocation.index].valid())
        owner_[program.slots[i].allocation.index] = SlotId{i};
  }

  void write() {
    for (std::size_t i = 0; i < program_.steps.size(); ++i) write_step(i, program_.steps[i]);
    out_ << "peak " << program_.peak << ", hands over " << list(program_.outputs) << '\n';
  }

 private:
  void write_step(std::size_t i, const ProgramStep& step) {
    out_ << i << "  " << (step.writes.empty() ? "" : list(step.writes) + " = ")
         << name_of(graph_.node(step.node), step.clone) << '(' << list(step.reads) << ')';
    for (AllocationId a : step.allocates)
      out_ << "  + " << name(owner_[a.index]) << ' ' << program_.allocations[a.index].bytes;
    for (AllocationId a : step.frees) out_ << "  - " << name(owner_[a.index]);
    if (step.effects == Effects::perform) out_ << "  updates " << updated(step.node);
    if (step.effects == Effects::note_and_perform)
      out_ << "  notes and updates " << updated(step.node);
    if (step.effects == Effects::leave_out) out_ << "  leaves " << updated(step.node) << " alone";
    out_ << '\n';
  }

  [[nodiscard]] std::string name(SlotId s) const {
    return s.valid() ? name_of(graph_.value(program_.slots[s.index].value), clone_of_[s.index])
                     : "(gone)";
  }

  [[nodiscard]] std::string list(std::span<const SlotId> slots) const {
    std::string text;
    for (SlotId s : slots) text += (text.empty() ? "" : ", ") + name(s);
    return text;
  }

  [[nodiscard]] std::string updated(NodeId n) const {
    std::string text;
    for (ValueId v : graph_.updates(n))
      text += (text.empty() ? "" : ", ") + name_of(graph_.value(v));
    return text;
  }

  std::ostream& out_;
  const StepGraph& graph_;
  const Rewriting& program_;
  std::vector<std::uint32_t> clone_of_;  // by slot: the clone that writes it
  // by allocation: its owner's slot
  std::vector<SlotId> owner_;
};

inline void write_listing(std::ostream& out, const StepGraph& graph, const Rewriting& program) {
  ListingWriter{out, graph, program}.write();
  if (!out.flush())
    throw Error(Errc::io, "the listing could not be written: the stream has failed");
}

}  // namespace reprise::reporting

namespace reprise {
using reporting::write_listing;
}  // namespace reprise
