// When two steps made the same sequence of ops.

#include <functional>
#include <span>

#include <reprise_test/lineages.hpp>

#include <reprise/libtorch/guided/planned_sequence.hpp>

using namespace reprise;
using namespace reprise::guided;
using namespace reprise::testing;

namespace {

/// The list of a recorded call, to be changed.
template <class Item>
Item& item(std::span<const Item> list, std::size_t i) {
  return const_cast<Item&>(list[i]);
}
/// Another geometry for the recording's value number i.
void change_geometry(Recording& r, std::size_t i, const std::function<void(Geometry&)>& change) {
  Geometry g = *r.values[i].geometry;
  change(g);
  r.values[i].geometry = r.geometry_of(g);
}

/// x, h = relu(x), y = relu(h), and what `change` makes of it.
Recording sequence(const std::function<void(Recording&)>& change = [](Recording&) {}) {
  HandMadeStep step;
  const auto x = step.input();
  static_cast<void>(step.call({step.call({x})}));
  change(step.recording());
  return std::move(step.recording());
}
/// The same as far as its first `calls` calls.
Recording beginning(std::size_t calls) {
  return sequence([&](Recording& r) {
    r.calls.resize(calls);
    r.values.resize(calls + 1);
  });
}

}  // namespace

TEST_CASE("equal sequences are equal, whatever numbers their ops were given",
          "[planned_sequence]") {
  CHECK(same_sequence(sequence(), sequence()));
  CHECK(same_sequence(sequence(), sequence([](Recording& r) {
                        static const c10::IValue three[]{3};
                        r.calls[0].args = three;
                        r.calls[0].time = {7};
                        // where in a larger tensor a batch lies
                        change_geometry(r, 0, [](Geometry& g) { g.offset = 5; });
                      })));
}

TEST_CASE("another op, operand, shape, version or permission makes another sequence",
          "[planned_sequence]") {
  const auto differs = [](const std::function<void(Recording&)>& change) {
    return !same_sequence(sequence(), sequence(change));
  };
  static const OpFacts other{};
  CHECK(differs([](Recording& r) { r.calls[1].facts = &other; }));
  CHECK(differs([](Recording& r) { r.calls[1].kind = CallKind::release; }));
  CHECK(differs([](Recording& r) { item(r.calls[1].reads, 0).value = ValueId{0}; }));
  CHECK(differs([](Recording& r) { item(r.calls[1].reads, 0).arg = 1; }));
  CHECK(differs([](Recording& r) { item(r.calls[1].reads, 0).element = 0; }));
  CHECK(differs([](Recording& r) { r.calls[1].reads = {}; }));
  CHECK(differs([](Recording& r) { r.calls[1].results = {}; }));
  static const ValueId updated[]{ValueId{0}};
  CHECK(differs([](Recording& r) { r.calls[1].updates = updated; }));
  CHECK(differs([](Recording& r) { r.calls[1].repeatable = false; }));
  CHECK(differs([](Recording& r) { r.calls.pop_back(); }));
  CHECK(differs([](Recording& r) { r.values[2].bytes = Bytes{1}; }));
  CHECK(differs([](Recording& r) { r.values[2].alias_of = ValueId{1}; }));
  CHECK(differs([](Recording& r) { r.values[2].overwrites = ValueId{1}; }));
  CHECK(differs([](Recording& r) { r.values[2].producer = NodeId{0}; }));
  CHECK(differs([](Recording& r) {
    change_geometry(r, 2, [](Geometry& g) { g.sizes = {512, 2}; });
  }));
  CHECK(differs([](Recording& r) { change_geometry(r, 2, [](Geometry& g) { g.strides = {2}; }); }));
  CHECK(differs(
      [](Recording& r) { change_geometry(r, 2, [](Geometry& g) { g.dtype = torch::kInt; }); }));
}

TEST_CASE("a step may become what it begins like, if its next op is the known one",
          "[planned_sequence]") {
  const Recording known = sequence();
  CHECK(may_become(known, beginning(0)));
  CHECK(may_become(known, beginning(1)));
  CHECK(may_become(known, sequence()));
  CHECK_FALSE(may_become(beginning(1), known));
  CHECK_FALSE(may_become(known, sequence([](Recording& r) { r.values[1].bytes = Bytes{1}; })));

  Call next = known.calls[1];
  CHECK(may_become(known, beginning(1), next));
  CHECK_FALSE(may_become(known, sequence(), next));  // there is nothing more
  ArgumentSlot other = next.reads[0];
  other.value = ValueId{0};
  next.reads = {&other, 1};
  CHECK_FALSE(may_become(known, beginning(1), next));
}
