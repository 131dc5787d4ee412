#include <reprise/rewrite/rewriting.hpp>

#include <reprise_test/toy.hpp>

namespace {

std::vector<SlotId> slots(std::initializer_list<std::size_t> list) {
  std::vector<SlotId> ids;
  for (std::size_t i : list) ids.push_back(SlotId{i});
  return ids;
}

std::vector<AllocationId> allocations(std::initializer_list<std::size_t> list) {
  std::vector<AllocationId> ids;
  for (std::size_t i : list) ids.push_back(AllocationId{i});
  return ids;
}

const SlotId none{};

}  // namespace

TEST_CASE(
    "a clone gets slots and an allocation of its own, and leaves alone what its node updates") {
  // Slots: 0 x, 1 mean, 2 h, 3 h.relu, 4 h.flat, 5 wide, 6 loss, 7 h#1, 8 h.relu#1, 9 h.flat#1, 10
  // g.
  const Rewriting program = rewrite(toy_graph(), toy_schedule());
  REQUIRE(program.steps.size() == 9);
  CHECK(program.steps[0] == ProgramStep{.node = NodeId{0},
                                        .clone = 0,
                                        .effects = Effects::note_and_perform,
                                        .reads = slots({0}),
                                        .writes = slots({2}),
                                        .targets = {none},
                                        .allocates = allocations({2})});
  CHECK(program.steps[2] == ProgramStep{.node = NodeId{2},
                                        .clone = 0,
                                        .effects = Effects::none,
                                        .reads = slots({3}),
                                        .writes = slots({4}),
                                        .targets = slots({3}),
                                        .allocates = {},
                                        .frees = allocations({2}),
                                        .drops = slots({2, 3, 4})});
  CHECK(program.steps[5] == ProgramStep{.node = NodeId{0},
                                        .clone = 1,
                                        .effects = Effects::leave_out,
                                        .reads = slots({0}),
                                        .writes = slots({7}),
                                        .targets = {none},
                                        .allocates = allocations({5})});
  CHECK(program.steps[6].reads == slots({7}));
  CHECK(program.steps[8] == ProgramStep{.node = NodeId{5},
                                        .clone = 0,
                                        .effects = Effects::none,
                                        .reads = slots({0, 9}),
                                        .writes = slots({10}),
                                        .targets = {none},
                                        .allocates = allocations({6}),
                                        .frees = allocations({5}),
                                        .drops = slots({7, 8, 9})});
  CHECK(program.slots[8] == Slot{ValueId{3}, AllocationId{5}});
  CHECK(program.allocations[0] == Allocation{StorageId{0}, 4096_B, true, true});
  CHECK(program.allocations[5] == Allocation{StorageId{2}, 8192_B, false, false});
  CHECK(program.at_start == slots({0, 1}));
  CHECK(program.outputs == slots({6, 10}));
  CHECK(program.peak == 20548_B);
  CHECK(schedule_of(program) == toy_schedule());
}

TEST_CASE("in the graph's own order nothing is a clone, and updates are performed without a note") {
  const Rewriting program = rewrite(toy_graph(), own_order(toy_graph()));
  for (const ProgramStep& step : program.steps) CHECK(step.clone == 0);
  CHECK(program.steps[0].effects == Effects::perform);
  CHECK(program.steps[1].effects == Effects::none);
  CHECK(program.peak == 28740_B);
}

TEST_CASE(
    "an initial value is freed after its last use, or after the first step where nobody uses it") {
  GraphBuilder b;
  const ValueId used = b.add_value({.id = 0, .bytes = 8_B, .initial = true});
  b.add_value({.id = 1, .bytes = 16_B, .initial = true});
  const ValueId a = b.add_value({.id = 2, .bytes = 1_B}), c = b.add_value({.id = 3, .bytes = 2_B});
  b.add_node({.id = 0}, {}, {a});
  b.add_node({.id = 1}, {used}, {c});
  b.add_output(a);
  b.add_output(c);
  const Rewriting program = rewrite(std::move(b).build(), nodes({0, 1}));
  CHECK(program.allocations[0] == Allocation{StorageId{0}, 8_B, true, false});
  CHECK(program.steps[0].frees == allocations({1}));
  CHECK(program.steps[1].frees == allocations({0}));
  CHECK(program.steps[1].drops == slots({0}));
  CHECK(program.outputs == slots({2, 3}));
}

TEST_CASE("an old instance lives on beside the new one while something in it is used") {
  // v is a view of the first a; a runs again for the in-place w, which takes over the new one.
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 8_B}), v = b.add_value({.id = 1, .alias_of = a}),
                w = b.add_value({.id = 2, .overwrites = a}),
                z = b.add_value({.id = 3, .bytes = 1_B});
  b.add_node({.id = 0}, {}, {a});
  b.add_node({.id = 1}, {a}, {v});
  b.add_node({.id = 2}, {v}, {z});
  b.add_node({.id = 3}, {a}, {w});
  b.add_output(z);
  b.add_output(w);
  const Rewriting program = rewrite(std::move(b).build(), nodes({0, 1, 0, 3, 2}));
  CHECK(program.steps[2].clone == 1);
  CHECK(program.steps[3].targets == program.steps[2].writes);
  CHECK(program.steps[3].frees.empty());
  CHECK(program.steps[4].reads == program.steps[1].writes);
  CHECK(program.steps[4].frees == program.steps[0].allocates);
  CHECK(program.peak == 17_B);
}

TEST_CASE("a schedule that breaks a rule is refused") {
  CHECK(refusal([] {
          return rewrite(toy_graph(), nodes({0, 1, 2, 3, 4}));
        }) == "bad schedule: step 5: node 5 (grad) never runs");
  CHECK(refusal([] {
          return rewrite(toy_graph(), nodes({0, 1, 1, 2, 3, 4, 5}));
        }) == "bad schedule: step 2: node 1 (relu): value 2 (h) is read and does not exist");
}
