#include <reprise/rewrite/lint.hpp>

#include <functional>

#include <reprise_test/random_schedules.hpp>
#include <reprise_test/toy.hpp>

using reprise::testing::Rng;
using reprise_test::parameter_step;

namespace {

// What lint says of the toy's rewriting after it was broken. Slots: 0 x, 1 mean, 2 h, 3 h.relu, 4
// h.flat, 5 wide, 6 loss, 7 h#1, 8 h.relu#1, 9 h.flat#1, 10 g. Allocations: 0 x, 1 mean, 2 h, 3
// wide, 4 loss, 5 h#1, 6 g.
std::string broken_toy(const std::function<void(Rewriting&)>& breaks) {
  Rewriting program = rewrite(toy_graph(), toy_schedule());
  breaks(program);
  return refusal([&] { lint(toy_graph(), program); });
}

// a; v = view(a); both overwrites a and makes u, a view of v.
StepGraph written_and_viewed() {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .name = "a", .bytes = 8_B}),
                v = b.add_value({.id = 1, .name = "v", .alias_of = a}),
                w = b.add_value({.id = 2, .name = "w", .overwrites = a}),
                u = b.add_value({.id = 3, .name = "u", .alias_of = v});
  b.add_node({.id = 0, .name = "make"}, {}, {a});
  b.add_node({.id = 1, .name = "view"}, {a}, {v});
  b.add_node({.id = 2, .name = "both"}, {a, v}, {w, u});
  b.add_output(w);
  b.add_output(u);
  return std::move(b).build();
}

}  // namespace

TEST_CASE("what rewrite() makes passes") {
  CHECK(broken_toy([](Rewriting&) {}) == "accepted");
  CHECK(refusal([] { lint(toy_graph(), rewrite(toy_graph(), own_order(toy_graph()))); }) ==
        "accepted");
  CHECK(refusal([] { lint(StepGraph{}, rewrite(StepGraph{}, {})); }) == "accepted");
}

TEST_CASE("lint: malformed") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].reads.pop_back(); }) ==
        "bad schedule: lint: malformed: step 8: node 5 (grad): "
        "does not read, write or target as many slots as the node has inputs and outputs");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].reads[0] = SlotId{11}; }) ==
        "bad schedule: lint: malformed: step 8: node 5 (grad): names a slot that there is not");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].writes[0] = SlotId{}; }) ==
        "bad schedule: lint: malformed: step 8: node 5 (grad): names a slot that there is not");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].targets[0] = SlotId{0}; }) ==
        "bad schedule: lint: malformed: step 8: node 5 (grad): value 7 (g): is no view and "
        "overwrites nothing, yet has a target");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].node = NodeId{6}; }) ==
        "bad schedule: lint: malformed: a step runs no node");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].frees[0] = AllocationId{7}; }) ==
        "bad schedule: lint: malformed: step 8: node 5 (grad): frees nothing that there is");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].allocates[0] = AllocationId{7}; }) ==
        "bad schedule: lint: malformed: step 8: node 5 (grad): allocates nothing that there is");
  CHECK(broken_toy([](Rewriting& p) { p.slots[0].allocation = AllocationId{}; }) ==
        "bad schedule: lint: malformed: a slot is of no value, or in no allocation");
  CHECK(broken_toy([](Rewriting& p) { p.allocations[6].storage = StorageId{6}; }) ==
        "bad schedule: lint: malformed: an allocation is of no storage");
  CHECK(broken_toy([](Rewriting& p) { p.at_start.pop_back(); }) ==
        "bad schedule: lint: malformed: value 1 (mean): has no slot at the start");
  CHECK(broken_toy([](Rewriting& p) { p.at_start.push_back(SlotId{1}); }) ==
        "bad schedule: lint: malformed: value 1 (mean): is there at the start twice");
  CHECK(broken_toy([](Rewriting& p) { p.at_start.push_back(SlotId{5}); }) ==
        "bad schedule: lint: malformed: value 5 (wide): is not there at the start");
  CHECK(
      broken_toy([](Rewriting& p) { p.outputs.pop_back(); }) ==
      "bad schedule: lint: malformed: not as many slots are handed over as the graph has outputs");
}

TEST_CASE("lint: runs_again") {
  Rewriting program = rewrite(toy_graph(), toy_schedule());
  GraphBuilder b;
  const StepGraph toy = toy_graph();
  for (const Value& v : toy.values()) b.add_value(v);
  for (std::size_t i = 0; i < toy.node_count(); ++i) {
    Node n = toy.node(NodeId{i});
    n.recomputable = i != 0;
    b.add_node(n, toy.inputs(NodeId{i}), toy.outputs(NodeId{i}), toy.updates(NodeId{i}));
  }
  for (ValueId v : toy.outputs()) b.add_output(v);
  const StepGraph once = std::move(b).build();
  CHECK(
      refusal([&] { lint(once, program); }) ==
      "bad schedule: lint: runs_again: step 5: node 0 (norm): is not recomputable and runs again");
}

TEST_CASE("lint: never_runs") {
  CHECK(broken_toy([](Rewriting& p) { p.steps.pop_back(); }) ==
        "bad schedule: lint: never_runs: node 5 (grad): never runs");
}

TEST_CASE("lint: clone_number") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[6].clone = 2; }) ==
        "bad schedule: lint: clone_number: step 6: node 1 (relu): is not clone 2");
}

TEST_CASE("lint: effects") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[5].effects = Effects::perform; }) ==
        "bad schedule: lint: effects: step 5: node 0 (norm): has effects 'perform' and must have "
        "'leave_out'");
  CHECK(broken_toy([](Rewriting& p) { p.steps[0].effects = Effects::perform; }) ==
        "bad schedule: lint: effects: step 0: node 0 (norm): has effects 'perform' and must have "
        "'note_and_perform'");
  CHECK(broken_toy([](Rewriting& p) { p.steps[0].effects = Effects::none; }) ==
        "bad schedule: lint: effects: step 0: node 0 (norm): has effects 'none' and must have "
        "'note_and_perform'");
}

TEST_CASE("lint: effect_order: updates of one value in another order") {
  GraphBuilder b;
  const ValueId p = b.add_value({.id = 0, .name = "p", .persistent = true}),
                a = b.add_value({.id = 1, .bytes = 8_B}), c = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0, .name = "first"}, {}, {a}, {p});
  b.add_node({.id = 1, .name = "second"}, {}, {c}, {p});
  b.add_output(a);
  b.add_output(c);
  const StepGraph graph = std::move(b).build();
  Rewriting program = rewrite(graph, nodes({0, 1}));
  std::swap(program.steps[0], program.steps[1]);
  CHECK(refusal([&] { lint(graph, program); }) ==
        "bad schedule: lint: effect_order: step 0: node 1 (second): value 0 (p): "
        "has been written 0 times by now, and 1 times in the graph's own order");
}

TEST_CASE("lint: effect_order: a recomputation that would read what has been written since") {
  // Valid by the plan format, which counts updates but not persistent outputs; the second `read`
  // would see another p.
  const Rewriting program = rewrite(parameter_step(), nodes({0, 1, 0, 2}));
  CHECK(refusal([&] { lint(parameter_step(), program); }) ==
        "bad schedule: lint: effect_order: step 2: node 0 (read): value 0 (p): "
        "has been written 1 times by now, and 0 times in the graph's own order");
  CHECK(refusal([] {
          lint(parameter_step(), rewrite(parameter_step(), nodes({0, 0, 1, 2})));
        }) == "accepted");
}

TEST_CASE("lint: not_written") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[4].reads[0] = SlotId{7}; }) ==
        "bad schedule: lint: not_written: step 4: node 4 (sum): value 5 (wide): is used in a slot "
        "that nothing has written");
  CHECK(broken_toy([](Rewriting& p) { p.slots.push_back(p.slots[0]); }) ==
        "bad schedule: lint: not_written: value 0 (x): has a slot that nothing writes");
}

TEST_CASE("lint: wrong_value") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].reads[0] = SlotId{1}; }) ==
        "bad schedule: lint: wrong_value: step 8: node 5 (grad): value 0 (x): is used in a slot of "
        "another value");
  CHECK(broken_toy([](Rewriting& p) { p.steps[4].writes[0] = SlotId{10}; }) ==
        "bad schedule: lint: wrong_value: step 4: node 4 (sum): value 6 (loss): is written into a "
        "slot of another value");
}

TEST_CASE("lint: freed_early") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].reads[1] = SlotId{4}; }) ==
        "bad schedule: lint: freed_early: step 8: node 5 (grad): value 4 (h.flat): is used after "
        "its storage was freed");
  CHECK(broken_toy([](Rewriting& p) {
          std::swap(p.steps[7].frees, p.steps[8].frees);
          std::swap(p.steps[7].drops, p.steps[8].drops);
        }) ==
        "bad schedule: lint: freed_early: step 8: node 5 (grad): value 4 (h.flat): is used after "
        "its storage was freed");
  CHECK(broken_toy([](Rewriting& p) {  // the loss, which is handed over
          p.steps[4].frees.push_back(AllocationId{4});
          p.steps[4].drops.push_back(SlotId{6});
        }) ==
        "bad schedule: lint: freed_early: value 6 (loss): is used after its storage was freed");
}

TEST_CASE("lint: overwritten") {
  // relu runs twice in one storage: the second has nothing left to read.
  Rewriting program = rewrite(toy_graph(), own_order(toy_graph()));
  program.steps.insert(program.steps.begin() + 2, program.steps[1]);
  program.steps[2].clone = 1;
  CHECK(refusal([&] { lint(toy_graph(), program); }) ==
        "bad schedule: lint: overwritten: step 2: node 1 (relu): value 2 (h): is used after its "
        "storage was overwritten");
}

TEST_CASE("lint: not_newest") {
  // wide runs twice before sum; sum is made to read the first.
  Rewriting program = rewrite(toy_graph(), nodes({0, 1, 2, 3, 3, 4, 5}));
  program.steps[3].frees = {};
  program.steps[3].drops = {};
  program.steps[5].reads = program.steps[3].writes;
  CHECK(refusal([&] { lint(toy_graph(), program); }) ==
        "bad schedule: lint: not_newest: step 5: node 4 (sum): value 5 (wide): is used in an "
        "instance that is not the newest");
}

TEST_CASE("lint: wrong_target") {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 8_B}), v = b.add_value({.id = 1, .alias_of = a});
  b.add_node({.id = 0, .name = "both"}, {}, {v, a});
  b.add_output(v);
  const StepGraph graph = std::move(b).build();
  Rewriting program = rewrite(graph, nodes({0, 0}));
  CHECK(refusal([&] { lint(graph, program); }) == "accepted");
  program.steps[1].targets[0] = program.steps[0].targets[0];
  CHECK(refusal([&] { lint(graph, program); }) ==
        "bad schedule: lint: wrong_target: step 1: node 0 (both): value 1: has not the target that "
        "this step makes");
}

TEST_CASE("lint: wrong_storage") {
  CHECK(broken_toy([](Rewriting& p) { p.slots[9].allocation = AllocationId{3}; }) ==
        "bad schedule: lint: wrong_storage: value 4 (h.flat): has a slot in another storage");
  CHECK(broken_toy([](Rewriting& p) { p.slots[9].allocation = AllocationId{2}; }) ==
        "bad schedule: lint: wrong_storage: step 7: node 2 (flat): value 4 (h.flat): does not lie "
        "where what it is made of lies");
}

TEST_CASE("lint: apart") {
  // Valid by the plan format: a runs again while v stays where it was; `both` would write the new
  // a, and show v without it.
  const StepGraph graph = written_and_viewed();
  CHECK(refusal([&] { lint(graph, rewrite(graph, nodes({0, 1, 0, 1, 2}))); }) == "accepted");
  CHECK(refusal([&] {
          lint(graph, rewrite(graph, nodes({0, 1, 0, 2})));
        }) ==
        "bad schedule: lint: apart: step 3: node 2 (both): value 3 (u): does not lie where value 2 "
        "(w) is written");
}

TEST_CASE("lint: written_twice") {
  GraphBuilder b;
  const ValueId p = b.add_value({.id = 0, .name = "p", .bytes = 8_B, .persistent = true}),
                v = b.add_value({.id = 1, .name = "v", .alias_of = p});
  b.add_node({.id = 0, .name = "view"}, {p}, {v});
  const StepGraph graph = std::move(b).build();
  Rewriting program = rewrite(graph, nodes({0, 0}));
  CHECK(refusal([&] { lint(graph, program); }) == "accepted");
  program.steps[1].writes = program.steps[0].writes;
  CHECK(refusal([&] { lint(graph, program); }) ==
        "bad schedule: lint: written_twice: step 1: node 0 (view): value 1 (v): is written into a "
        "slot that has been written");
}

TEST_CASE("lint: allocation") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[3].allocates = {}; }) ==
        "bad schedule: lint: allocation: step 3: node 3 (wide): value 5 (wide): owns bytes that "
        "this step does not allocate for it");
  CHECK(
      broken_toy([](Rewriting& p) { p.steps[3].allocates.push_back(AllocationId{5}); }) ==
      "bad schedule: lint: allocation: step 3: node 3 (wide): allocates what no output of it owns");
  CHECK(broken_toy([](Rewriting& p) { p.steps[3].allocates.push_back(AllocationId{3}); }) ==
        "bad schedule: lint: allocation: step 3: node 3 (wide): allocates what has been allocated");
  CHECK(broken_toy([](Rewriting& p) { p.allocations[3].bytes = 1_B; }) ==
        "bad schedule: lint: allocation: value 5 (wide): has an allocation that is not like its "
        "storage");
  CHECK(broken_toy([](Rewriting& p) { p.allocations.push_back(p.allocations[3]); }) ==
        "bad schedule: lint: allocation: value 5 (wide): has an allocation that nothing makes");
  CHECK(broken_toy([](Rewriting& p) { p.allocations.push_back(p.allocations[0]); }) ==
        "bad schedule: lint: allocation: value 0 (x): is there at the start twice");
}

TEST_CASE("lint: freed_twice") {
  CHECK(broken_toy([](Rewriting& p) { p.steps[3].frees.push_back(AllocationId{2}); }) ==
        "bad schedule: lint: freed_twice: step 3: node 3 (wide): value 2 (h): is freed, and is not "
        "there or persistent");
  CHECK(broken_toy([](Rewriting& p) { p.steps[8].frees.push_back(AllocationId{0}); }) ==
        "bad schedule: lint: freed_twice: step 8: node 5 (grad): value 0 (x): is freed, and is not "
        "there or persistent");
}

TEST_CASE("lint: freed_late") {
  CHECK(broken_toy([](Rewriting& p) {
          std::swap(p.steps[2].frees, p.steps[3].frees);
          std::swap(p.steps[2].drops, p.steps[3].drops);
        }) ==
        "bad schedule: lint: freed_late: step 3: node 3 (wide): value 2 (h): is freed later than "
        "after its last use");
}

TEST_CASE("lint: drops") {
  CHECK(
      broken_toy([](Rewriting& p) { p.steps[2].drops.pop_back(); }) ==
      "bad schedule: lint: drops: step 2: node 2 (flat): does not drop all slots of what it frees");
  CHECK(broken_toy([](Rewriting& p) { p.steps[2].drops[0] = SlotId{0}; }) ==
        "bad schedule: lint: drops: step 2: node 2 (flat): value 0 (x): is dropped, and is not in "
        "what is freed");
  CHECK(broken_toy([](Rewriting& p) { p.steps[2].drops[0] = p.steps[2].drops[1]; }) ==
        "bad schedule: lint: drops: step 2: node 2 (flat): value 3 (h.relu): is dropped, and is "
        "not in what is freed");
}

TEST_CASE("lint: leak") {
  CHECK(broken_toy([](Rewriting& p) {
          p.steps[4].frees = {};
          p.steps[4].drops = {};
        }) ==
        "bad schedule: lint: leak: value 5 (wide): is still there at the end, and not handed over");
}

TEST_CASE("lint: peak") {
  CHECK(broken_toy([](Rewriting& p) { p.peak = 20547_B; }) ==
        "bad schedule: lint: peak: the program's peak is 20548 bytes, the schedule's 20547 bytes");
}

namespace {

// Another index than before, most often one that names something.
template <class Tag>
void change(Rng& rng, Id<Tag>& id, std::size_t count) {
  const Id<Tag> before = id;
  while (id == before) id = rng.chance(0.02) ? Id<Tag>{} : Id<Tag>{rng.below(count + 1)};
}

// Changes, removes or adds one entry.
template <class Tag>
void change(Rng& rng, std::vector<Id<Tag>>& list, std::size_t count) {
  const std::size_t at = rng.below(list.size() + 1);
  if (at == list.size()) list.push_back(Id<Tag>{rng.below(count + 1)});
  else if (rng.chance(0.3)) list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
  else change(rng, list[at], count);
}

void change(Rng& rng, Effects& effects) {
  effects = static_cast<Effects>((static_cast<std::size_t>(effects) + 1 + rng.below(3)) % 4);
}

// One change anywhere. Says where, for the message.
std::string change(Rng& rng, const StepGraph& graph, Rewriting& program) {
  const std::size_t s = rng.below(program.steps.size()), slots = program.slots.size(),
                    allocations = program.allocations.size();
  ProgramStep& step = program.steps[s];
  Slot& slot = program.slots[rng.below(slots)];
  Allocation& allocation = program.allocations[rng.below(allocations)];
  const std::string at = " of step " + std::to_string(s);
  switch (rng.below(18)) {
    case 0: return change(rng, step.reads, slots), "reads" + at;
    case 1: return change(rng, step.writes, slots), "writes" + at;
    case 2: return change(rng, step.targets, slots), "targets" + at;
    case 3: return change(rng, step.allocates, allocations), "allocates" + at;
    case 4: return change(rng, step.frees, allocations), "frees" + at;
    case 5: return change(rng, step.drops, slots), "drops" + at;
    case 6: return change(rng, step.node, graph.node_count()), "node" + at;
    case 7: return change(rng, step.effects), "effects" + at;
    case 8: return step.clone ^= 1, "clone" + at;
    case 9: return change(rng, slot.value, graph.value_count()), "a slot's value";
    case 10: return change(rng, slot.allocation, allocations), "a slot's allocation";
    case 11:
      return change(rng, allocation.storage, graph.storage_count()), "an allocation's storage";
    case 12: return allocation.bytes += Bytes{1}, "an allocation's bytes";
    case 13: return allocation.persistent = !allocation.persistent, "an allocation's persistence";
    case 14: return allocation.at_start = !allocation.at_start, "an allocation's start";
    case 15: return change(rng, program.at_start, slots), "at_start";
    case 16: return change(rng, program.outputs, slots), "outputs";
    default: return program.peak += Bytes{rng.chance(0.5) ? 1 : -1}, "peak";
  }
}

}  // namespace

TEST_CASE("any one change to a program is refused") {
  // A schedule has one rewriting, up to numbering: so whatever one change does, it is wrong.
  const std::uint64_t seed = 20240607;
  Rng rng{seed};
  std::size_t tried = 0;
  for (int g = 0; g < 400; ++g) {
    const StepGraph graph = reprise::testing::random_graph(rng, {.nodes = 4 + rng.below(10)});
    if (!simulate(graph, own_order(graph)).valid) continue;
    const Rewriting program = rewrite(graph, reprise::testing::random_schedule(rng, graph));
    if (refusal([&] { lint(graph, program); }) != "accepted") continue;
    for (int k = 0; k < 25; ++k) {
      Rewriting broken = program;
      const std::string where = change(rng, graph, broken);
      INFO("seed " << seed << ", graph " << g << ", change " << k << ": " << where);
      CHECK(refusal([&] { lint(graph, broken); }) != "accepted");
      ++tried;
    }
  }
  CHECK(tried > 5000);
}
