#pragma once
// ResultNotes notes what an op has written and made.
//
//   h = relu_(h)         note_write:   a new version of h's storage; of a parameter, an update
//   y = add(h, x)        note_results: a new storage that y owns
//   v = y.t()                          a view of y

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <reprise/libtorch/record/operands.hpp>
#include <reprise/libtorch/record/recording_tables.hpp>
#include <reprise/libtorch/record/user_access.hpp>
#include <reprise/libtorch/torch/dispatch_hook.hpp>

namespace reprise::recording {

/// A storage that the running op is about to write.
struct PendingWrite {
  ArgumentSlot slot;
  StorageIndex storage;
  Bytes bytes_before;
  /// kept while the op runs: an op may also change the tensor's geometry (transpose_, resize_)
  at::Tensor tensor;
};
using PendingWrites = c10::SmallVector<PendingWrite, 2>;

class ResultNotes {
 public:
  ResultNotes(RecordingTables& tables, OperandReader& operands, UserAccess& access)
      : tables_(tables), operands_(operands), access_(access) {}

  [[nodiscard]] PendingWrites writes_of(const Call& call,
                                        c10::ArrayRef<c10::IValue> arguments) const {
    PendingWrites writes;
    for (const ArgumentSlot& slot : call.reads) {
      if (!slot.value.valid() ||
          (!call.facts->writes[slot.arg] && !call.facts->may_write && !is_running_stat(call, slot)))
        continue;
      const StorageIndex s = tables_.storage_of(slot.value);
      if (s == no_storage) continue;
      writes.push_back(
          {slot, s, tables_.contents(s).bytes, element_of(arguments[slot.arg], slot.element)});
    }
    return writes;
  }

  /// Returns the bytes that the op allocated for the write: those of an output that became larger.
  Bytes note_write(CallDraft& call, NodeId node, const PendingWrite& write) {
    StorageRecord::Contents& known = tables_.contents(write.storage);
    const auto storage = tables_.records().lock(write.storage);
    const Bytes now = storage ? RecordingTables::bytes_of(*storage) : write.bytes_before;
    const bool resized = now != write.bytes_before;
    if (known.persistent && resized) {
      end_persistent(known, call);
    } else if (known.persistent) {
      note_update(call, write.storage);
      for (const StorageIndex other : access_.sharing_memory_with(write.storage))
        note_update(call, other);
      if (!call.facts->moves_statistics()) call.repeatable = false;
      return {};
    }
    RecordedValue value;
    value.geometry = tables_.recording().geometry_of(write.tensor);
    value.producer = node;
    value.role = RecordingTables::role_in(call.phase);
    if (resized) value.bytes = now;
    else value.overwrites = write.slot.value;
    const ValueId v = tables_.add_value(std::move(value), write.storage);
    call.add_result({ResultSlot::From::argument, write.slot.arg, write.slot.element, v});
    if (!tables_.made_by(node, known)) known.views.clear();
    known.views.push_back(v);
    known.bytes = now;
    known.digest.reset();
    known.made_without_tensors = known.made_without_tensors && reads_one_storage(call);
    if (known.pointer_taken && storage) UserAccess::remember(known, *storage);
    return resized ? now : Bytes{};  // the old block is live until the op has filled the new block
  }

  /// Returns the bytes of the op's results.
  Bytes note_results(CallDraft& call, NodeId node, c10::ArrayRef<c10::IValue> results) {
    Bytes made{};
    for (std::size_t i = 0; i < results.size(); ++i) {
      const c10::IValue& result = results[i];
      if (result.isTensor()) {
        made += note_result(call, node, static_cast<std::uint32_t>(i), -1, result.toTensor());
      } else if (result.isTensorList()) {
        std::int32_t element = 0;
        for (const c10::IValue& item : result.toListRef())
          made +=
              note_result(call, node, static_cast<std::uint32_t>(i), element++, item.toTensor());
      } else if (is_object(result)) {
        tables_.refuse_call(call, call.facts->name + " (node " + std::to_string(node.index) +
                                      ") returns an object, which cannot be kept for another run");
      } else if (call.facts->returns_host_value) {
        call.add_returned({static_cast<std::uint32_t>(i), result});
      }
    }
    return made;
  }

 private:
  // Elements of a list of lists are numbered continuously.
  static at::Tensor element_of(const c10::IValue& argument, std::int32_t element) {
    if (element < 0) return argument.toTensor();
    const auto list = argument.toListRef();
    auto index = static_cast<std::size_t>(element);
    if (!list[0].isList()) return list[index].toTensor();
    std::size_t which = 0;
    while (index >= list[which].toListRef().size()) index -= list[which++].toListRef().size();
    return list[which].toListRef()[index].toTensor();
  }

  void note_update(CallDraft& call, StorageIndex s) const {
    const StorageRecord::Contents& known = tables_.contents(s);
    if (known.persistent && std::ranges::find(call.updates, known.owner) == call.updates.end())
      call.add_update(known.owner);
  }

  // A tensor from before the step got a larger block: the old value ends here, and the step makes a
  // new one.
  void end_persistent(StorageRecord::Contents& known, CallDraft& call) {
    const auto updates = [&](const Call& earlier) {
      return std::ranges::find(earlier.updates, known.owner) != earlier.updates.end();
    };
    RecordedValue& before = tables_.recording().values[known.owner.index];
    tables_.refuse("'" + before.name() + "' from before the step was given a larger block in it");
    if (std::ranges::any_of(tables_.recording().calls, updates)) {
      tables_.do_not_plan("'" + before.name() + "' was written, and then given a larger block");
    } else {
      before.persistent = false;
      before.initial = true;
    }
    known.persistent = false;
    call.repeatable = false;
  }

  // fill_(t, 3) leaves t independent of data, copy_(t, x) does not.
  [[nodiscard]] bool reads_one_storage(const Call& call) const {
    const StorageIndex first = tables_.storage_of(call.reads.front().value);
    return std::ranges::none_of(call.reads, [&](const ArgumentSlot& slot) {
      return slot.value.valid() && tables_.storage_of(slot.value) != first;
    });
  }

  Bytes note_result(CallDraft& call, NodeId node, std::uint32_t index, std::int32_t element,
                    const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    if (!is_plain(tensor)) {
      call.opaque = true;
      tables_.refuse_call(call, call.facts->name + " (node " + std::to_string(node.index) +
                                    ") makes a tensor that is not plain strided memory (" +
                                    c10::str(tensor.layout()) + ")");
      return note_parts(call, node, index, tensor);
    }
    const StorageIndex known = tables_.storage_of(tensor);
    if (known != no_storage) {
      note_view(call, node, index, element, known, tables_.recording().geometry_of(tensor));
      return {};
    }
    // set_, or an op of another library that has kept the tensor
    if (!call.facts->repeatable && tables_.is_from_before(tensor)) {
      static_cast<void>(operands_.add_preexisting(tensor, call.facts->name));
      return {};
    }
    const StorageIndex s = tables_.records().add(tensor.storage());
    RecordedValue value;
    value.geometry = tables_.recording().geometry_of(tensor);
    value.producer = node;
    value.role = RecordingTables::role_in(call.phase);
    value.bytes = RecordingTables::bytes_of(tensor.storage());
    const Bytes bytes = value.bytes;
    // a mapped file, or a copy that shares a block
    tables_.contents(s).foreign = RecordingTables::is_foreign(tensor.storage());
    tables_.contents(s).made_without_tensors = call.reads.empty() && !call.facts->random;
    const ValueId v = tables_.add_owner(std::move(value), s);
    call.add_result({ResultSlot::From::returned, index, element, v});
    return bytes;
  }

  // The parts of a sparse tensor are plain tensors, and their bytes count. Reads through the sparse
  // tensor are not seen.
  Bytes note_parts(CallDraft& call, NodeId node, std::uint32_t index, const at::Tensor& tensor) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(DispatchHook::above());
    Bytes made{};
    const auto note = [&](const at::Tensor& part) {
      if (part.defined() && is_plain(part) && tables_.storage_of(part) == no_storage &&
          !tables_.is_from_before(part))
        made += note_result(call, node, index, -1, part);
    };
    if (tensor.layout() == at::kSparse) {
      note(tensor._indices());
      note(tensor._values());
    } else if (tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr) {
      note(tensor.crow_indices());
      note(tensor.col_indices());
      note(tensor.values());
    } else if (tensor.layout() == at::kSparseCsc || tensor.layout() == at::kSparseBsc) {
      note(tensor.ccol_indices());
      note(tensor.row_indices());
      note(tensor.values());
    }
    return made;
  }

  // A result over an existing storage: the value that the op wrote, or a view.
  void note_view(CallDraft& call, NodeId node, std::uint32_t index, std::int32_t element,
                 StorageIndex s, const Geometry* geometry) {
    StorageRecord::Contents& known = tables_.contents(s);
    for (ValueId view : known.views) {
      const Geometry* lies = tables_.value(view).geometry;
      if (lies != geometry && !(*lies == *geometry)) continue;
      const bool written =
          std::ranges::any_of(call.updates, [&](ValueId v) { return v == known.owner; });
      if (written || tables_.value(view).producer == node) return;
    }
    RecordedValue value;
    value.geometry = geometry;
    value.alias_of = known.views.front();
    for (const ArgumentSlot& slot : call.reads)
      if (slot.value.valid() && tables_.storage_of(slot.value) == s &&
          !tables_.made_by(node, known))
        value.alias_of = slot.value;
    value.producer = node;
    value.role = RecordingTables::role_in(call.phase);
    const ValueId v = tables_.add_value(std::move(value), s);
    known.views.push_back(v);
    call.add_result({ResultSlot::From::returned, index, element, v});
  }

  RecordingTables& tables_;
  OperandReader& operands_;
  UserAccess& access_;
};

}  // namespace reprise::recording
