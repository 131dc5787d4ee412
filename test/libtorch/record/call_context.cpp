// Where in the step a call stands.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/call_context.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::tensors;
using torch::Tensor;

namespace {

struct Placing {
  RecordingTables tables{};
  CallContext context{tables};

  /// A call that reads this, as a recorder would note it.
  Call& note(ValueId read = {}) {
    CallDraft call;
    call.facts = &facts_of(c10::Dispatcher::singleton().findSchemaOrThrow("aten::relu", ""));
    call.op = &*call.facts->handle;
    context.note(call);
    if (read.valid()) call.add_read({0, -1, read});
    context.note_operands(call);
    static_cast<void>(tables.recording().add(std::move(call)));
    return tables.recording().calls.back();
  }
  ValueId parameter(const Tensor& t, const char* name) {
    return tables.add_persistent(t, Origin::parameter, 0, Role::parameter, name);
  }
};

}  // namespace

TEST_CASE("a call is named after the parameter that it uses, inside of the user's scopes",
          "[call_context]") {
  const Tensor weight = torch::ones({4}), single = torch::ones({4});
  Placing p;
  const ValueId w = p.parameter(weight, "conv1.weight"), s = p.parameter(single, "scale");
  CHECK(p.note(w).path == "conv1");
  CHECK(p.note(s).path == "scale");
  const auto encoder = scope("encoder");
  CHECK(p.note(w).path == "encoder/conv1");
  CHECK(p.note().path == "encoder");
}

TEST_CASE("a call without a parameter is named after what made its operand", "[call_context]") {
  const Tensor weight = torch::ones({4});
  Placing p;
  const ValueId w = p.parameter(weight, "conv1.weight");
  static_cast<void>(p.note(w));
  const ValueId made = p.tables.add_value({.producer = NodeId{0}});
  CHECK(p.note(made).path == "conv1");
}

TEST_CASE("a call's phase is the user's, outside of backward", "[call_context]") {
  Placing p;
  CHECK(p.note().phase == Phase::forward);
  p.tables.enter(Phase::optimizer);
  CHECK(p.note().phase == Phase::optimizer);
}

TEST_CASE("a switch that is set in the middle of the step refuses it, and belongs to the call",
          "[call_context]") {
  const int threads = at::get_num_threads();
  Placing p;
  const Switches* const first = p.note().switches;
  CHECK(*first == Switches::now());
  CHECK(p.note().switches == first);
  CHECK(p.tables.recording().refusal.empty());
  at::set_num_threads(threads + 1);
  const Call& other = p.note();
  at::set_num_threads(threads);
  CHECK(other.switches->threads == threads + 1);
  CHECK_THAT(p.tables.recording().refusal,
             contains("a switch of LibTorch's was set in the middle of the step, before "
                      "aten::relu (node 2)"));
  CHECK(p.note().switches == first);
}
