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
//
// A step of many small ops is recorded with a few hundred bytes each: lists lie in chunks, a
// geometry and a path are kept once, and what few values and calls have lies elsewhere.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>

#include <reprise/graph/step_graph.hpp>
#include <reprise/libtorch/record/chunks.hpp>
#include <reprise/libtorch/record/kept_geometries.hpp>
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

/// What the values have that no call has made.
struct FromOutside {
  std::string name{};
  c10::SmallVector<std::byte, 16> scalar{};  ///< of Origin::scalar: its bytes
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> captured{};  ///< for Origin::captured
};

struct RecordedValue {
  inline static const Geometry no_geometry{};
  inline static const FromOutside nothing{};

  const Geometry* geometry = &no_geometry;  ///< the recording's
  const FromOutside* outside = &nothing;    ///< likewise
  Bytes bytes{};
  ValueId alias_of{};
  ValueId overwrites{};
  NodeId producer{};
  std::uint32_t origin_index = 0;
  Origin origin = Origin::step;
  Role role = Role::other;
  bool persistent = false;
  /// alive before the step, and freed in the middle of the step
  bool initial = false;

  [[nodiscard]] const std::string& name() const { return outside->name; }
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

/// What few calls have.
struct CallExtras {
  /// non-tensor results that depend on data
  std::vector<HostResult> returned{};
  std::vector<std::byte> constant{};  ///< for CallKind::constant
};

/// Its lists lie in the recording, or in the CallDraft where the op has not run yet.
struct Call {
  inline static const CallExtras no_extras{};

  const OpFacts* facts = nullptr;
  const c10::OperatorHandle* op = nullptr;  ///< of CallKind::op; of the facts
  c10::DispatchKeySet keys{};
  std::span<const c10::IValue> args{};  ///< tensors left out: they are in `reads`
  std::span<const ArgumentSlot> reads{};
  std::span<const ResultSlot> results{};
  std::span<const ValueId> updates{};  ///< persistent values that it writes
  const CallExtras* extras = &no_extras;
  std::string_view path{};             ///< parameter path or user scope
  const Switches* switches = nullptr;  ///< LibTorch's, at the first run
  Microseconds time{};
  Bytes workspace{};
  NodeId forward{};
  CallKind kind = CallKind::op;
  Phase phase = Phase::forward;
  bool repeatable = true;
  /// an operand or a result is not plain memory: its contents cannot be seen
  bool opaque = false;
  bool grad_mode = true;  ///< grad mode: some kernels keep more for backward while it is on

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
[[nodiscard]] inline bool is_running_stat(const Call& call, const ArgumentSlot& read) {
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

/// A call that is being put together: its lists grow until the recording takes it.
class CallDraft : public Call {
 public:
  CallDraft() = default;
  CallDraft(const CallDraft&) = delete;  // its lists lie inside of it
  CallDraft& operator=(const CallDraft&) = delete;

  void add_argument(c10::IValue argument) {
    arguments_.push_back(std::move(argument));
    args = {arguments_.data(), arguments_.size()};
  }
  void add_read(const ArgumentSlot& slot) { reads = add(read_slots_, slot); }
  void add_result(const ResultSlot& slot) { results = add(result_slots_, slot); }
  void add_update(ValueId v) { updates = add(updated_, v); }
  void add_returned(HostResult result) {
    own_extras_.returned.push_back(std::move(result));
    extras = &own_extras_;
  }
  void set_constant(std::vector<std::byte> bytes) {
    own_extras_.constant = std::move(bytes);
    extras = &own_extras_;
  }

 private:
  friend struct Recording;

  template <class List, class Item>
  static std::span<const Item> add(List& list, const Item& item) {
    list.push_back(item);
    return {list.data(), list.size()};
  }

  c10::SmallVector<c10::IValue, 12> arguments_;
  c10::SmallVector<ArgumentSlot, 4> read_slots_;
  c10::SmallVector<ResultSlot, 2> result_slots_;
  c10::SmallVector<ValueId, 2> updated_;
  CallExtras own_extras_;
};

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

  /// Takes the call over, and gives its node.
  NodeId add(CallDraft&& draft) {
    const NodeId node{calls.size()};
    Call& call = calls.emplace_back(static_cast<const Call&>(draft));
    call.args = args_.keep(draft.arguments_);
    call.reads = reads_.keep(draft.read_slots_);
    call.results = results_.keep(draft.result_slots_);
    call.updates = updates_.keep(draft.updated_);
    if (draft.extras == &draft.own_extras_)
      call.extras = &extras_.keep_one(std::move(draft.own_extras_));
    return node;
  }
  /// For RecordedValue::outside.
  [[nodiscard]] const FromOutside* keep(FromOutside outside) {
    return &outside_.keep_one(std::move(outside));
  }
  /// For RecordedValue::geometry; of a tensor, or a geometry.
  template <class Source>
  [[nodiscard]] const Geometry* geometry_of(Source&& source) {
    return &geometries_.of(std::forward<Source>(source));
  }
  /// For Call::path.
  [[nodiscard]] std::string_view keep_path(std::string_view path) {
    if (path.empty()) return {};
    const auto known = paths_.find(path);
    return known != paths_.end() ? *known : *paths_.emplace(path).first;
  }
  /// Nothing is recorded any more; the memory is there for another step's recording.
  void clear() {
    values.clear();
    calls.clear();
    outputs.clear();
    kept.clear();
    reads_aliases = false;
    refusal.clear();
    unplannable.clear();
    base = peak = {};
    args_.clear();
    reads_.clear();
    results_.clear();
    updates_.clear();
    extras_.clear();
    outside_.clear();
    if (geometries_.size() > most_kept) geometries_ = {};
    if (paths_.size() > most_kept) paths_.clear();
  }

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
    return call.path.empty() ? name : std::string(call.path) + "/" + name;
  }
  /// For messages: "'input.0'", or "what node 5 (conv1/convolution) made".
  [[nodiscard]] std::string describe(ValueId v) const {
    const RecordedValue& value = values[v.index];
    if (!value.producer.valid()) return "'" + value.name() + "'";
    return "what node " + std::to_string(value.producer.index) + " (" +
           label(calls[value.producer.index]) + ") made";
  }

 private:
  struct PathHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  // Of the steps before: more than this are not likely to come again.
  static constexpr std::size_t most_kept = 1 << 14;

  Chunks<c10::IValue> args_;
  Chunks<ArgumentSlot> reads_;
  Chunks<ResultSlot> results_;
  Chunks<ValueId> updates_;
  Chunks<CallExtras> extras_;
  Chunks<FromOutside> outside_;
  KeptGeometries geometries_;
  std::unordered_set<std::string, PathHash, std::equal_to<>> paths_;
};

}  // namespace reprise::recording

namespace reprise {
using recording::Recording;
}  // namespace reprise
