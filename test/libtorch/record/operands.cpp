// Which values an op reads.

#include <deque>
#include <vector>

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/operands.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::residency;
using namespace reprise::tensors;
using torch::Tensor;

namespace {

void unheard(c10::StorageImpl*) {}

struct Reading {
  RecordingTables tables{};
  WrappedNumbers numbers{tables};
  UserAccess access{tables, nullptr, unheard};
  OperandReader operands{tables, numbers, access};
  std::deque<CallDraft> drafts{};  ///< the calls' lists lie in them

  ~Reading() { access.unwatch_all(); }
  ValueId add(const Tensor& t, Origin origin = Origin::input) {
    operands.add_known(t, origin, 0, Role::input, "x");
    return tables.contents(tables.storage_of(t)).owner;
  }
  ValueId read(const Tensor& t) { return operands.read(t, "aten::op"); }
  const Call& call(const char* name, const char* overload,
                   const std::vector<c10::IValue>& arguments) {
    CallDraft& call = drafts.emplace_back();
    call.facts = &facts_of(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload));
    call.op = &*call.facts->handle;
    operands.read_arguments(call, arguments);
    return call;
  }
  [[nodiscard]] const std::string& refusal() const { return tables.recording().refusal; }
};

}  // namespace

TEST_CASE("a known tensor is its value, and one that shares its storage a view of it",
          "[operands]") {
  const Tensor x = torch::ones({4, 2}), other = torch::ones({4, 2});
  Reading r;
  const ValueId v = r.add(x);
  CHECK(r.read(x) == v);
  CHECK(r.add(x.t()) == v);
  CHECK(r.tables.calls_seen() == 1);  // the view, as an alias call
  const ValueId view = r.read(x.t());
  CHECK(r.tables.value(view).alias_of == v);
  CHECK(r.tables.calls_seen() == 1);
  CHECK(r.refusal().empty());
  CHECK(r.read(other) != v);
}

TEST_CASE("a tensor from before the step that nobody told of is captured", "[operands]") {
  const Tensor x = torch::ones({4}), y = torch::ones({4}), state = torch::ones({4});
  Reading r;
  CHECK(r.tables.value(r.read(x)).name() == "captured.0");
  CHECK(r.tables.value(r.read(y)).name() == "captured.1");
  CHECK(r.tables.value(r.read(x)).name() == "captured.0");
  r.tables.enter(Phase::optimizer);
  const RecordedValue& value = r.tables.value(r.read(state));
  CHECK(value.name() == "optimizer.2");
  CHECK(value.role == Role::optimizer_state);
  CHECK(value.origin == Origin::captured);
  CHECK(value.outside->captured.has_value());
}

TEST_CASE("what was made behind the dispatcher, or is no plain memory, refuses the step",
          "[operands]") {
  Reading unseen;
  const Tensor made = torch::ones({4});
  CHECK(unseen.read(made).valid());
  CHECK_THAT(unseen.refusal(), contains("was made in the step behind the dispatcher"));
  Reading sparse;
  CHECK_FALSE(sparse.read(made.to_sparse()).valid());
  CHECK_THAT(sparse.refusal(),
             contains("reads a tensor that is not plain strided memory (Sparse)"));
}

TEST_CASE(
    "a view of a parameter that was made outside refuses the step, and one of an activation "
    "becomes an alias call",
    "[operands]") {
  const Tensor x = torch::ones({4, 2});
  Reading outside;
  static_cast<void>(outside.add(x));
  static_cast<void>(outside.read(x.select(0, 1)));
  CHECK_THAT(outside.refusal(), contains("shares memory with 'x', but is not it"));

  Reading inside;
  const Tensor h = torch::ones({4, 2});
  const StorageIndex s = inside.tables.records().add(h.storage());
  const ValueId v =
      inside.tables.add_owner({.geometry = inside.tables.recording().geometry_of(h)}, s);
  CHECK(inside.tables.value(inside.read(h.select(0, 1))).alias_of == v);
  CHECK(inside.refusal().empty());
  CHECK(inside.tables.calls_seen() == 1);
}

TEST_CASE("another tensor that lies as a parameter does is noted as an alias of it", "[operands]") {
  const Tensor weight = torch::ones({4}), alias = weight.detach();
  Reading r;
  static_cast<void>(r.add(weight, Origin::parameter));
  static_cast<void>(r.read(weight));
  CHECK_FALSE(r.tables.recording().reads_aliases);
  static_cast<void>(r.read(alias));
  CHECK(r.tables.recording().reads_aliases);
}

TEST_CASE("tensors are left out of a call's arguments, and stand among its reads", "[operands]") {
  const Tensor x = torch::ones({4}), y = torch::ones({4});
  Reading r;
  const ValueId v = r.add(x), w = r.add(y);
  const Call add = r.call("aten::add", "Tensor", {x, y, 2});
  REQUIRE(add.reads.size() == 2);
  CHECK(add.reads[0].arg == 0);
  CHECK(add.reads[0].element == -1);
  CHECK(add.reads[0].value == v);
  CHECK(add.reads[1].value == w);
  CHECK(add.args[0].isNone());
  CHECK(add.args[2].toInt() == 2);
  CHECK(add.repeatable);

  const Call cat = r.call("aten::cat", "", {std::vector<Tensor>{y, x}, 0});
  REQUIRE(cat.reads.size() == 2);
  CHECK(cat.reads[0].element == 0);
  CHECK(cat.reads[0].value == w);
  CHECK(cat.reads[1].element == 1);
  CHECK(cat.reads[1].value == v);
  REQUIRE(cat.args[0].isTensorList());
  CHECK(cat.args[0].toTensorList().size() == 2);
  CHECK_FALSE(cat.args[0].toTensorList().get(0).defined());
}

TEST_CASE("a generator of the user's own refuses the call", "[operands]") {
  const Tensor x = torch::ones({4});
  Reading r;
  static_cast<void>(r.add(x));
  const at::Generator own = at::detail::createCPUGenerator(7);
  const Call drawn = r.call("aten::bernoulli", "", {x, own});
  CHECK_FALSE(drawn.repeatable);
  CHECK_THAT(r.refusal(), contains("draws from a generator of the user's own"));
  Reading plain;
  static_cast<void>(plain.add(x));
  CHECK(plain.call("aten::bernoulli", "", {x, c10::IValue()}).repeatable);
}

TEST_CASE("memory of the user's own is read once, if recomputation from it is forbidden",
          "[operands]") {
  std::vector<float> mine(4);
  const Tensor blob = torch::from_blob(mine.data(), {4});
  Reading r;
  CHECK(r.call("aten::relu", "", {blob}).repeatable);
  r.operands.forbid_recompute_from_foreign();
  CHECK_FALSE(r.call("aten::relu", "", {blob}).repeatable);
}

TEST_CASE("objects are things that may hold anything", "[operands]") {
  CHECK(is_object(c10::ivalue::Tuple::create({1, 2})));
  CHECK(is_object(torch::ones({1}).storage()));
  CHECK_FALSE(is_object(3));
  CHECK_FALSE(is_object(torch::ones({1})));
}
