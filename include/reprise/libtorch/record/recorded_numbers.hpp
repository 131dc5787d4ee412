#pragma once
// Numbers that LibTorch makes tensors of: the 2 in `x * 2` is an operand like any other, in memory
// that comes and goes with its op.
//
//   scalar(tensor)      the value of such an operand: kept by its bytes, once for all its uses (or one each, where they may change)
//   add_kept_numbers()  autograd saves numbers as it saves tensors, by the thousand where gradients are differentiated again; those that
//                       have outlived their op are part of what the step holds

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>

namespace reprise {

class RecordedNumbers : public RecordingTables {
 public:
  /// Numbers that LibTorch wraps get a value each, so that a number that changes from step to step
  /// leaves the others their ids.
  void give_each_number_a_value() { share_numbers_ = false; }

 protected:
  ~RecordedNumbers() = default;

  // What LibTorch makes of a plain number: flagged as wrapped, or 0-dimensional in the type that
  // the number had.
  static bool is_number(const at::Tensor& tensor, bool in_step) {
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) return true;
    const c10::ScalarType t = tensor.scalar_type();
    return in_step && tensor.dim() == 0 &&
           (t == c10::kDouble || t == c10::kLong || t == c10::kBool ||
            t == c10::ScalarType::ComplexDouble);
  }

  // A number that LibTorch has wrapped: kept by value, once for all its uses, in memory of our own.
  ValueId scalar(const at::Tensor& tensor) {
    RecordedValue value;
    value.geometry = geometry_of(tensor);
    value.geometry.offset = 0;
    value.origin = Origin::scalar;
    value.role = Role::constant;
    value.persistent = true;
    const auto* bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
    value.scalar.assign(bytes, bytes + tensor.nbytes());
    const auto is_same = [&](ValueId known) {
      const RecordedValue& other = recording_.values[known.index];
      return other.scalar == value.scalar && other.geometry == value.geometry;
    };
    if (share_numbers_)
      if (const auto known = std::ranges::find_if(scalars_, is_same); known != scalars_.end())
        return *known;
    value.name = "scalar." + std::to_string(scalars_.size());
    scalars_.push_back(add_value(std::move(value)));
    if (!share_numbers_)
      numbers_.push_back({tensor.storage().getWeakStorageImpl(), scalars_.back()});
    return scalars_.back();
  }

  // They are there while the op runs, as if it had made them for itself.
  [[nodiscard]] Bytes bytes_of_numbers() const {
    Bytes sum{};
    for (std::size_t i = 0; i < numbers_.size(); ++i) {
      const auto is_same = [&](const WrappedNumber& other) {
        return other.storage == numbers_[i].storage;
      };
      const bool twice =
          std::any_of(numbers_.begin(), numbers_.begin() + static_cast<std::ptrdiff_t>(i), is_same);
      const auto storage = numbers_[i].storage.lock();
      if (storage && !twice && CountingAllocator::serial_of(storage->data_ptr()) > start_serial_)
        sum += bytes_of(*storage);
    }
    return sum;
  }

  // A tensor that was made in the step where no hook saw it: its bytes exist from here on, at the
  // latest.
  ValueId add_unseen(const at::Tensor& tensor) {
    return add_block(tensor.storage(), geometry_of(tensor), Role::other);
  }

  // What was wrapped for the last op and is still there.
  void add_kept_numbers() {
    for (const WrappedNumber& number : std::exchange(numbers_, {})) {
      const c10::Storage storage(number.storage.lock());
      if (!storage || table_.find(storage.unsafeGetStorageImpl()) != no_storage ||
          bytes_of(storage) == Bytes{0})
        continue;
      if (CountingAllocator::serial_of(storage.data_ptr()) <= start_serial_) continue;
      add_block(storage, recording_.values[number.value.index].geometry, Role::constant);
    }
  }

 private:
  ValueId add_block(const c10::Storage& storage, const Geometry& geometry, Role role) {
    RecordedValue value;
    value.geometry = geometry;
    value.role = role;
    value.producer = NodeId{recording_.calls.size()};
    value.bytes = bytes_of(storage);
    const StorageIndex s = track(storage);
    state_[s].number = true;
    state_[s].bytes = value.bytes;
    const ValueId v = state_[s].root = add_value(std::move(value), s);
    state_[s].views.push_back(v);
    Call call;
    call.kind = CallKind::number;
    call.results.push_back({ResultSlot::From::returned, 0, -1, v});
    call.phase = current_phase();
    call.repeatable = false;
    recording_.calls.push_back(std::move(call));
    return v;
  }

  /// Wrapped for the running op. Whether it outlives the op is seen at the next one.
  struct WrappedNumber {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    ValueId value;
  };

  std::vector<ValueId> scalars_;
  c10::SmallVector<WrappedNumber, 2> numbers_;  // that the op was given
  bool share_numbers_ = true;
};

}  // namespace reprise
