// Values by the storages that they lie in.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/recording_tables.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::residency;
using namespace reprise::tensors;
using namespace reprise::literals;
using torch::Tensor;

namespace {

ValueId add_parameter(RecordingTables& tables, const Tensor& tensor) {
  return tables.add_persistent(tensor, Origin::parameter, 0, Role::parameter, "weight");
}

}  // namespace

TEST_CASE("a view shows a version, a write makes a new one, and the owner stays") {
  RecordingTables tables;
  const Tensor t = torch::ones({4, 2});
  const StorageIndex s = tables.records().add(t.storage());
  RecordedValue made;
  made.geometry = tables.recording().geometry_of(t);
  made.bytes = 32_B;
  const ValueId owner = tables.add_owner(std::move(made), s);
  RecordedValue view;
  view.geometry = tables.recording().geometry_of(t.t());
  view.alias_of = owner;
  const ValueId shown = tables.add_value(std::move(view), s);
  tables.contents(s).views.push_back(shown);
  CHECK(tables.version_of(shown) == owner);
  CHECK(tables.owner_of(shown) == owner);
  CHECK(tables.latest_version(s) == owner);
  CHECK(tables.view_of(s, t) == owner);
  CHECK(tables.view_of(s, t.t()) == shown);
  CHECK_FALSE(tables.view_of(s, t.select(0, 0)).valid());

  RecordedValue written;
  written.overwrites = owner;
  const ValueId next = tables.add_value(std::move(written), s);
  tables.contents(s).views.assign(1, next);
  CHECK(tables.version_of(next) == next);
  CHECK(tables.owner_of(next) == owner);
  CHECK(tables.latest_version(s) == next);
  CHECK(tables.storage_of(next) == s);
  CHECK(tables.storage_of(t.t()) == s);
  CHECK(tables.storage_of(torch::ones({1})) == no_storage);
  CHECK(tables.contents(s).bytes == 32_B);
}

TEST_CASE("what was there before the step is known as such") {
  const Tensor before = torch::ones({8});
  RecordingTables tables;
  const Tensor made = torch::ones({8});
  CHECK(tables.is_from_before(before));
  CHECK_FALSE(tables.is_from_before(made));
  const ValueId v = add_parameter(tables, before);
  CHECK(tables.was_there_before(v));
  CHECK(tables.is_persistent(tables.storage_of(v)));
  CHECK(tables.value(v).bytes == 32_B);
  CHECK(tables.value(v).name() == "weight");
  CHECK(RecordingTables::bytes_of(before.storage()) == 32_B);
  std::vector<float> mine(8);
  CHECK(RecordingTables::is_foreign(torch::from_blob(mine.data(), {8}).storage()));
  CHECK_FALSE(RecordingTables::is_foreign(before.storage()));
}

TEST_CASE("a view from before a write that is read after it becomes a call of its own") {
  RecordingTables tables;
  const Tensor t = torch::ones({4, 2});
  const ValueId owner = add_parameter(tables, t);
  const StorageIndex s = tables.storage_of(owner);
  const ValueId alias = tables.add_alias(s, t.t());
  REQUIRE(tables.calls_seen() == 1);
  const Call& call = tables.recording().calls[0];
  CHECK(call.kind == CallKind::alias);
  CHECK(call.path == "weight");
  REQUIRE(call.reads.size() == 1);
  CHECK(call.reads[0].value == owner);
  REQUIRE(call.results.size() == 1);
  CHECK(call.results[0].value == alias);
  CHECK(tables.value(alias).producer == NodeId{0});
  CHECK(tables.view_of(s, t.t()) == alias);
  CHECK(tables.next_node() == NodeId{1});
}

TEST_CASE("the first reason for a refusal stays, and a call can be forbidden later") {
  RecordingTables tables;
  tables.recording().calls.emplace_back();
  tables.refuse("first");
  tables.refuse("second");
  CHECK(tables.recording().refusal == "first");
  tables.do_not_plan("third");
  tables.do_not_plan("fourth");
  CHECK(tables.recording().unplannable == "third");
  tables.forbid_again(NodeId{0});
  CHECK_FALSE(tables.recording().calls[0].repeatable);
  CHECK(tables.at_next_node("aten::mm") == "aten::mm (node 1)");
}

TEST_CASE("a phase is the user's, and tells the role of what is made in it") {
  RecordingTables tables;
  CHECK(tables.current_phase() == Phase::forward);
  tables.enter(Phase::optimizer);
  CHECK(tables.user_phase() == Phase::optimizer);
  CHECK(RecordingTables::role_in(Phase::forward) == Role::activation);
  CHECK(RecordingTables::role_in(Phase::backward) == Role::gradient);
  CHECK(RecordingTables::role_in(Phase::optimizer) == Role::other);
}
