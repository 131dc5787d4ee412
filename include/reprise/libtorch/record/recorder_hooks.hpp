#pragma once
// RecorderHooks are called around each op that a Recorder records.
//
//   before ─▶ (the recorder reads the arguments) ─▶ ready ─▶ the op runs ─▶ after, or failed

#include <span>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <reprise/libtorch/device/cpu/counting_allocator.hpp>
#include <reprise/libtorch/record/recording.hpp>
#include <reprise/libtorch/residency/storage_record.hpp>

namespace reprise::recording {

struct RecorderHooks {
  virtual ~RecorderHooks() = default;
  /// The op has not run; `arguments` are its own. The hook may materialize its operands here.
  virtual void before(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> /*arguments*/) {
  }
  /// The op has not run, but its call is known: its operands, and the storages that it will write.
  virtual void ready(const Call& /*call*/, std::span<const StorageIndex> /*writes*/) {}
  /// The op has run and has become `node`.
  virtual void after(const c10::OperatorHandle& /*op*/, c10::ArrayRef<c10::IValue> /*results*/,
                     NodeId /*node*/) {}
  /// The op threw; it may have written to these.
  virtual void failed(const Call& /*call*/, std::span<const StorageIndex> /*writes*/) {}
  /// Called for the op's allocations on a thread that has joined the step.
  virtual MemoryGate* gate() { return nullptr; }
  /// An op on a thread that has joined the step is over.
  virtual void left() {}
  /// User code asks for a pointer to write through. True if the hook has handled it: the recording
  /// then remains useful.
  virtual bool host_access(StorageIndex /*storage*/) { return false; }
  /// Comes before host_access() if only the contents have shown the write: user code has written
  /// already. May throw.
  virtual void host_wrote(StorageIndex /*storage*/) {}
};

}  // namespace reprise::recording
