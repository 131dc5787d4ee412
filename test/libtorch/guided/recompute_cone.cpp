// Which calls must run to recompute some values.

#include <reprise_test/lineages.hpp>

#include <reprise/libtorch/guided/recompute_cone.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::residency;
using namespace reprise::testing;

TEST_CASE("a cone has each call once, in the order in which they ran", "[recompute_cone]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), r = step.call({h}), q = step.call({h}), y = step.call({r, q});
  for (const auto& value : {h, r, q, y}) step.evict(value);
  ScopedPins pins(step.tables.records());
  const RecordedCone cone = step.cone({y.value}, pins);
  CHECK((cone.calls == std::vector<NodeId>{h.node, r.node, q.node, y.node}));
  CHECK(cone.reads.at(h.value.index) == 2);
  CHECK(cone.reads.at(x.value.index) == 1);
  CHECK(cone.reads.at(r.value.index) == 1);
}

TEST_CASE("a cone ends at what is available", "[recompute_cone]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), r = step.call({h}), y = step.call({r});
  step.evict(h);
  step.evict(y);
  ScopedPins pins(step.tables.records());
  CHECK((step.cone({y.value}, pins).calls == std::vector<NodeId>{y.node}));
  CHECK(step.cone({r.value}, pins).calls.empty());
}

TEST_CASE("what only Reprise keeps is pinned for as long as the cone is needed",
          "[recompute_cone]") {
  HandMadeStep step;
  const auto x = step.input();
  auto h = step.call({x}), y = step.call({h});
  step.evict(y);
  step.state(h) = ResidencyState::orphaned;
  {
    ScopedPins pins(step.tables.records());
    static_cast<void>(step.cone({y.value}, pins));
    CHECK(step.use(h).pin_count == 1);
    CHECK(step.use(x).pin_count == 0);
  }
  CHECK(step.use(h).pin_count == 0);
}

TEST_CASE("what cannot be recomputed is an error that says why", "[recompute_cone]") {
  HandMadeStep step;
  const auto x = step.input();
  const auto h = step.call({x}), y = step.call({h});
  step.evict(h);
  step.evict(y);
  ScopedPins pins(step.tables.records());
  step.lineage.note_update(x.value, NodeId{5});
  CHECK_THROWS_WITH(step.cone({y.value}, pins),
                    contains("what node 0 (relu) made cannot be recomputed: 'x' has been "
                             "overwritten since"));
  step.recording().calls[h.node.index].repeatable = false;
  CHECK_THROWS_WITH(step.cone({y.value}, pins),
                    contains("what node 0 (relu) made cannot be recomputed"));
}
