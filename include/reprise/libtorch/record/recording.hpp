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
// Nothing here holds a tensor of the step: a held tensor would change what autograd does with it.

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

/// Where a replayed step finds a value that it does not make itself.
enum class Origin : std::uint8_t {
  step,       ///< made by a call
  parameter,  ///< the model's parameter number `origin_index`
  buffer,     ///< the model's buffer number `origin_index`
  gradient,   ///< the .grad that parameter number `origin_index` had when the step began
  input,      ///< the step's tensor argument number `origin_index`
  captured,   ///< a tensor that the user's code holds; found again through a weak pointer
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
  /// there before the step, and given back in the middle of it
  bool initial = false;
  /// of Origin::scalar: its bytes
  c10::SmallVector<std::byte, 16> scalar{};
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> captured{};  ///< of Origin::captured
};

/// One tensor among a call's arguments: argument `arg` itself, or one element of it where it is a
/// list.
struct ArgumentSlot {
  std::uint32_t arg = 0;
  std::int32_t element = -1;
  ValueId value{};
};

/// One tensor that a call made: what it returned, or an argument that it wrote.
struct ResultSlot {
  enum class From : std::uint8_t { returned, argument } from = From::returned;
  std::uint32_t index = 0;
  std::int32_t element = -1;
  ValueId value{};
};

/// Something that a call returned to the host, and which of its results that is.
struct HostResult {
  std::uint32_t index = 0;
  c10::IValue value{};
};

enum class CallKind : std::uint8_t {
  op,        ///< an operator
  alias,     ///< a view that nobody asked for: an older view read after a write
  constant,  ///< bytes that the host wrote into a tensor made in the step
  release,   ///< the user's code lets go of what it reads: until here that was held
  /// a number that LibTorch wrapped for the op before it, and that somebody has kept: its few bytes
  /// exist from here on
  number,
};

/// The lists that every call has lie inside of it up to the usual length: an allocation for each
/// would cost more than all else that is noted of an op, and would lie between the step's own
/// blocks, which then leave holes that nothing fits into (see kept_lists.hpp).
struct Call {
  CallKind kind = CallKind::op;
  std::optional<c10::OperatorHandle> op{};
  const OpFacts* facts = nullptr;
  c10::DispatchKeySet keys{};
  c10::SmallVector<c10::IValue, 12> args{};  ///< tensors left out: they are in `reads`
  c10::SmallVector<ArgumentSlot, 4> reads{};
  c10::SmallVector<ResultSlot, 2> results{};
  c10::SmallVector<ValueId, 2> updates{};  ///< persistent values that it writes
  /// what it returned beside tensors, where that depends on data
  std::vector<HostResult> returned{};
  std::vector<std::byte> constant{};  ///< of CallKind::constant
  std::string path{};                 ///< parameter path or user scope
  Phase phase = Phase::forward;
  NodeId forward{};
  bool repeatable = true;
  /// a tensor that it takes or makes is not plain memory: what lies inside of it cannot be seen
  bool opaque = false;
  bool grad_mode = true;  ///< what it was: some kernels keep more for backward while it is on
  const Switches* switches = nullptr;  ///< LibTorch's, when it ran first
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

/// Whether the call moves what this argument holds, behind the schema's back: running statistics in
/// training mode.
[[nodiscard]] inline bool is_moved_statistic(const Call& call, const ArgumentSlot& read) {
  if (call.kind != CallKind::op || !call.facts->moves_statistics()) return false;
  const c10::IValue& training = call.args[call.facts->training];
  if (!training.isBool() || !training.toBool()) return false;
  return std::ranges::find(call.facts->statistics, std::size_t{read.arg}) !=
         call.facts->statistics.end();
}

/// Whether it may go on working on what it reads and makes after it has returned, or have put it
/// where nobody can look.
[[nodiscard]] inline bool may_linger(const Call& call) {
  return call.opaque ||
         (call.kind == CallKind::op && !call.facts->builtin && !call.facts->repeatable);
}

struct Recording {
  std::vector<RecordedValue> values;
  std::vector<Call> calls;
  std::vector<ValueId> outputs;  ///< what the caller takes out of the step
  std::vector<ValueId> kept;     ///< what else was made in the step and is still alive at its end
  /// an op reads a parameter's or buffer's memory through a tensor from before the step that is
  /// neither
  bool reads_aliases = false;
  std::string refusal;  ///< why this cannot be run again; empty where it can
  /// why the graph would not say what memory the step takes; empty where it does
  std::string unplannable;
  Bytes base{};  ///< what existed at the start
  /// what existed at most: what the allocator would have held without a limit
  Bytes peak{};

  /// The value that allocated the storage that `v` lies in.
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
