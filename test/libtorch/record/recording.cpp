// What a recording says of its calls and values.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/recording.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::tensors;

namespace {

Call call_of(const char* name, const char* overload = "") {
  Call call;
  call.facts = &facts_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
  call.op = &*call.facts->handle;
  return call;
}

}  // namespace

TEST_CASE("a call is named after its path and its op, and a value after what made it") {
  Recording recording;
  recording.values.resize(2);
  recording.values[0].outside = recording.keep({.name = "input.0"});
  recording.values[1].producer = NodeId{0};
  recording.calls.push_back(call_of("aten::relu"));
  CHECK(Recording::label(recording.calls[0]) == "relu");
  recording.calls[0].path = "encoder.conv1";
  CHECK(Recording::label(recording.calls[0]) == "encoder.conv1/relu");
  CHECK(recording.describe(ValueId{0}) == "'input.0'");
  CHECK(recording.describe(ValueId{1}) == "what node 0 (encoder.conv1/relu) made");
}

TEST_CASE("calls that are no operators have names of their own") {
  Call call;
  for (const auto& [kind, name] : {std::pair{CallKind::alias, "reprise::alias"},
                                   {CallKind::constant, "reprise::constant"},
                                   {CallKind::release, "reprise::release"},
                                   {CallKind::number, "reprise::number"}}) {
    call.kind = kind;
    CHECK(call.op_name() == name);
  }
}

TEST_CASE("a value's owner is found through views and overwrites") {
  Recording recording;
  recording.values.resize(4);  // 0: owner; 1: written over 0; 2: a view of 1; 3: another owner
  recording.values[1].overwrites = ValueId{0};
  recording.values[2].alias_of = ValueId{1};
  for (std::size_t i = 0; i < 3; ++i) CHECK(recording.owner_of(ValueId{i}) == ValueId{0});
  CHECK(recording.owner_of(ValueId{3}) == ValueId{3});
}

TEST_CASE("running statistics are moved in training, and by nothing else") {
  Call norm = call_of("aten::native_batch_norm");
  std::vector<c10::IValue> arguments(8);
  norm.args = arguments;
  const ArgumentSlot input{0, -1, ValueId{0}}, mean{3, -1, ValueId{1}};
  arguments[5] = true;
  CHECK(is_running_stat(norm, mean));
  CHECK_FALSE(is_running_stat(norm, input));
  arguments[5] = false;
  CHECK_FALSE(is_running_stat(norm, mean));
  CHECK_FALSE(is_running_stat(call_of("aten::relu"), input));
  Call alias;
  alias.kind = CallKind::alias;
  CHECK_FALSE(is_running_stat(alias, mean));
}

TEST_CASE("only what cannot be looked into, or is another library's, may linger") {
  Call call = call_of("aten::relu");
  CHECK_FALSE(may_linger(call));
  call.opaque = true;
  CHECK(may_linger(call));
  OpFacts facts;
  call.opaque = facts.builtin = facts.repeatable = false;
  call.facts = &facts;
  CHECK(may_linger(call));
  facts.repeatable = true;  // declared pure
  CHECK_FALSE(may_linger(call));
}
