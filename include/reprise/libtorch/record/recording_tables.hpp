#pragma once
// What a recorder notes, and the tables that it finds things in again: values by the storages that
// they lie in.
//
//   storage  3 ──▶ StorageState {root: v7, views: v9, v10}      v7 was made there, v9 was written over it, v10 is a view of v9
//   value   10 ──▶ storage_of 3, maker_of v9 (what it looks at), root_of v7 (what brought the storage)
//
// An op's own values come from the recorder (recorder.hpp), numbers from recorded_numbers.hpp.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/torch/storage_table.hpp>

namespace reprise {

class RecordingTables {
 public:
  [[nodiscard]] StorageTable& storages() { return table_; }
  [[nodiscard]] std::size_t calls_seen() const { return recording_.calls.size(); }
  [[nodiscard]] const Recording& recording() const { return recording_; }
  [[nodiscard]] StorageIndex storage_of(ValueId v) const {
    return v.valid() ? storage_of_value_[v.index] : no_storage;
  }
  [[nodiscard]] bool is_persistent(StorageIndex s) const { return state_[s].persistent; }
  [[nodiscard]] bool holds_number(StorageIndex s) const { return state_[s].number; }
  [[nodiscard]] Bytes base() const { return base_; }
  /// The call must not be run again, for a reason that was found out later.
  void forbid_again(NodeId node) { recording_.calls[node.index].repeatable = false; }
  /// The allocator's count when the step began: what has a higher one was made in it.
  [[nodiscard]] std::uint64_t start_serial() const { return start_serial_; }

  /// The value that brought the contents that a storage has now: what owns it, or what was last
  /// written into it.
  [[nodiscard]] ValueId newest_in(StorageIndex s) const {
    return state_[s].views.empty() ? state_[s].root : maker_of(state_[s].views.front());
  }
  /// What a view looks at.
  [[nodiscard]] ValueId maker_of(ValueId v) const { return origin_of_value_[v.index].maker; }
  /// What brought the storage that a value lies in.
  [[nodiscard]] ValueId root_of(ValueId v) const { return origin_of_value_[v.index].root; }
  /// Whether the value lives in a storage from before the step.
  [[nodiscard]] bool was_there_before(ValueId v) const {
    return recording_.values[root_of(v).index].persistent;
  }

 protected:
  RecordingTables() : start_serial_(cpu_memory().serial()), base_(cpu_memory().existing()) {}
  ~RecordingTables() = default;

  /// What is known of a storage beside the table's entry.
  struct StorageState {
    bool persistent = false;
    /// memory of the user's own (from_blob), which may go or change without a word
    bool foreign = false;
    bool number = false;                ///< wrapped by LibTorch, and kept by somebody
    bool made_without_tensors = false;  ///< its contents do not depend on data: a factory's result
    bool exposed = false;               ///< the host has had a pointer to it
    /// of an exposed one: its contents when an op last saw it; empty where none has
    std::vector<std::byte> seen{};
    /// without LibTorch's hook, of what the host may well fill: as an op has left it
    std::optional<std::uint64_t> digest{};
    Bytes bytes{};
    ValueId root{};
    /// of a parameter or buffer: the tensor itself, to be compared only
    const c10::TensorImpl* told = nullptr;
    c10::SmallVector<ValueId, 2> views{};  ///< the values of its current version
  };

  /// Where a value comes from, noted when it comes: along a chain of writes in place the way back
  /// is as long as the chain.
  struct ValueOrigin {
    ValueId maker{};  ///< what it is a view of; itself where it is none
    ValueId root{};   ///< what brought its storage
  };

  // The value of the storage's current version that lies as the tensor does; none where there is
  // none.
  [[nodiscard]] ValueId view_of(StorageIndex s, const at::Tensor& tensor) const {
    for (ValueId v : state_[s].views)
      if (lies_as(tensor, recording_.values[v.index].geometry)) return v;
    return {};
  }

  bool made_by(NodeId node, const StorageState& state) const {
    return !state.views.empty() && recording_.values[state.views.front().index].producer == node;
  }

  StorageIndex track(const c10::Storage& storage) {
    const StorageIndex s = table_.add(storage);
    state_.emplace_back();
    return s;
  }

  ValueId add_value(RecordedValue&& value, StorageIndex s = no_storage) {
    const ValueId v{recording_.values.size()};
    const ValueId maker = value.alias_of.valid() ? maker_of(value.alias_of) : v;
    const ValueId before = value.alias_of.valid() ? value.alias_of : value.overwrites;
    origin_of_value_.push_back({maker, before.valid() ? root_of(before) : v});
    storage_of_value_.push_back(s);
    recording_.values.push_back(std::move(value));
    return v;
  }

  static Bytes bytes_of(const c10::StorageImpl& storage) {
    return storage.device_type() == c10::DeviceType::CPU
               ? CountingAllocator::bytes_of(storage.data_ptr())
               : Bytes{static_cast<std::int64_t>(storage.nbytes())};
  }
  /// Memory that did not come from our allocator: nobody tells when it goes.
  static bool is_foreign(const c10::Storage& storage) {
    return storage.device_type() == c10::DeviceType::CPU && storage.nbytes() > 0 &&
           !CountingAllocator::owns(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  }
  static Bytes bytes_of(const c10::Storage& storage) {
    return bytes_of(*storage.unsafeGetStorageImpl());
  }

  ValueId add_persistent(const at::Tensor& tensor, Origin origin, std::size_t index, Role role,
                         std::string name) {
    const c10::Storage& storage = tensor.storage();
    RecordedValue value;
    value.geometry = geometry_of(tensor);
    value.origin = origin;
    value.origin_index = static_cast<std::uint32_t>(index);
    value.role = role;
    value.name = std::move(name);
    value.bytes = bytes_of(storage);
    value.persistent = true;
    if (origin == Origin::captured) value.captured = storage.getWeakStorageImpl();
    const StorageIndex s = track(storage);
    state_[s].persistent = true;
    state_[s].foreign = origin == Origin::captured && is_foreign(storage);
    state_[s].bytes = value.bytes;
    const ValueId v = add_value(std::move(value), s);
    state_[s].root = v;
    state_[s].views.push_back(v);
    return v;
  }

  // A view that was made before a write and is read after it: nobody made it anew, so a call of our
  // own does.
  ValueId add_alias(StorageIndex s, Geometry geometry) {
    const NodeId node{recording_.calls.size()};
    Call call;
    call.kind = CallKind::alias;
    const ValueId source = state_[s].views.front();
    call.reads.push_back({0, -1, source});
    const RecordedValue& from = recording_.values[source.index];
    call.path = from.producer.valid() ? recording_.calls[from.producer.index].path : from.name;
    call.phase = current_phase();
    RecordedValue value;
    value.geometry = std::move(geometry);
    value.alias_of = source;
    value.producer = node;
    value.role = role_in(call.phase);
    const ValueId v = add_value(std::move(value), s);
    call.results.push_back({ResultSlot::From::returned, 0, -1, v});
    recording_.calls.push_back(std::move(call));
    state_[s].views.push_back(v);
    return v;
  }

  [[nodiscard]] Phase current_phase() const {
    return torch::autograd::get_current_node() ? Phase::backward : phase_;
  }

  [[nodiscard]] static Role role_in(Phase phase) {
    switch (phase) {
      case Phase::forward: return Role::activation;
      case Phase::backward: return Role::gradient;
      case Phase::optimizer: return Role::other;
    }
    return Role::other;
  }

  /// Why the step cannot be run again; the first reason stays.
  void refuse(std::string why) {
    if (recording_.refusal.empty()) recording_.refusal = std::move(why);
  }

  std::uint64_t start_serial_;
  Bytes base_;
  Recording recording_;
  StorageTable table_;
  std::vector<StorageState> state_;             // by StorageIndex
  std::vector<StorageIndex> storage_of_value_;  // by ValueId
  std::vector<ValueOrigin> origin_of_value_;    // by ValueId
  Phase phase_ = Phase::forward;
};

}  // namespace reprise
