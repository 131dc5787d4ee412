#pragma once
// OpFacts are what an operator's schema and tags say about running it, looked up once per operator.
//
//   facts_of(relu_handle)                 {.name = "aten::relu_", .writes = {true}}
//   facts_of(native_batch_norm_handle)    {.writes = {false × 8}, .statistics = {3, 4}, .training = 5}
//
// Some schemas are incomplete. native_batch_norm and similar operators change the running
// statistics without an alias annotation. rrelu_with_noise writes its noise, which LibTorch before
// 2.6 does not declare. _unsafe_view aliases its input. The first two are listed here, the third is
// found by comparing storages.
// third is found by comparing storages.

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <reprise/base/rooms.hpp>

namespace reprise::tensors {

struct OpFacts {
  std::optional<c10::OperatorHandle> handle{};
  std::string name;          ///< with its namespace, without its overload: "aten::add_"
  std::vector<bool> writes;  ///< by argument: the schema says that it is written
  std::size_t returns = 0;   ///< number of results
  /// arguments that are written in training mode although the schema does not say so
  std::vector<std::size_t> statistics;
  std::size_t training = 0;         ///< of such an op: index of the training argument
  bool random = false;              ///< draws from a generator
  bool dynamic_shape = false;       ///< the shape of its result depends on data
  bool returns_host_value = false;  ///< returns a data-dependent value that is no tensor
  /// returns no tensor, and its result depends on shapes alone
  bool about_shapes_only = false;
  /// part of a composite op that reads lengths behind the dispatcher
  bool hands_lengths_to_host = false;
  /// its result is such lengths: LibTorch reads them through a pointer at any time
  bool read_by_host = false;
  /// reads no data: its results are views of its operands
  bool views_only = false;
  /// its result is uninitialised: empty, new_empty, ...
  bool unfilled = false;
  /// makes a copy, or a tensor of another tensor's shape, which user code often writes afterwards
  bool user_may_fill_result = false;
  /// its result shares memory with its operand until one of them is written
  bool copies_lazily = false;
  bool builtin = true;  ///< one of LibTorch's own
  /// of another library, without alias annotations: it may write all its arguments
  bool may_write = false;
  bool repeatable = true;  ///< recomputable: a second run has no effect beyond its results

  [[nodiscard]] bool moves_statistics() const { return !statistics.empty(); }
};

/// Operators of other libraries that the user has declared pure.
struct PureOps {
  std::mutex guard{};
  std::set<std::string, std::less<>> names{};

  [[nodiscard]] bool holds(const std::string& name) {
    const std::lock_guard lock(guard);
    return names.contains(name);
  }
  static PureOps& instance() {
    static auto& ops = *new PureOps;
    return ops;
  }
};

/// Whether the op is a factory that takes its shape from a tensor, or a copy.
inline bool user_may_fill_result(std::string_view name) {
  return name == "aten::clone" || name == "aten::_to_copy" || name.starts_with("aten::new_") ||
         name.ends_with("_like");
}

/// Whether the argument is written although the schema does not say so.
inline bool writes_unsaid(std::string_view op, const c10::Argument& argument) {
  return op.starts_with("aten::rrelu_with_noise") &&
         op.find("backward") == std::string_view::npos && argument.name() == "noise";
}

/// Whether all results are views of the arguments.
inline bool returns_views(const c10::FunctionSchema& schema) {
  const auto is_view = [](const c10::Argument& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  };
  return !schema.returns().empty() && std::ranges::all_of(schema.returns(), is_view);
}

/// Whether the schema has an alias annotation for any argument or result. c10d's collectives write
/// their arguments without one.
inline bool has_alias_marks(const c10::FunctionSchema& schema) {
  const auto marked = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr;
  };
  return std::ranges::any_of(schema.arguments(), marked) ||
         std::ranges::any_of(schema.returns(), marked);
}

inline OpFacts look_up_facts(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  OpFacts facts;
  facts.handle = op;
  facts.name = schema.name();
  for (const c10::Argument& argument : schema.arguments())
    facts.writes.push_back((argument.alias_info() != nullptr && argument.alias_info()->isWrite()) ||
                           writes_unsaid(facts.name, argument));
  facts.returns = schema.returns().size();
  facts.random = op.hasTag(at::Tag::nondeterministic_seeded);
  facts.dynamic_shape = op.hasTag(at::Tag::dynamic_output_shape);
  const bool tensors_only = std::ranges::all_of(schema.returns(), [](const c10::Argument& result) {
    return result.type()->isSubtypeOf(*c10::TensorType::get()) ||
           result.type()->kind() == c10::TypeKind::ListType;
  });
  const bool builtin = facts.builtin = facts.name.starts_with("aten::");
  // LibTorch tags its own ops. A value that another library's op returns to user code may depend on
  // anything.
  facts.returns_host_value =
      !tensors_only && (op.hasTag(at::Tag::data_dependent_output) || !builtin);
  facts.about_shapes_only = builtin && !tensors_only && !facts.returns_host_value;
  facts.hands_lengths_to_host =
      facts.name == "aten::_ctc_loss" || facts.name == "aten::_pack_padded_sequence";
  facts.read_by_host = facts.name == "aten::_pack_padded_sequence";
  facts.views_only = builtin && returns_views(schema);
  facts.unfilled = builtin && (facts.name.find("empty") != std::string::npos ||
                               facts.name.starts_with("aten::resize"));
  facts.copies_lazily = facts.name == "aten::_lazy_clone";
  // a file, another tensor's storage
  const bool outside = facts.name == "aten::from_file" || facts.name.starts_with("aten::set_");
  const bool known = builtin || PureOps::instance().holds(facts.name);
  facts.may_write = !known && !has_alias_marks(schema);
  facts.repeatable =
      known && !facts.returns_host_value && !facts.read_by_host && !outside && !facts.copies_lazily;
  facts.user_may_fill_result = builtin && user_may_fill_result(facts.name);

  const std::string_view name = facts.name;
  const bool written = std::ranges::find(facts.writes, true) != facts.writes.end();
  if (written || name.find("batch_norm") == std::string_view::npos ||
      name.find("backward") != std::string_view::npos)
    return facts;
  const auto& arguments = schema.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() == "running_mean" || arguments[i].name() == "running_var")
      facts.statistics.push_back(i);
    if (arguments[i].name() == "training" || arguments[i].name() == "train") facts.training = i;
  }
  // no training argument: the op only reads the statistics
  if (facts.training == 0) facts.statistics.clear();
  return facts;
}

/// Declares that an operator of another library, "ns::op", depends on its arguments alone and
/// changes none, so it may be recomputed. Call it before the operator runs for the first time.
inline void assume_pure(std::string name) {
  const std::lock_guard lock(PureOps::instance().guard);
  PureOps::instance().names.insert(std::move(name));
}

/// Facts live as long as the process, because recordings point to them. The lock is taken once per
/// operator and thread.
[[nodiscard]] inline const OpFacts& facts_of(const c10::OperatorHandle& op) {
  static auto& known = *new std::unordered_map<const c10::FunctionSchema*, OpFacts>;
  static auto& guard = *new std::mutex;
  thread_local std::unordered_map<const c10::FunctionSchema*, const OpFacts*> seen;
  const OpFacts*& facts = seen[&op.schema()];
  if (facts != nullptr) return *facts;
  const std::lock_guard lock(guard);
  auto it = known.find(&op.schema());
  if (it == known.end()) it = known.emplace(&op.schema(), look_up_facts(op)).first;
  facts = &it->second;
  return *facts;
}

}  // namespace reprise::tensors

namespace reprise {
using tensors::assume_pure;
}  // namespace reprise
