#pragma once
// CallContext says where in the step a call is: LibTorch's switches, the phase, the forward call of
// a backward call, and a name that the user knows.
//
//   conv2d(x, encoder.conv1.weight)      path "encoder.conv1", phase forward
//   convolution_backward                 the same path, phase backward, forward: the conv2d

#include <cstdint>
#include <string>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>

#include <reprise/base/flat_index.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/record/scope.hpp>

namespace reprise::recording {

class CallContext {
 public:
  explicit CallContext(RecordingTables& tables) : tables_(tables) {}

  void reserve(std::size_t calls) { forward_of_.reserve(calls); }

  /// Call it before the call's arguments are read.
  void note(Call& call) {
    note_switches(call);
    set_phase_and_scope(call);
  }
  /// Call it after they were read.
  void note_operands(Call& call) {
    if (call.path.empty() || call.phase == Phase::forward) name_after_operands(call);
    if (call.phase == Phase::forward && sequence_ > 0)
      forward_of_.insert(sequence_ - 1, static_cast<std::uint32_t>(tables_.calls_seen()));
  }

 private:
  void note_switches(Call& call) {
    const Switches now = Switches::now();
    const bool first = switches_ == nullptr;
    if (first || *switches_ != now) switches_ = Switches::interned(now);
    if (first) switches_at_first_ = switches_;
    call.switches = switches_;
    if (switches_ != switches_at_first_)
      tables_.refuse(
          "a switch of LibTorch's was set in the middle of the step, before " +
          tables_.at_next_node(call.facts->name) +
          ": threads, default dtype, denormals, deterministic algorithms, oneDNN or precision");
  }

  // The call's phase, its forward call, and the user's scope.
  void set_phase_and_scope(Call& call) {
    const auto backward = torch::autograd::get_current_node();
    call.phase = backward ? Phase::backward : tables_.user_phase();
    if (backward) {
      const std::uint32_t forward = forward_of_.find(backward->sequence_nr());
      if (forward != FlatIndex::none) call.forward = NodeId{forward};
      if (call.forward.valid()) call.path = tables_.recording().calls[call.forward.index].path;
    } else {
      call.path = current_scope();
      sequence_ = at::sequence_number::peek();
    }
  }

  // The name of the parameter that the call uses, else the name of its first operand's call.
  void name_after_operands(Call& call) {
    for (const ArgumentSlot& slot : call.reads) {
      if (!slot.value.valid()) continue;
      const RecordedValue& owner = tables_.value(tables_.owner_of(slot.value));
      if (owner.role != Role::parameter && owner.role != Role::buffer) continue;
      const auto dot = owner.name.rfind('.');
      const std::string outer = current_scope(),
                        inner = dot == std::string::npos ? owner.name : owner.name.substr(0, dot);
      call.path = outer.empty() ? inner : outer + "/" + inner;
      return;
    }
    if (!call.path.empty()) return;
    for (const ArgumentSlot& slot : call.reads) {
      if (!slot.value.valid()) continue;
      const NodeId producer = tables_.value(slot.value).producer;
      if (!producer.valid()) continue;
      call.path = tables_.recording().calls[producer.index].path;
      return;
    }
  }

  RecordingTables& tables_;
  // autograd's sequence number -> the call that got it
  FlatIndex forward_of_;
  // of the last op, and of the first op
  const Switches *switches_ = nullptr, *switches_at_first_ = nullptr;
  std::uint64_t sequence_ = 0;
};

}  // namespace reprise::recording
