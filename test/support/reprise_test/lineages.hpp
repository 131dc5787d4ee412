#pragma once
// A step made by hand, whose calls are relus that nobody runs: what the parts of a guided step know
// of it is set call by call, and where its bytes are is said, not done.
//
//   HandMadeStep step;
//   const auto x = step.input(), h = step.call({x}), y = step.call({h});
//   step.evict(h);
//   step.lineage.is_available(h.value);     // false

#include <torch/torch.h>

#include <utility>
#include <vector>

#include <reprise/libtorch/guided/recompute_cone.hpp>
#include <reprise_test/block_listener.hpp>
#include <reprise_test/catch.hpp>

namespace reprise::testing {

using namespace guided;

struct HandMadeStep {
  /// A value that a call has made, or that was there before.
  struct Made {
    ValueId value{};
    NodeId node{};  ///< none: from before the step
  };

  RecordingTables tables{};
  SpillStore file{};
  NotingListener listener{};
  Residency residency{tables.records(), file, listener, UserBlocks::Listening::off};
  Lineage lineage{tables, residency};
  std::vector<torch::Tensor> tensors{};  ///< by storage; go before whoever hears of it

  Made input() {
    const torch::Tensor& t = tensors.emplace_back(torch::ones({1024}));
    const ValueId v = tables.add_persistent(t, Origin::input, 0, Role::input, "x");
    residency.look_at(tables.storage_of(v));
    lineage.grow();
    return {v, {}};
  }
  Made call(const std::vector<Made>& reads, bool repeatable = true) {
    const torch::Tensor& t = tensors.emplace_back(torch::ones({1024}));
    const StorageIndex s = tables.records().add(t.storage());
    RecordedValue value;
    value.geometry = tables.recording().geometry_of(t);
    value.bytes = RecordingTables::bytes_of(t.storage());
    value.producer = tables.next_node();
    const ValueId v = tables.add_owner(std::move(value), s);
    residency.look_at(s);
    return note(reads, {ResultSlot::From::returned, 0, -1, v}, repeatable);
  }
  /// A call that writes over what another one has made.
  Made overwrite(const Made& before) {
    const StorageIndex s = storage(before);
    RecordedValue value;
    value.geometry = tables.value(before.value).geometry;
    value.overwrites = before.value;
    value.producer = tables.next_node();
    const ValueId v = tables.add_value(std::move(value), s);
    tables.contents(s).views.assign(1, v);
    return note({before}, {ResultSlot::From::argument, 0, -1, v}, true);
  }

  [[nodiscard]] StorageIndex storage(const Made& made) const {
    return tables.storage_of(made.value);
  }
  ResidencyState& state(const Made& made) {
    return tables.records()[storage(made)].residency.state;
  }
  StorageRecord::Use& use(const Made& made) { return tables.records()[storage(made)].use; }
  void evict(const Made& made) { state(made) = ResidencyState::evicted; }
  Recording& recording() { return tables.recording(); }
  [[nodiscard]] RecordedCone cone(std::vector<ValueId> wanted, ScopedPins& pins) const {
    return cone_of(tables, residency, lineage, std::move(wanted), pins);
  }

 private:
  Made note(const std::vector<Made>& reads, const ResultSlot& result, bool repeatable) {
    static const c10::OperatorHandle relu =
        c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", "");
    CallDraft call;
    call.op = &relu;
    call.facts = &facts_of(relu);
    call.repeatable = repeatable;
    for (std::size_t i = 0; i < reads.size(); ++i)
      call.add_read({static_cast<std::uint32_t>(i), -1, reads[i].value});
    call.add_result(result);
    lineage.grow();
    const NodeId node = tables.next_node();
    for (const Made& read : reads) lineage.note_read(read.value, node);
    static_cast<void>(tables.recording().add(std::move(call)));
    lineage.note_version(tables.recording().calls.back(), result, repeatable);
    return {result.value, node};
  }
};

}  // namespace reprise::testing
