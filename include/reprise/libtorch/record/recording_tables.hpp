#pragma once
// RecordingTables has a recorder's notes, and the tables that find them: values by their storages.
//
//   storage  3 ──▶ records[3].contents {owner: v7, views: v9, v10}     v7 allocated it, v9 overwrote v7, v10 is a view of v9
//   value   10 ──▶ storage_of 3, version_of v9 (which it shows), owner_of v7 (which allocated the storage)
//
// An op's own values come from operands.hpp and results.hpp, wrapped numbers from
// wrapped_numbers.hpp.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/residency/storage_record.hpp>

namespace reprise::recording {

class RecordingTables {
 public:
  RecordingTables() : start_serial_(cpu_memory().serial()), base_(cpu_memory().existing()) {}
  RecordingTables(const RecordingTables&) = delete;
  RecordingTables& operator=(const RecordingTables&) = delete;

  [[nodiscard]] const Recording& recording() const { return recording_; }
  [[nodiscard]] Recording& recording() { return recording_; }
  [[nodiscard]] const StorageRecords& records() const { return records_; }
  [[nodiscard]] StorageRecords& records() { return records_; }
  [[nodiscard]] StorageRecord::Contents& contents(StorageIndex s) { return records_[s].contents; }
  [[nodiscard]] const StorageRecord::Contents& contents(StorageIndex s) const {
    return records_[s].contents;
  }
  [[nodiscard]] const RecordedValue& value(ValueId v) const { return recording_.values[v.index]; }
  [[nodiscard]] std::size_t calls_seen() const { return recording_.calls.size(); }
  /// The node of the next call.
  [[nodiscard]] NodeId next_node() const { return NodeId{recording_.calls.size()}; }

  // ── values and storages ────────────────────────────────────────────────────────────────────────

  [[nodiscard]] StorageIndex storage_of(ValueId v) const {
    return v.valid() ? storage_of_value_[v.index] : no_storage;
  }
  [[nodiscard]] StorageIndex storage_of(const at::Tensor& tensor) const {
    return records_.find(tensor.storage().unsafeGetStorageImpl());
  }
  [[nodiscard]] bool is_persistent(StorageIndex s) const { return contents(s).persistent; }
  /// The value that wrote the storage's present contents: its owner, or the last write.
  [[nodiscard]] ValueId latest_version(StorageIndex s) const {
    const StorageRecord::Contents& known = contents(s);
    return known.views.empty() ? known.owner : version_of(known.views.front());
  }
  /// The version that a view shows; the value itself if it is no view.
  [[nodiscard]] ValueId version_of(ValueId v) const { return origin_of_value_[v.index].version; }
  /// The value that allocated the storage of a value.
  [[nodiscard]] ValueId owner_of(ValueId v) const { return origin_of_value_[v.index].owner; }
  /// Whether the value's storage is from before the step.
  [[nodiscard]] bool was_there_before(ValueId v) const { return value(owner_of(v)).persistent; }
  /// The value of the storage's current version that has the tensor's geometry; none if there is no
  /// such value.
  [[nodiscard]] ValueId view_of(StorageIndex s, const at::Tensor& tensor) const {
    for (ValueId v : contents(s).views)
      if (lies_as(tensor, value(v).geometry)) return v;
    return {};
  }
  [[nodiscard]] bool made_by(NodeId node, const StorageRecord::Contents& known) const {
    return !known.views.empty() && value(known.views.front()).producer == node;
  }

  // ── memory ─────────────────────────────────────────────────────────────────────────────────────

  [[nodiscard]] Bytes base() const { return base_; }
  /// Bytes from before the step were freed before the first op.
  void lower_base(Bytes bytes) { base_ = base_ - bytes; }
  /// The allocator's serial number when the step began: blocks of the step have higher numbers.
  [[nodiscard]] std::uint64_t start_serial() const { return start_serial_; }
  [[nodiscard]] bool is_from_before(const at::Tensor& tensor) const {
    const c10::DataPtr& data =
        tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
    return CountingAllocator::owns(data) && CountingAllocator::serial_of(data) <= start_serial_;
  }
  [[nodiscard]] static Bytes bytes_of(const c10::StorageImpl& storage) {
    return storage.device_type() == c10::DeviceType::CPU
               ? CountingAllocator::bytes_of(storage.data_ptr())
               : Bytes{static_cast<std::int64_t>(storage.nbytes())};
  }
  [[nodiscard]] static Bytes bytes_of(const c10::Storage& storage) {
    return bytes_of(*storage.unsafeGetStorageImpl());
  }
  /// Memory of another allocator: Reprise cannot see when it is freed.
  [[nodiscard]] static bool is_foreign(const c10::Storage& storage) {
    return storage.device_type() == c10::DeviceType::CPU && storage.nbytes() > 0 &&
           !CountingAllocator::owns(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks());
  }

  // ── phase ──────────────────────────────────────────────────────────────────────────────────────

  /// Everything from here on belongs to this phase. Ops that autograd runs belong to backward in
  /// any case.
  void enter(Phase phase) { phase_ = phase; }
  [[nodiscard]] Phase user_phase() const { return phase_; }
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

  // ── noting ─────────────────────────────────────────────────────────────────────────────────────

  void reserve(std::size_t calls, std::size_t values, std::size_t storages) {
    recording_.calls.reserve(calls);
    recording_.values.reserve(values);
    storage_of_value_.reserve(values);
    origin_of_value_.reserve(values);
    records_.reserve(storages);
  }

  ValueId add_value(RecordedValue&& value, StorageIndex s = no_storage) {
    const ValueId v{recording_.values.size()};
    const ValueId version = value.alias_of.valid() ? version_of(value.alias_of) : v;
    const ValueId before = value.alias_of.valid() ? value.alias_of : value.overwrites;
    origin_of_value_.push_back({version, before.valid() ? owner_of(before) : v});
    storage_of_value_.push_back(s);
    recording_.values.push_back(std::move(value));
    return v;
  }

  /// A value that allocates the storage.
  ValueId add_owner(RecordedValue&& value, StorageIndex s) {
    contents(s).bytes = value.bytes;
    const ValueId v = add_value(std::move(value), s);
    contents(s).owner = v;
    contents(s).views.push_back(v);
    return v;
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
    const StorageIndex s = records_.add(storage);
    contents(s).persistent = true;
    contents(s).foreign = origin == Origin::captured && is_foreign(storage);
    return add_owner(std::move(value), s);
  }

  /// A view that was made before a write and is read after it. No op made this value, so the
  /// recorder adds an alias call.
  ValueId add_alias(StorageIndex s, Geometry geometry) {
    Call call;
    call.kind = CallKind::alias;
    const ValueId source = contents(s).views.front();
    call.reads.push_back({0, -1, source});
    const RecordedValue& from = recording_.values[source.index];
    call.path = from.producer.valid() ? recording_.calls[from.producer.index].path : from.name;
    call.phase = current_phase();
    RecordedValue value;
    value.geometry = std::move(geometry);
    value.alias_of = source;
    value.producer = next_node();
    value.role = role_in(call.phase);
    const ValueId v = add_value(std::move(value), s);
    call.results.push_back({ResultSlot::From::returned, 0, -1, v});
    recording_.calls.push_back(std::move(call));
    contents(s).views.push_back(v);
    return v;
  }

  // ── what this step does not allow ──────────────────────────────────────────────────────────────

  /// Why the step cannot be replayed; the first reason stays.
  void refuse(std::string why) {
    if (recording_.refusal.empty()) recording_.refusal = std::move(why);
  }
  /// The same for one call, which is not recomputable.
  void refuse_call(Call& call, std::string why) {
    call.repeatable = false;
    refuse(std::move(why));
  }
  /// The graph would not describe this step's memory: the step is not planned.
  void do_not_plan(std::string why) {
    if (recording_.unplannable.empty()) recording_.unplannable = std::move(why);
  }
  /// The call is not recomputable, for a reason that was found after it ran.
  void forbid_again(NodeId node) { recording_.calls[node.index].repeatable = false; }
  /// "aten::mm (node 12)", for the call that is being recorded.
  [[nodiscard]] std::string at_next_node(const std::string& op) const {
    return op + " (node " + std::to_string(recording_.calls.size()) + ")";
  }

 private:
  /// Version and owner of a value, noted when the value is added. A chain of in-place writes would
  /// make a later search as long as the chain.
  struct ValueOrigin {
    ValueId version{};
    ValueId owner{};
  };

  std::uint64_t start_serial_;
  Bytes base_;
  Recording recording_;
  StorageRecords records_;
  std::vector<StorageIndex> storage_of_value_;  // by ValueId
  std::vector<ValueOrigin> origin_of_value_;    // by ValueId
  Phase phase_ = Phase::forward;
};

}  // namespace reprise::recording
