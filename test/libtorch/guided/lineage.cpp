// What can be recomputed from what.

#include <reprise_test/lineages.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::residency;
using namespace reprise::testing;

TEST_CASE("what a call has made is rematerializable if the call may run again", "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), drawn = step.call({x}, false);
  CHECK(step.lineage.rematerializable(h.value));
  CHECK(step.lineage.reproducible(h.value));
  CHECK_FALSE(step.lineage.rematerializable(drawn.value));
  CHECK_FALSE(step.lineage.reproducible(drawn.value));
  CHECK_FALSE(step.lineage.rematerializable(x.value));
  CHECK((step.lineage.readers_of(x.value) == Lineage::Readers{h.node, drawn.node}));
}

TEST_CASE("a version that was written over one that cannot be recomputed cannot either",
          "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto drawn = step.call({x}, false), h = step.call({x});
  CHECK_FALSE(step.lineage.rematerializable(step.overwrite(drawn).value));
  CHECK(step.lineage.rematerializable(step.overwrite(h).value));
}

TEST_CASE("a value is available where its bytes are, and no later version lies over them",
          "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x});
  CHECK(step.lineage.is_available(x.value));
  CHECK(step.lineage.is_available(h.value));
  for (const ResidencyState state : {ResidencyState::spilled, ResidencyState::orphaned}) {
    step.state(h) = state;
    CHECK(step.lineage.is_available(h.value));
  }
  for (const ResidencyState state : {ResidencyState::evicted, ResidencyState::dead}) {
    step.state(h) = state;
    CHECK_FALSE(step.lineage.is_available(h.value));
  }
  step.state(h) = ResidencyState::resident;
  const auto later = step.overwrite(h);
  CHECK_FALSE(step.lineage.is_available(h.value));
  CHECK(step.lineage.is_available(later.value));
  step.use(h).corrupt = true;
  CHECK_FALSE(step.lineage.is_available(later.value));
}

TEST_CASE("what is evicted and hangs on a source is told apart from what lies in between",
          "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), r = step.call({h}), far = step.call({r}), kept = step.call({x}),
             behind = step.call({kept});
  CHECK_FALSE(step.lineage.has_evicted_dependants(x.value));
  step.evict(r);
  step.evict(behind);
  // h and kept are there: nothing hangs on x itself
  CHECK_FALSE(step.lineage.has_evicted_dependants(x.value));
  CHECK(step.lineage.has_evicted_dependants(h.value));
  CHECK((step.lineage.dependants_of(h.value).evicted == std::vector<ValueId>{r.value}));
  step.state(h) = ResidencyState::dead;  // its tensors have gone: now x is what r is made from
  CHECK((step.lineage.dependants_of(x.value).evicted == std::vector<ValueId>{r.value}));
  static_cast<void>(far);
}

TEST_CASE(
    "a value that became a source is no longer recomputed, and the user's is not reproducible",
    "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), r = step.call({x});
  step.lineage.end_rematerializing(h.value);
  CHECK_FALSE(step.lineage.rematerializable(h.value));
  CHECK(step.lineage.reproducible(h.value));
  step.lineage.end_reproducing(r.value);
  CHECK_FALSE(step.lineage.rematerializable(r.value));
  CHECK_FALSE(step.lineage.reproducible(r.value));
}

TEST_CASE("the deaths of what was made from an overwritten source are recorded", "[lineage]") {
  HandMadeStep step;
  const auto x = step.input(), z = step.input();
  const auto h = step.call({x}), r = step.call({h}), other = step.call({z});
  step.lineage.record_deaths_of_dependants(x.value);
  CHECK(step.use(h).death_is_recorded);
  CHECK(step.use(r).death_is_recorded);
  CHECK_FALSE(step.use(other).death_is_recorded);
  CHECK_FALSE(step.lineage.reproducible(r.value));
  CHECK(step.lineage.rematerializable(r.value));
}

TEST_CASE("an update is one for the calls before it", "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  CHECK_FALSE(step.lineage.updated_after(x.value, NodeId{0}));
  step.lineage.note_update(x.value, NodeId{3});
  CHECK(step.lineage.updated_after(x.value, NodeId{2}));
  CHECK_FALSE(step.lineage.updated_after(x.value, NodeId{3}));
}

TEST_CASE(
    "a storage costs the calls that are missing, those that wait for it, and something itself",
    "[lineage]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), r = step.call({h}), y = step.call({r});
  const std::vector<double> times{5, 7, 11};
  for (std::size_t i = 0; i < 3; ++i) step.recording().calls[i].time = {times[i]};
  const auto cost = [&](const auto& value, bool only_spills = false) {
    return step.lineage.cost_of(step.storage(value), only_spills).count;
  };
  CHECK(cost(r) == 20 + 7);
  step.evict(h);
  CHECK(cost(r) == 20 + 7 + 5);
  step.evict(y);
  CHECK(cost(r) == 20 + 7 + 5 + 11);
  // out and back at 1 GB/s: 100 us each way, and its bytes
  const double bytes = static_cast<double>(step.residency.bytes(step.storage(r)).count);
  CHECK(cost(r, true) == Approx(2 * (100 + bytes / 1000)));
  CHECK(cost(x) == Approx(2 * (100 + bytes / 1000)));
}
