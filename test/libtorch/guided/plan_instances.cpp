// The storage instances of a plan, while it is followed.

#include <reprise_test/lineages.hpp>

#include <reprise/libtorch/guided/plan_instances.hpp>
#include <reprise/libtorch/record/graph_of.hpp>

using namespace reprise;
using namespace reprise::cpu;
using namespace reprise::guided;
using namespace reprise::planning;
using namespace reprise::residency;
using namespace reprise::testing;
using namespace reprise::literals;
using torch::Tensor;

namespace {

/// h is evicted after r was made from it, and recomputed before the last call.
struct Followed : HandMadeStep {
  Made x = input(), h = call({x}), r = call({h}), q = call({r}), last = call({h, q});
  StepGraph graph = graph_of(recording(), "toy");
  FollowedPlan plan{graph, {h.node, r.node, q.node, h.node, last.node}};
  PlanInstances instances{tables, residency};
  Bytes live = device_memory().live();

  Followed() { instances.reset(&plan); }
  /// The `which`-th instance of what a call has made.
  [[nodiscard]] std::uint32_t instance_of(const Made& made, int which = 0) const {
    for (const ValueInstance& v : plan.resolution().values)
      if (v.value == made.value && which-- == 0) return v.storage;
    FAIL("there is no such instance");
    return 0;
  }
  /// A copy of h, as the plan would recompute it, while the user's h is evicted.
  Tensor copy_of_h() {
    residency.evict(storage(h), "h");
    Tensor copy = torch::full({1024}, 3.0F);
    instances.add_copy(instance_of(h, 1), copy.storage());
    instances.set_latest(instance_of(h, 1), h.value);
    return copy;
  }
};

}  // namespace

TEST_CASE("what a plan still needs lies in the user's storages when it is entered",
          "[plan_instances]") {
  Followed f;
  REQUIRE(f.instances.size() == f.plan.resolution().storages.size());
  f.instances.place(f.graph, 2);  // before q: h is not needed any more, as it is
  CHECK(f.instances.instance_in(f.storage(f.r)) == f.instance_of(f.r));
  CHECK(f.instances.needs(f.storage(f.r)));
  CHECK(f.instances.instance_in(f.storage(f.h)) == no_index);
  CHECK(f.instances.instance_in(f.storage(f.q)) == no_index);  // made later
  f.instances.place(f.graph, 1);
  CHECK(f.instances.instance_in(f.storage(f.h)) == f.instance_of(f.h));
  f.instances.leave_user(f.instance_of(f.h));
  CHECK(f.instances.instance_in(f.storage(f.h)) == no_index);
  f.instances.leave_all();
  CHECK(f.instances.instance_in(f.storage(f.r)) == no_index);
}

TEST_CASE("a copy's bytes go under the user's tensor", "[plan_instances]") {
  Followed f;
  const Bytes existing = device_memory().existing();
  const StorageIndex s = f.storage(f.h);
  CHECK_FALSE(f.instances.holds(f.h.value));
  const void* bytes = nullptr;
  {
    const Tensor copy = f.copy_of_h();
    bytes = copy.const_data_ptr();
  }
  CHECK(f.instances.holds(f.h.value));
  CHECK(f.instances.any_copy([&](ValueId v) { return v == f.h.value; }));
  CHECK(device_memory().live() == f.live);
  CHECK(device_memory().existing() == existing);
  CHECK(f.instances.attach(s));
  CHECK(f.residency.state(s) == ResidencyState::resident);
  CHECK(f.tensors[1].const_data_ptr() == bytes);
  CHECK(f.instances.instance_in(s) == f.instance_of(f.h, 1));
  CHECK_FALSE(f.instances.holds(f.h.value));
  CHECK_FALSE(f.instances.attach(s));  // there is no other
  CHECK(device_memory().live() == f.live);
  CHECK(device_memory().existing() == existing);
}

TEST_CASE("a copy that is being read is not taken from under its reader", "[plan_instances]") {
  Followed f;
  static_cast<void>(f.copy_of_h());
  f.instances[f.instance_of(f.h, 1)].operand = true;
  CHECK_FALSE(f.instances.attach(f.storage(f.h)));
  f.instances[f.instance_of(f.h, 1)].operand = false;
  CHECK(f.instances.attach(f.storage(f.h)));
}

TEST_CASE("a copy that is released is gone, and its bytes with it", "[plan_instances]") {
  Followed f;
  static_cast<void>(f.copy_of_h());
  f.instances.release_copy(f.instance_of(f.h, 1));
  CHECK_FALSE(f.instances.holds(f.h.value));
  CHECK(device_memory().live() == f.live - 4_KiB);
  CHECK(f.residency.state(f.storage(f.h)) == ResidencyState::evicted);
}

TEST_CASE("a copy of a later version is found by that version alone", "[plan_instances]") {
  Followed f;
  static_cast<void>(f.copy_of_h());
  f.instances.set_latest(f.instance_of(f.h, 1), f.r.value);
  CHECK_FALSE(f.instances.any_copy([&](ValueId v) { return v == f.h.value; }));
  CHECK(f.instances.any_copy([&](ValueId v) { return v == f.r.value; }));
  CHECK_FALSE(f.instances.attach(f.storage(f.h)));
}

TEST_CASE("a copy outlives the user's tensor as its orphan", "[plan_instances]") {
  Followed f;
  const StorageIndex s = f.storage(f.h);
  const void* bytes = nullptr;
  {
    const Tensor copy = f.copy_of_h();
    bytes = copy.const_data_ptr();
  }
  f.tensors[1].reset();
  f.residency.note_empty_death(s, false);
  CHECK(f.instances.holds(f.h.value));
  f.instances.make_orphan(f.instance_of(f.h, 1), s);
  CHECK(f.residency.state(s) == ResidencyState::orphaned);
  CHECK(f.residency.memory_of(s).data() == bytes);
  CHECK_FALSE(f.instances.any_copy([](ValueId) { return true; }));
}
