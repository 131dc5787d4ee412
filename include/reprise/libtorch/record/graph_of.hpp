#pragma once
// graph_of() converts a Recording to a StepGraph: call i becomes node i, value j becomes value j.
//
//   graph_of(recording, "resnet18").node(NodeId{0})
//   {.name = "conv1/convolution", .op = "aten::convolution", .extra = {"attributes":{"stride":[2,2],…}}}
//
// A node's scalar arguments go into its attributes, so that two captures of one step can be
// compared without LibTorch.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <reprise/graph/builder.hpp>
#include <reprise/graph/json_text.hpp>
#include <reprise/libtorch/record/gradient_sums.hpp>
#include <reprise/libtorch/record/recording.hpp>

namespace reprise::recording {

/// As JSON; bytes that are not UTF-8 become question marks.
inline std::string string_text(std::string_view text) {
  std::string out;
  append_json_string(out, is_utf8(text) ? std::string(text) : printable(text, text.size()));
  return out;
}

/// With a point or an exponent, so that it remains a floating-point number: 1.0.
inline std::string number_text(double x) {
  if (!std::isfinite(x)) return std::isnan(x) ? "\"nan\"" : x > 0 ? "\"inf\"" : "\"-inf\"";
  std::string out;
  append_json_number(out, x);
  return out.find_first_of(".e") == out.npos ? out + ".0" : out;
}

template <class List, class Text>
std::string list_text(const List& list, Text text) {
  std::string out = "[";
  for (const auto& item : list) (out += out.size() == 1 ? "" : ",") += text(item);
  return out + "]";
}

/// As JSON.
inline std::string attribute_of(const c10::IValue& value) {
  if (value.isNone()) return "null";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isInt()) return std::to_string(value.toInt());
  if (value.isDouble()) return number_text(value.toDouble());
  if (value.isString()) return string_text(value.toStringRef());
  if (value.isTensor() || value.isTensorList()) return "\"tensor\"";
  if (value.isList()) return list_text(value.toListRef(), attribute_of);
  if (value.isComplexDouble())
    return "[" + number_text(value.toComplexDouble().real()) + "," +
           number_text(value.toComplexDouble().imag()) + "]";
  if (value.isDevice()) return string_text(value.toDevice().str());
  return string_text(value.tagKind());
}

// FNV-1a, so that the bytes of a constant can be compared without keeping them in the file.
inline std::uint64_t digest(std::span<const std::byte> bytes) {
  std::uint64_t hash = 14695981039346656037ull;
  for (std::byte b : bytes) hash = (hash ^ static_cast<std::uint64_t>(b)) * 1099511628211ull;
  return hash;
}

inline std::string node_extra(const Call& call) {
  std::string attributes, extra;
  if (call.kind == CallKind::op) {
    const auto& arguments = call.op->schema().arguments();
    if (!call.op->schema().overload_name().empty())
      add_json_member(attributes, "overload", string_text(call.op->schema().overload_name()));
    for (std::size_t i = 0; i < call.args.size(); ++i) {
      const bool tensor =
          std::ranges::any_of(call.reads, [&](const ArgumentSlot& slot) { return slot.arg == i; });
      if (!tensor) add_json_member(attributes, arguments[i].name(), attribute_of(call.args[i]));
    }
  } else if (call.kind == CallKind::constant) {
    add_json_member(attributes, "bytes", std::to_string(call.constant.size()));
    add_json_member(attributes, "digest", std::to_string(digest(call.constant)));
  }
  if (!call.returned.empty())
    add_json_member(attributes, "returned", attribute_of(call.returned.front().value));
  if (!attributes.empty()) add_json_member(extra, "attributes", attributes);
  return extra;
}

// Offset of a value in its storage, relative to the storage's owner. The absolute offset of an
// argument may differ in the next call.
inline std::int64_t relative_offset(const Recording& recording, ValueId v) {
  const Geometry &here = recording.values[v.index].geometry,
                 &root = recording.values[recording.owner_of(v).index].geometry;
  return here.dtype == root.dtype ? here.offset - root.offset : here.offset;
}

inline std::string value_extra(const Recording& recording, ValueId v) {
  const RecordedValue& value = recording.values[v.index];
  const auto numbers = [](const auto& list) {
    return list_text(list, [](std::int64_t x) { return std::to_string(x); });
  };
  std::string extra;
  if (value.geometry.dtype != c10::ScalarType::Undefined) {
    add_json_member(extra, "shape", numbers(value.geometry.sizes));
    add_json_member(extra, "strides", numbers(value.geometry.strides));
    add_json_member(extra, "offset", std::to_string(relative_offset(recording, v)));
    add_json_member(extra, "dtype", string_text(c10::toString(value.geometry.dtype)));
  }
  if (!value.scalar.empty()) add_json_member(extra, "digest", std::to_string(digest(value.scalar)));
  return extra;
}

// The values that the node reads, each once. A view of something persistent is read together with
// the persistent value, because this orders the reader among the updates.
inline std::vector<ValueId> inputs_of(const Recording& recording, const Call& call) {
  std::vector<ValueId> inputs;
  const auto add = [&](ValueId v) {
    const bool known = std::ranges::find(inputs, v) != inputs.end() ||
                       std::ranges::find(call.updates, v) != call.updates.end();
    if (!known) inputs.push_back(v);
  };
  for (const ArgumentSlot& slot : call.reads) {
    if (!slot.value.valid()) continue;
    add(slot.value);
    const ValueId root = recording.owner_of(slot.value);
    if (recording.values[root.index].persistent) add(root);
  }
  return inputs;
}

[[nodiscard]] inline StepGraph graph_of(const Recording& recording, std::string name) {
  GraphBuilder builder(std::move(name));
  builder.reserve(recording.calls.size(), recording.values.size());
  const std::vector<ValueId> summands = summands_to_overwrite(recording);
  for (std::size_t i = 0; i < recording.values.size(); ++i) {
    const RecordedValue& value = recording.values[i];
    std::string label = value.name;
    if (label.empty() && value.producer.valid()) {
      const Call& producer = recording.calls[value.producer.index];
      label = Recording::label(producer);
      const auto position = std::ranges::find(producer.results, ValueId{i}, &ResultSlot::value) -
                            producer.results.begin();
      if (position > 0) label += ":" + std::to_string(position);
    }
    builder.add_value({.id = static_cast<std::int64_t>(i),
                       .name = std::move(label),
                       .bytes = summands[i].valid() ? Bytes{0} : value.bytes,
                       .role = value.role,
                       .persistent = value.persistent,
                       .initial = value.initial,
                       .alias_of = value.alias_of,
                       .overwrites = summands[i].valid() ? summands[i] : value.overwrites,
                       .extra = value_extra(recording, ValueId{i})});
  }
  for (std::size_t i = 0; i < recording.calls.size(); ++i) {
    const Call& call = recording.calls[i];
    std::vector<ValueId> outputs;
    for (const ResultSlot& slot : call.results) outputs.push_back(slot.value);
    const bool over_summand = outputs.size() == 1 && summands[outputs[0].index].valid();
    builder.add_node({.id = static_cast<std::int64_t>(i),
                      .name = Recording::label(call),
                      .op = call.op_name(),
                      .phase = call.phase,
                      .time = call.time,
                      .workspace = call.workspace,
                      .recomputable = call.repeatable && !over_summand,
                      .forward = call.forward,
                      .extra = node_extra(call)},
                     inputs_of(recording, call), outputs, call.updates);
  }
  for (ValueId v : recording.outputs) builder.add_output(v);
  for (ValueId v : recording.kept) builder.add_output(v);
  return std::move(builder).build();
}

}  // namespace reprise::recording
