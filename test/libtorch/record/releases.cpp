// When user code lets go of what no op reads any more.

#include <torch/torch.h>

#include <reprise_test/catch.hpp>

#include <reprise/libtorch/record/releases.hpp>

using namespace reprise;
using namespace reprise::recording;
using namespace reprise::residency;
using namespace reprise::tensors;
using namespace reprise::literals;
using torch::Tensor;

namespace {

struct Tables : RecordingTables {
  Tensor weight = torch::ones({4}), activation = torch::ones({4});
  ValueId persistent = add_persistent(weight, Origin::parameter, 0, Role::parameter, "weight");
  StorageIndex made = records().add(activation.storage());
  ValueId owner = add_owner({.geometry = recording().geometry_of(activation), .bytes = 16_B}, made);
};

}  // namespace

TEST_CASE(
    "a release is a call that reads the storage's last version, and stands where it happened") {
  Tables tables;
  Releases releases(tables);
  const ValueId written = tables.add_value({.overwrites = tables.owner}, tables.made);
  tables.contents(tables.made).views.assign(1, written);
  releases.note(tables.made);
  CHECK(tables.calls_seen() == 0);  // until the next op
  releases.add_calls();
  releases.add_calls();
  REQUIRE(tables.calls_seen() == 1);
  const Call& call = tables.recording().calls[0];
  CHECK(call.kind == CallKind::release);
  CHECK(call.reads[0].value == written);
  CHECK_FALSE(call.repeatable);
}

TEST_CASE("what the op wrote in which the storage died is what the release reads") {
  Tables tables;
  Releases releases(tables);
  releases.note(tables.made);
  const ValueId written = tables.add_value({.overwrites = tables.owner}, tables.made);
  tables.contents(tables.made).views.assign(1, written);
  releases.add_calls();
  CHECK(tables.recording().calls[0].reads[0].value == written);
}

TEST_CASE("something from before the step that is let go is there at the start only") {
  Tables tables;
  Releases releases(tables);
  releases.note(tables.storage_of(tables.persistent));
  releases.add_calls();
  CHECK_FALSE(tables.value(tables.persistent).persistent);
  CHECK(tables.value(tables.persistent).initial);
  REQUIRE(tables.calls_seen() == 1);
  CHECK(tables.recording().calls[0].reads[0].value == tables.persistent);
}

TEST_CASE("what an op has updated stays persistent to the end") {
  Tables tables;
  Releases releases(tables);
  CallDraft call;
  call.add_update(tables.persistent);
  static_cast<void>(tables.recording().add(std::move(call)));
  releases.note(tables.storage_of(tables.persistent));
  releases.add_calls();
  CHECK(tables.value(tables.persistent).persistent);
  CHECK(tables.calls_seen() == 1);
}

TEST_CASE("memory that no op has read lowers the base, or is a value that is released") {
  Tables tables;
  Releases releases(tables);
  const Bytes base = tables.base();
  releases.note(1_KiB);
  CHECK(tables.base() == base - 1_KiB);
  tables.recording().calls.emplace_back();
  releases.note(2_KiB);
  releases.add_calls();
  CHECK(tables.base() == base - 1_KiB);
  REQUIRE(tables.calls_seen() == 2);
  const RecordedValue& value = tables.value(tables.recording().calls[1].reads[0].value);
  CHECK(value.bytes == 2_KiB);
  CHECK(value.initial);
  CHECK(value.name() == "released.0");
}
