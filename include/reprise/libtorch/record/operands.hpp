#pragma once
// OperandReader finds the values that an op reads.
//
//   read(tensor) ──▶ known storage, version and geometry?  that value
//                    known storage, another geometry?      a view that was made before a write: adds an alias call
//                    unknown storage?                      a tensor from before the step, a wrapped number, or something
//                                                          made behind the dispatcher (the step then cannot be replayed)

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/record/user_access.hpp>
#include <reprise/libtorch/record/wrapped_numbers.hpp>
#include <reprise/libtorch/torch/interned_lists.hpp>

namespace reprise::recording {

/// An object that may keep tensors, or anything else, for as long as it lives: c10d's works keep
/// what they send.
[[nodiscard]] inline bool is_object(const c10::IValue& value) {
  return value.isStorage() || value.isObject() || value.isPyObject() || value.isFuture() ||
         value.isCapsule() || value.isRRef() || value.isTuple() || value.isGenericDict() ||
         value.isBlob();
}

class OperandReader {
 public:
  OperandReader(RecordingTables& tables, WrappedNumbers& numbers, UserAccess& access)
      : tables_(tables), numbers_(numbers), access_(access) {}

  /// No call that reads the user's own memory is recomputed. Its tensor may be dead by then, and
  /// the bytes another stack frame's.
  void forbid_recompute_from_foreign() { forbids_foreign_ = true; }

  /// Registers a tensor from before the step. Two tensors with one storage are one value, or views
  /// of one value.
  void add_known(const at::Tensor& tensor, Origin origin, std::size_t index, Role role,
                 std::string name) {
    const StorageIndex known = tables_.storage_of(tensor);
    if (known == no_storage) {
      const ValueId v = tables_.add_persistent(tensor, origin, index, role, std::move(name));
      if (origin == Origin::parameter || origin == Origin::buffer)
        tables_.contents(tables_.storage_of(v)).registered = tensor.unsafeGetTensorImpl();
      access_.watch(v);
      access_.find_shared_memory(tables_.storage_of(v));
      return;
    }
    if (!tables_.view_of(known, tensor).valid()) tables_.add_alias(known, tensor);
  }

  /// Reads all the call's operands and its other arguments.
  void read_arguments(CallDraft& call, c10::ArrayRef<c10::IValue> arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i)
      read_argument(call, static_cast<std::uint32_t>(i), arguments[i]);
  }

  /// The tensor's current value; none if it is not plain memory. `reader` is for messages.
  ValueId read(const at::Tensor& tensor, const std::string& reader) {
    if (!is_plain(tensor)) {
      tables_.refuse(tables_.at_next_node(reader) +
                     " reads a tensor that is not plain strided memory (" +
                     c10::str(tensor.layout()) + ")");
      return {};
    }
    const StorageIndex s = tables_.storage_of(tensor);
    if (s == no_storage) return add_preexisting(tensor, reader);
    static_cast<void>(access_.find_writes(s));
    access_.record_user_writes(s);
    if (const ValueId known = tables_.view_of(s, tensor); known.valid()) {
      if (known == tables_.contents(s).owner && is_alias_from_outside(s, tensor))
        tables_.recording().reads_aliases = true;
      return known;
    }
    // Views of tensors from before the step are made by ops or registered by add_known(). This one
    // was made elsewhere.
    if (tables_.is_persistent(s))
      tables_.refuse(tables_.at_next_node(reader) +
                     " reads a tensor of the user's that shares memory with '" +
                     tables_.value(tables_.contents(s).owner).name() + "', but is not it");
    return tables_.add_alias(s, tensor);
  }

  /// A storage that no op of this step made.
  ValueId add_preexisting(const at::Tensor& tensor, const std::string& reader) {
    const c10::DataPtr& data = tensor.storage().data_ptr();
    const bool in_step = ThisDevice::serial_of(data) > tables_.start_serial();
    if (WrappedNumbers::is_number(tensor, in_step)) return numbers_.add(tensor);
    if (in_step) {
      tables_.refuse(tables_.at_next_node(reader) +
                     " reads a tensor that was made in the step behind the dispatcher, where "
                     "Reprise cannot see it");
      return numbers_.add_unseen(tensor);
    }
    const std::string number = std::to_string(captured_++);
    const ValueId v = tables_.user_phase() == Phase::optimizer
                          ? tables_.add_persistent(tensor, Origin::captured, 0,
                                                   Role::optimizer_state, "optimizer." + number)
                          : tables_.add_persistent(tensor, Origin::captured, 0, Role::constant,
                                                   "captured." + number);
    access_.watch(v);
    access_.find_shared_memory(tables_.storage_of(v));
    return v;
  }

 private:
  void read_argument(CallDraft& call, std::uint32_t arg, const c10::IValue& argument) {
    if (argument.isTensor()) {
      const at::Tensor& tensor = argument.toTensor();
      if (tensor.defined()) add_read(call, arg, -1, tensor);
      call.add_argument(tensor.defined() ? c10::IValue() : argument);
      return;
    }
    if (argument.isTensorList() || (argument.isList() && holds_tensors(argument))) {
      std::int32_t element = 0;
      for (const c10::IValue& item : argument.toListRef()) {
        if (item.isTensor() && item.toTensor().defined())
          add_read(call, arg, element, item.toTensor());
        ++element;
      }
      call.add_argument(blank_list(argument));
      return;
    }
    // c10d's all-gather
    if (argument.isList() && !argument.toListRef().empty() && argument.toListRef()[0].isList())
      return read_list_of_lists(call, arg, argument);
    if (is_object(argument)) {
      tables_.refuse_call(call, tables_.at_next_node(call.facts->name) +
                                    " takes an argument that cannot be kept for another run");
      call.add_argument({});
      return;
    }
    if (argument.isGenerator() && argument.toGenerator().defined() &&
        argument.toGenerator() != at::detail::getDefaultCPUGenerator())
      tables_.refuse_call(call, tables_.at_next_node(call.facts->name) +
                                    " draws from a generator of the user's own, whose state at the "
                                    "next step cannot be known");
    call.add_argument(argument.isIntList() ? interned_list(argument) : argument);
  }

  void read_list_of_lists(CallDraft& call, std::uint32_t arg, const c10::IValue& argument) {
    std::int32_t element = 0;
    for (const c10::IValue& items : argument.toListRef())
      for (const c10::IValue& item : items.toListRef()) {
        if (item.isTensor() && item.toTensor().defined())
          add_read(call, arg, element, item.toTensor());
        ++element;
      }
    tables_.refuse_call(call, tables_.at_next_node(call.facts->name) + " takes lists of lists");
    call.add_argument({});
  }

  void add_read(CallDraft& call, std::uint32_t arg, std::int32_t element,
                const at::Tensor& tensor) {
    call.add_read({arg, element, read(tensor, call.facts->name)});
    const ValueId v = call.reads.back().value;
    const StorageIndex s = tables_.storage_of(v);
    if (forbids_foreign_ && s != no_storage && tables_.contents(s).foreign) call.repeatable = false;
    if (v.valid()) return;
    call.repeatable = false;
    call.opaque = true;
  }

  // It has the parameter's geometry, but is another tensor, and no op of the step made it
  // (detach(), say).
  [[nodiscard]] bool is_alias_from_outside(StorageIndex s, const at::Tensor& tensor) const {
    const StorageRecord::Contents& known = tables_.contents(s);
    if (known.registered == nullptr || known.registered == tensor.unsafeGetTensorImpl())
      return false;
    return std::ranges::none_of(known.views, [&](ValueId v) {
      return v != known.owner && lies_as(tensor, *tables_.value(v).geometry);
    });
  }

  RecordingTables& tables_;
  WrappedNumbers& numbers_;
  UserAccess& access_;
  std::size_t captured_ = 0;
  bool forbids_foreign_ = false;
};

}  // namespace reprise::recording
