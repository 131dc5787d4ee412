#pragma once
// A Recording is what the recorder saw: calls in the order in which they ran, and the tensor
// versions that they read and made. Call i becomes node i and value j becomes value j of the
// StepGraph: one set of ids from here to the end.
//
//   auto y = torch::relu_(x + 1);
//
//   values   0  x        persistent (input 0)
//            1  1.0      persistent (scalar)
//            2  add      owns 4096 bytes, made by call 0
//            3  relu_    overwrites 2, made by call 1
//   calls    0  aten::add.Tensor   args (·, ·, 1)   reads {arg 0: 0, arg 1: 1}   results {return 0: 2}
//            1  aten::relu_        args (·)         reads {arg 0: 2}             results {arg 0: 3}
//
// A Recording keeps no tensor of the step, because a kept tensor would change what autograd does.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <reprise/graph/step_graph.hpp>
#include <reprise/libtorch/torch/geometry.hpp>
#include <reprise/libtorch/torch/op_facts.hpp>
#include <reprise/libtorch/torch/switches.hpp>

namespace reprise::recording {

/// The source of a value that a replayed step does not make itself.
enum class Origin : std::uint8_t {
  step,       ///< made by a call
  parameter,  ///< the model's parameter number `origin_index`
  buffer,     ///< the model's buffer number `origin_index`
  gradient,   ///< the .grad that parameter number `origin_index` had when the step began
  input,      ///< the step's tensor argument number `origin_index`
  captured,   ///< a tensor of a closure; found through a weak pointer
  scalar,     ///< a number that LibTorch wrapped into a tensor; kept by value
  generator,  ///< the random generator
};

struct RecordedValue {
  Geometry geometry{};
  Origin origin = Origin::step;
  std::uint32_t origin_index = 0;
  Role role = Role::other;
  std::string name{};
  Bytes bytes{};
  ValueId alias_of{};
  ValueId overwrites{};
  NodeId producer{};
  bool persistent = false;
  /// alive before the step, and freed in the middle of the step
  bool initial = false;
  /// for Origin::scalar: its bytes
  c10::SmallVector<std::byte, 16> scalar{};
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> captured{};  ///< for Origin::captured
};

/// One tensor among a call's arguments: argument `arg` itself, or an element of it if it is a list.
struct ArgumentSlot {
  std::uint32_t arg = 0;
  std::int32_t element = -1;
  ValueId value{};
};

/// One tensor that a call made: a returned tensor, or an argument that it wrote.
struct ResultSlot {
  enum class From : std::uint8_t { returned, argument } from = From::returned;
  std::uint32_t index = 0;
  std::int32_t element = -1;
  ValueId value{};
};

/// A data-dependent value that a call returned to user code, and the index of that result.
struct HostResult {
  std::uint32_t index = 0;
  c10::IValue value{};
};

enum class CallKind : std::uint8_t {
  op,        ///< an operator
  alias,     ///< a view that no op made: an older view that is read after a write
  constant,  ///< bytes that user code wrote into a tensor of the step
  release,   ///< the user's tensors of its operand die: the storage was live until here
  /// a number that LibTorch wrapped for the op before, and that something has kept: its few bytes
  /// are live from here on
  number,
};

/// Lists that every call has are stored inside the call up to the usual length. An allocation for
/// each of them would cost more than all other notes of an op. It would also lie between the step's
/// own blocks, which then leave holes that no block fits (see kept_lists.hpp).
struct Call {
  CallKind kind = CallKind::op;
  std::optional<c10::OperatorHandle> op{};
  const OpFacts* facts = nullptr;
  c10::DispatchKeySet keys{};
  c10::SmallVector<c10::IValue, 12> args{};  ///< without the tensors: they are in `reads`
  c10::SmallVector<ArgumentSlot, 4> reads{};
  c10::SmallVector<ResultSlot, 2> results{};
  c10::SmallVector<ValueId, 2> updates{};  ///< persistent values that it writes
  /// non-tensor results that depend on data
  std::vector<HostResult> returned{};
  std::vector<std::byte> constant{};  ///< for CallKind::constant
  std::string path{};                 ///< parameter path or user scope
  Phase phase = Phase::forward;
  NodeId forward{};
  bool repeatable = true;
  /// an operand or a result is not plain memory: its contents cannot be seen
  bool opaque = false;
  bool grad_mode = true;  ///< grad mode: some kernels keep more for backward while it is on
  const Switches* switches = nullptr;  ///< LibTorch's, at the first run
  Microseconds time{};
  Bytes workspace{};

  [[nodiscard]] std::string op_name() const {
    switch (kind) {
      case CallKind::op: return facts->name;
      case CallKind::alias: return "reprise::alias";
      case CallKind::constant: return "reprise::constant";
      case CallKind::release: return "reprise::release";
      case CallKind::number: break;
    }
    return "reprise::number";
  }
};

/// Whether the call changes this argument although the schema does not say so: running statistics
/// in training mode.
[[nodiscard]] inline bool is_moved_statistic(const Call& call, const ArgumentSlot& read) {
  if (call.kind != CallKind::op || !call.facts->moves_statistics()) return false;
  const c10::IValue& training = call.args[call.facts->training];
  if (!training.isBool() || !training.toBool()) return false;
  return std::ranges::find(call.facts->statistics, std::size_t{read.arg}) !=
         call.facts->statistics.end();
}

/// Whether the call may use its operands and results after it has returned, or keep them where
/// Reprise cannot see them.
[[nodiscard]] inline bool may_linger(const Call& call) {
  return call.opaque ||
         (call.kind == CallKind::op && !call.facts->builtin && !call.facts->repeatable);
}

struct Recording {
  std::vector<RecordedValue> values;
  std::vector<Call> calls;
  std::vector<ValueId> outputs;  ///< what the caller takes out of the step
  std::vector<ValueId> kept;     ///< other values of the step that are alive at its end
  /// an op reads a parameter's or buffer's storage through another tensor from before the step
  bool reads_aliases = false;
  std::string refusal;  ///< why the step cannot be replayed; empty if it can
  /// why the graph would not describe the step's memory; empty if it does
  std::string unplannable;
  Bytes base{};  ///< live bytes at the start
  /// the maximum of the live bytes in a step without a limit
  Bytes peak{};

  /// The value that allocated the storage of `v`.
  [[nodiscard]] ValueId owner_of(ValueId v) const {
    while (values[v.index].alias_of.valid() || values[v.index].overwrites.valid())
      v = values[v.index].alias_of.valid() ? values[v.index].alias_of : values[v.index].overwrites;
    return v;
  }
  /// "conv1/convolution": the call's path and its op, without the op's namespace.
  [[nodiscard]] static std::string label(const Call& call) {
    const std::string op = call.op_name();
    const auto colon = op.rfind(':');
    const std::string name = colon == std::string::npos ? op : op.substr(colon + 1);
    return call.path.empty() ? name : call.path + "/" + name;
  }
  /// For messages: "'input.0'", or "what node 5 (conv1/convolution) made".
  [[nodiscard]] std::string describe(ValueId v) const {
    const RecordedValue& value = values[v.index];
    if (!value.producer.valid()) return "'" + value.name + "'";
    return "what node " + std::to_string(value.producer.index) + " (" +
           label(calls[value.producer.index]) + ") made";
  }
};

}  // namespace reprise::recording

namespace reprise {
using recording::Recording;
}  // namespace reprise
