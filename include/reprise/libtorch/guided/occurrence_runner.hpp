#pragma once
// An OccurrenceRunner runs one recomputation of a plan. It reads the plan's copies, or the user's
// storages if the values are there.
//
//   schedule   … conv' relu' grad     run(sequence, place of relu'):  relu reads conv's copy, and makes a copy of its own

#include <cstdint>
#include <utility>
#include <vector>

#include <reprise/libtorch/guided/plan_instances.hpp>
#include <reprise/libtorch/guided/planned_sequence.hpp>
#include <reprise/libtorch/guided/rematerializer.hpp>

namespace reprise::guided {

class OccurrenceRunner {
 public:
  OccurrenceRunner(Recorder& recorder, Residency& residency, CallRunner& runner,
                   Rematerializer& rematerializer, PlanInstances& instances)
      : recorder_(recorder),
        tables_(recorder.tables()),
        residency_(residency),
        runner_(runner),
        rematerializer_(rematerializer),
        instances_(instances) {}

  /// Recomputes the occurrence at this position of the schedule. Returns null on success, else the
  /// reason why the step must go on without the plan.
  [[nodiscard]] const char* run(const PlannedSequence& sequence, std::uint32_t i) {
    const NodeId node = sequence.plan->schedule()[i];
    const Call& call = recording().calls[node.index];
    static_cast<void>(rematerializer_.process_pointer_writes(call));
    // user code changed a source; it did not in the planned step
    if (!call.repeatable) return "what something would be recomputed from has changed";
    ScopedPins pins(residency_.records());
    std::vector<at::Tensor> tensors(call.reads.size());
    for (std::size_t k = 0; k < call.reads.size(); ++k) {
      if (!call.reads[k].value.valid() || is_running_stat(call, call.reads[k])) continue;
      tensors[k] = operand_of(sequence, i, node, call.reads[k].value, pins);
      if (!tensors[k].defined()) return "what a recomputation needs has been freed";
    }
    std::vector<c10::IValue> results;
    if (call.kind == CallKind::op) results = runner_.run(call, node, tensors);
    const Resolution& resolution = sequence.plan->resolution();
    for (std::size_t k = 0; k < call.results.size(); ++k) {
      const std::uint32_t value = resolution.outputs[i][k];
      if (value == no_index) continue;
      const std::uint32_t instance = resolution.values[value].storage;
      if (resolution.storages[instance].made_by == i && !instances_[instance].live) {
        const at::Tensor tensor = result_again(call, call.results[k], results, tensors);
        if (!tensor.defined()) return "an op made less when it was recomputed";
        instances_.add_copy(instance, tensor.storage());
      }
      if (!recording().values[call.results[k].value.index].alias_of.valid())
        instances_.set_latest(instance, call.results[k].value);
    }
    return nullptr;
  }

 private:
  [[nodiscard]] const Recording& recording() const { return tables_.recording(); }

  // Undefined if the operand has been freed.
  at::Tensor operand_of(const PlannedSequence& sequence, std::uint32_t occurrence, NodeId node,
                        ValueId v, ScopedPins& pins) {
    const RecordedValue& owner = tables_.value(tables_.owner_of(v));
    const Resolution& resolution = sequence.plan->resolution();
    const auto inputs = sequence.graph->inputs(node);
    for (std::size_t k = 0; k < inputs.size() && owner.producer.valid(); ++k) {
      if (inputs[k] != v) continue;
      PlanInstances::Instance& instance =
          instances_[resolution.values[resolution.inputs[occurrence][k]].storage];
      instance.operand = true;
      if (instance.copy) return rematerializer_.over(instance.copy, v);
      if (instance.user != no_storage) return tensor_in(instance.user, v, pins);
    }
    if (owner.origin == Origin::scalar) return rematerializer_.tensor_of(v);
    return tensor_in(tables_.storage_of(v), v, pins);
  }

  at::Tensor tensor_in(StorageIndex s, ValueId v, ScopedPins& pins) {
    if (s == no_storage || residency_.state(s) == ResidencyState::dead || !has_contents(s, v))
      return {};
    pins.add(s);
    rematerializer_.materialize(s);
    if (recorder_.user_access().has_written(s))
      throw rematerializer_.written_too_late(tables_.version_of(v));
    const c10::Storage memory = residency_.memory_of(s);
    return memory ? rematerializer_.over(memory, v) : at::Tensor();
  }

  // Whether the storage's contents, wherever they are, are this value.
  [[nodiscard]] bool has_contents(StorageIndex s, ValueId v) const {
    return !residency_.records()[s].use.corrupt &&
           (tables_.is_persistent(s) || tables_.latest_version(s) == tables_.version_of(v));
  }

  Recorder& recorder_;
  const RecordingTables& tables_;
  Residency& residency_;
  CallRunner& runner_;
  Rematerializer& rematerializer_;
  PlanInstances& instances_;
};

}  // namespace reprise::guided
