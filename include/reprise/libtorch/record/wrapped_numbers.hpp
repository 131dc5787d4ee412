#pragma once
// WrappedNumbers records numbers that LibTorch wraps in tensors: the 2 in `x * 2` is an operand
// whose memory is freed with its op.
//
//   add(tensor)     the operand's value: kept by its bytes, once for all its uses (or once for each use, if numbers may change)
//   add_kept()      autograd saves numbers as it saves tensors, by the thousand if gradients are differentiated again; numbers
//                   that outlive their op are live bytes of the step

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>

namespace reprise::recording {

class WrappedNumbers {
 public:
  explicit WrappedNumbers(RecordingTables& tables) : tables_(tables) {}

  /// Each wrapped number gets a value of its own, so that a number that differs from step to step
  /// does not change other ids.
  void give_each_a_value() { shares_values_ = false; }

  /// How LibTorch wraps a number: with a flag, or as a 0-dimensional tensor of the number's type.
  [[nodiscard]] static bool is_number(const at::Tensor& tensor, bool in_step) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return true;
    const c10::ScalarType t = tensor.scalar_type();
    return in_step && tensor.dim() == 0 &&
           (t == c10::kDouble || t == c10::kLong || t == c10::kBool ||
            t == c10::ScalarType::ComplexDouble);
  }

  /// Adds a wrapped number: kept by value, once for all its uses, in Reprise's memory.
  ValueId add(const at::Tensor& tensor) {
    RecordedValue value;
    value.geometry = geometry_of(tensor);
    value.geometry.offset = 0;
    value.origin = Origin::scalar;
    value.role = Role::constant;
    value.persistent = true;
    const auto* bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
    value.scalar.assign(bytes, bytes + tensor.nbytes());
    const auto is_same = [&](ValueId known) {
      const RecordedValue& other = tables_.value(known);
      return other.scalar == value.scalar && other.geometry == value.geometry;
    };
    if (shares_values_)
      if (const auto known = std::ranges::find_if(values_, is_same); known != values_.end())
        return *known;
    value.name = "scalar." + std::to_string(values_.size());
    values_.push_back(tables_.add_value(std::move(value)));
    if (!shares_values_) of_op_.push_back({tensor.storage().getWeakStorageImpl(), values_.back()});
    return values_.back();
  }

  /// They are live while the op runs, as if the op had allocated them.
  [[nodiscard]] Bytes bytes_of_op() const {
    Bytes sum{};
    for (std::size_t i = 0; i < of_op_.size(); ++i) {
      const auto is_same = [&](const Wrapped& other) { return other.storage == of_op_[i].storage; };
      const bool twice =
          std::any_of(of_op_.begin(), of_op_.begin() + static_cast<std::ptrdiff_t>(i), is_same);
      const auto storage = of_op_[i].storage.lock();
      if (storage && !twice &&
          CountingAllocator::serial_of(storage->data_ptr()) > tables_.start_serial())
        sum += RecordingTables::bytes_of(*storage);
    }
    return sum;
  }

  /// A tensor of the step that no hook saw: its bytes are live from here on, or from earlier.
  ValueId add_unseen(const at::Tensor& tensor) {
    return add_block(tensor.storage(), geometry_of(tensor), Role::other);
  }

  /// Adds the numbers that were wrapped for the last op and are still alive.
  void add_kept() {
    for (const Wrapped& number : std::exchange(of_op_, {})) {
      const c10::Storage storage(number.storage.lock());
      if (!storage || tables_.records().find(storage.unsafeGetStorageImpl()) != no_storage ||
          RecordingTables::bytes_of(storage) == Bytes{0})
        continue;
      if (CountingAllocator::serial_of(storage.data_ptr()) <= tables_.start_serial()) continue;
      add_block(storage, tables_.value(number.value).geometry, Role::constant);
    }
  }

 private:
  ValueId add_block(const c10::Storage& storage, const Geometry& geometry, Role role) {
    RecordedValue value;
    value.geometry = geometry;
    value.role = role;
    value.producer = tables_.next_node();
    value.bytes = RecordingTables::bytes_of(storage);
    const StorageIndex s = tables_.records().add(storage);
    tables_.contents(s).number = true;
    const ValueId v = tables_.add_owner(std::move(value), s);
    Call call;
    call.kind = CallKind::number;
    call.results.push_back({ResultSlot::From::returned, 0, -1, v});
    call.phase = tables_.current_phase();
    call.repeatable = false;
    tables_.recording().calls.push_back(std::move(call));
    return v;
  }

  /// Wrapped for the running op. The next op shows whether the number outlives its op.
  struct Wrapped {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    ValueId value;
  };

  RecordingTables& tables_;
  std::vector<ValueId> values_;
  c10::SmallVector<Wrapped, 2> of_op_;  // operands of the running op
  bool shares_values_ = true;
};

}  // namespace reprise::recording
