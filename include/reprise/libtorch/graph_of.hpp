#pragma once
// A Recording as a StepGraph: call i is node i, value j is value j.
//
//   graph_of(recording, "resnet18").node(NodeId{0})
//   {.name = "conv1/convolution", .op = "aten::convolution", .extra = {"attributes":{"stride":[2,2],…}}}
//
// A node's scalar arguments go into its attributes, so that two captures of one step can be compared without LibTorch.

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <reprise/graph/builder.hpp>
#include <reprise/libtorch/recording.hpp>

namespace reprise {

namespace detail {

inline nlohmann::ordered_json attribute_of(const c10::IValue& value) {
  if (value.isNone()) return nullptr;
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) {
    const double x = value.toDouble();
    if (std::isfinite(x)) return x;
    return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
  }
  if (value.isString()) return value.toStringRef();
  if (value.isTensor() || value.isTensorList()) return "tensor";
  if (value.isList()) {
    auto list = nlohmann::ordered_json::array();
    for (const c10::IValue& item : value.toListRef()) list.push_back(attribute_of(item));
    return list;
  }
  if (value.isComplexDouble()) return nlohmann::ordered_json::array({value.toComplexDouble().real(), value.toComplexDouble().imag()});
  if (value.isDevice()) return value.toDevice().str();
  return value.tagKind();
}

// FNV-1a, so that the bytes of a constant can be compared without keeping them in the file.
inline std::uint64_t digest(const std::vector<std::byte>& bytes) {
  std::uint64_t hash = 14695981039346656037ull;
  for (std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 1099511628211ull;
  return hash;
}

inline std::string node_extra(const Call& call) {
  nlohmann::ordered_json attributes;
  if (call.kind == CallKind::op) {
    const auto& arguments = call.op->schema().arguments();
    if (!call.op->schema().overload_name().empty()) attributes["overload"] = call.op->schema().overload_name();
    for (std::size_t i = 0; i < call.args.size(); ++i) {
      const bool tensor = std::ranges::any_of(call.reads, [&](const ArgumentSlot& slot) { return slot.arg == i; });
      if (!tensor) attributes[arguments[i].name()] = attribute_of(call.args[i]);
    }
  } else if (call.kind == CallKind::constant) {
    attributes["bytes"] = call.constant.size();
    attributes["digest"] = digest(call.constant);
  }
  if (!call.returned.empty()) attributes["returned"] = attribute_of(call.returned.front().value);
  nlohmann::ordered_json extra;
  if (!attributes.empty()) extra["attributes"] = std::move(attributes);
  return extra.empty() ? std::string{} : extra.dump();
}

inline ValueId root_of(const Recording& recording, ValueId v) {
  while (recording.values[v.index].alias_of.valid() || recording.values[v.index].overwrites.valid()) {
    const RecordedValue& value = recording.values[v.index];
    v = value.alias_of.valid() ? value.alias_of : value.overwrites;
  }
  return v;
}

// Where in its storage a value lies, counted from the value that brought the storage: an argument may lie elsewhere the next time.
inline std::int64_t relative_offset(const Recording& recording, ValueId v) {
  const Geometry &here = recording.values[v.index].geometry, &root = recording.values[root_of(recording, v).index].geometry;
  return here.dtype == root.dtype ? here.offset - root.offset : here.offset;
}

inline std::string value_extra(const Recording& recording, ValueId v) {
  const RecordedValue& value = recording.values[v.index];
  nlohmann::ordered_json extra;
  if (value.geometry.dtype != c10::ScalarType::Undefined) {
    extra["shape"] = std::vector<std::int64_t>(value.geometry.sizes.begin(), value.geometry.sizes.end());
    extra["strides"] = std::vector<std::int64_t>(value.geometry.strides.begin(), value.geometry.strides.end());
    extra["offset"] = relative_offset(recording, v);
    extra["dtype"] = c10::toString(value.geometry.dtype);
  }
  if (!value.scalar.empty()) extra["digest"] = digest(value.scalar);
  return extra.empty() ? std::string{} : extra.dump();
}

inline std::string short_name(const std::string& op) {
  const auto colon = op.rfind(':');
  return colon == std::string::npos ? op : op.substr(colon + 1);
}

inline std::string node_name(const Call& call) {
  const std::string op = short_name(call.op_name());
  return call.path.empty() ? op : call.path + "/" + op;
}

inline std::string describe(const Recording& recording, ValueId v) {
  const RecordedValue& value = recording.values[v.index];
  if (!value.producer.valid()) return "'" + value.name + "'";
  return "what node " + std::to_string(value.producer.index) + " (" + node_name(recording.calls[value.producer.index]) + ") made";
}

// What the node reads, each once. A view of something persistent is read together with what it is a view of: that is what ties
// the reader to its place among the updates.
inline std::vector<ValueId> inputs_of(const Recording& recording, const Call& call) {
  std::vector<ValueId> inputs;
  const auto add = [&](ValueId v) {
    const bool known = std::ranges::find(inputs, v) != inputs.end() || std::ranges::find(call.updates, v) != call.updates.end();
    if (!known) inputs.push_back(v);
  };
  for (const ArgumentSlot& slot : call.reads) {
    if (!slot.value.valid()) continue;
    add(slot.value);
    const ValueId root = root_of(recording, slot.value);
    if (recording.values[root.index].persistent) add(root);
  }
  return inputs;
}

}  // namespace detail

[[nodiscard]] inline StepGraph graph_of(const Recording& recording, std::string name) {
  GraphBuilder builder(std::move(name));
  builder.reserve(recording.calls.size(), recording.values.size());
  for (std::size_t i = 0; i < recording.values.size(); ++i) {
    const RecordedValue& value = recording.values[i];
    std::string label = value.name;
    if (label.empty() && value.producer.valid()) {
      const Call& producer = recording.calls[value.producer.index];
      label = detail::node_name(producer);
      const auto position = std::ranges::find(producer.results, ValueId{i}, &ResultSlot::value) - producer.results.begin();
      if (position > 0) label += ":" + std::to_string(position);
    }
    builder.add_value({.id = static_cast<std::int64_t>(i),
                       .name = std::move(label),
                       .bytes = value.bytes,
                       .role = value.role,
                       .persistent = value.persistent,
                       .initial = value.initial,
                       .alias_of = value.alias_of,
                       .overwrites = value.overwrites,
                       .extra = detail::value_extra(recording, ValueId{i})});
  }
  for (std::size_t i = 0; i < recording.calls.size(); ++i) {
    const Call& call = recording.calls[i];
    std::vector<ValueId> outputs;
    for (const ResultSlot& slot : call.results) outputs.push_back(slot.value);
    builder.add_node({.id = static_cast<std::int64_t>(i),
                      .name = detail::node_name(call),
                      .op = call.op_name(),
                      .phase = call.phase,
                      .time = call.time,
                      .workspace = call.workspace,
                      .recomputable = call.repeatable,
                      .forward = call.forward,
                      .extra = detail::node_extra(call)},
                     detail::inputs_of(recording, call), outputs, call.updates);
  }
  for (ValueId v : recording.outputs) builder.add_output(v);
  for (ValueId v : recording.kept) builder.add_output(v);
  return std::move(builder).build();
}

}  // namespace reprise
