// What an op has written and made.

#include <torch/torch.h>

#include <vector>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/results.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::residency;
using namespace reprise::tensors;
using namespace reprise::literals;
using torch::Tensor;

namespace {

void unheard(c10::StorageImpl*) {}

/// Ops are run by the test, and noted as a recorder would.
struct Noting {
  RecordingTables tables{};
  WrappedNumbers numbers{tables};
  UserAccess access{tables, nullptr, unheard};
  OperandReader operands{tables, numbers, access};
  ResultNotes results{tables, operands, access};
  Bytes allocated{};  ///< by the last op

  ~Noting() { access.unwatch_all(); }
  /// `run` gives what the op returns.
  template <class Run>
  Call& note(const char* name, const char* overload, const std::vector<c10::IValue>& arguments,
             const Run& run) {
    CallDraft call;
    call.facts = &facts_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
    call.op = &*call.facts->handle;
    operands.read_arguments(call, arguments);
    const PendingWrites writes = results.writes_of(call, arguments);
    const std::vector<c10::IValue> returned = run();
    const NodeId node = tables.next_node();
    allocated = {};
    for (const PendingWrite& write : writes) allocated += results.note_write(call, node, write);
    allocated += results.note_results(call, node, returned);
    static_cast<void>(tables.recording().add(std::move(call)));
    return tables.recording().calls.back();
  }
  Call& relu(const Tensor& x, Tensor& made) {
    return note("aten::relu", "", {x}, [&]() -> std::vector<c10::IValue> {
      made = torch::relu(x);
      return {made};
    });
  }
  ValueId owner(const Tensor& t) { return tables.contents(tables.storage_of(t)).owner; }
};

}  // namespace

TEST_CASE("a result owns a new storage, with its bytes", "[results]") {
  const Tensor x = torch::ones({4});
  Noting n;
  n.operands.add_known(x, Origin::input, 0, Role::input, "x");
  Tensor made;
  const Call& call = n.relu(x, made);
  REQUIRE(call.results.size() == 1);
  CHECK(call.results[0].from == ResultSlot::From::returned);
  const RecordedValue& value = n.tables.value(call.results[0].value);
  CHECK(value.bytes == 16_B);
  CHECK(value.producer == NodeId{0});
  CHECK(value.role == Role::activation);
  CHECK(n.owner(made) == call.results[0].value);
  CHECK(n.allocated == 16_B);
}

TEST_CASE("a write makes a new version of what was made in the step", "[results]") {
  const Tensor x = torch::ones({4});
  Noting n;
  n.operands.add_known(x, Origin::input, 0, Role::input, "x");
  Tensor h;
  const ValueId first = n.relu(x, h).results[0].value;
  const Call& call = n.note("aten::relu_", "", {h},
                            [&]() -> std::vector<c10::IValue> { return {torch::relu_(h)}; });
  REQUIRE(call.results.size() == 1);
  CHECK(call.results[0].from == ResultSlot::From::argument);
  const ValueId second = call.results[0].value;
  CHECK(n.tables.value(second).overwrites == first);
  CHECK(n.tables.latest_version(n.tables.storage_of(h)) == second);
  CHECK(n.tables.owner_of(second) == first);
  CHECK(call.updates.empty());
  CHECK(n.allocated == 0_B);
}

TEST_CASE("a write to what was there before the step is an update, and is not run again",
          "[results]") {
  Tensor weight = torch::ones({4});
  Noting n;
  n.operands.add_known(weight, Origin::parameter, 0, Role::parameter, "weight");
  const Call& call = n.note("aten::relu_", "", {weight},
                            [&]() -> std::vector<c10::IValue> { return {torch::relu_(weight)}; });
  REQUIRE(call.updates.size() == 1);
  CHECK(call.updates[0] == n.owner(weight));
  CHECK(call.results.empty());
  CHECK_FALSE(call.repeatable);
  CHECK(n.tables.latest_version(n.tables.storage_of(weight)) == n.owner(weight));
}

TEST_CASE("running statistics are updated by a call that may run again", "[results]") {
  const Tensor x = torch::randn({4, 2}), mean = torch::zeros({2}), var = torch::ones({2});
  Noting n;
  for (const Tensor& t : {x, mean, var})
    n.operands.add_known(t, Origin::buffer, 0, Role::buffer, "t");
  const std::vector<c10::IValue> arguments{x, Tensor(), Tensor(), mean, var, true, 0.1, 1e-5};
  const Call& call =
      n.note("aten::native_batch_norm", "", arguments, [&]() -> std::vector<c10::IValue> {
        const auto [y, m, v] = torch::native_batch_norm(x, {}, {}, mean, var, true, 0.1, 1e-5);
        return {y, m, v};
      });
  CHECK(call.updates.size() == 2);
  CHECK(call.results.size() == 3);
  CHECK(call.repeatable);
}

TEST_CASE("a result over a known storage is a view, and allocates nothing", "[results]") {
  const Tensor x = torch::ones({4, 2});
  Noting n;
  n.operands.add_known(x, Origin::input, 0, Role::input, "x");
  const Call& call =
      n.note("aten::t", "", {x}, [&]() -> std::vector<c10::IValue> { return {x.t()}; });
  REQUIRE(call.results.size() == 1);
  CHECK(n.tables.value(call.results[0].value).alias_of == n.owner(x));
  CHECK(n.tables.view_of(n.tables.storage_of(x), x.t()) == call.results[0].value);
  CHECK(n.allocated == 0_B);
}

TEST_CASE("an output that an op makes larger is a storage of a new size", "[results]") {
  const Tensor x = torch::ones({64});
  Noting n;
  n.operands.add_known(x, Origin::input, 0, Role::input, "x");
  Tensor h;
  static_cast<void>(n.relu(x.narrow(0, 0, 64), h));
  const Call& call = n.note("aten::resize_", "", {h, std::vector<std::int64_t>{128}, c10::IValue()},
                            [&]() -> std::vector<c10::IValue> {
                              h.resize_({128});
                              return {h};
                            });
  REQUIRE(call.results.size() == 1);
  const RecordedValue& value = n.tables.value(call.results[0].value);
  CHECK(value.bytes == 512_B);
  CHECK_FALSE(value.overwrites.valid());
  CHECK(n.allocated == 512_B);
}

TEST_CASE("a list's elements are results each, and an object refuses the call", "[results]") {
  const Tensor x = torch::ones({4, 2});
  Noting n;
  n.operands.add_known(x, Origin::input, 0, Role::input, "x");
  const Call& split = n.note("aten::unbind", "int", {x, 0},
                             [&]() -> std::vector<c10::IValue> { return {torch::unbind(x, 0)}; });
  REQUIRE(split.results.size() == 4);
  for (std::int32_t i = 0; i < 4; ++i)
    CHECK(split.results[static_cast<std::size_t>(i)].element == i);
  CHECK(n.tables.recording().refusal.empty());
  const Call& object = n.note("aten::relu", "", {x}, [&]() -> std::vector<c10::IValue> {
    return {c10::ivalue::Tuple::create({1})};
  });
  CHECK_FALSE(object.repeatable);
  CHECK_THAT(n.tables.recording().refusal, contains("aten::relu (node 1) returns an object"));
}

TEST_CASE("what goes to the host is kept with the call", "[results]") {
  const Tensor x = torch::ones({});
  Noting n;
  n.operands.add_known(x, Origin::input, 0, Role::input, "x");
  const Call& call = n.note("aten::_local_scalar_dense", "", {x},
                            [&]() -> std::vector<c10::IValue> { return {2.5}; });
  REQUIRE(call.extras->returned.size() == 1);
  CHECK(call.extras->returned[0].index == 0);
  CHECK(call.extras->returned[0].value.toDouble() == 2.5);
}
