#include <reprise/rewrite/backends/ir_backend.hpp>

#include <chrono>

#include <reprise/plan/planner.hpp>
#include <reprise/rewrite/rewriter.hpp>
#include <reprise_test/random_schedules.hpp>
#include <reprise_test/toy.hpp>

using reprise::testing::Rng;

namespace {

IrResult run(const StepGraph& graph, const Schedule& schedule) {
  return Rewriter<IrBackend>{}.rewrite(graph, schedule).run();
}

// Not checked: what a program does that went wrong.
IrResult run_broken(const StepGraph& graph, const Rewriting& program) {
  return IrBackend{}.compile(graph, program).run();
}

// dropout(x) -> y, mask updates the generator g; twice, as two layers do; then backward reads the
// first mask.
StepGraph dropout_step() {
  GraphBuilder b;
  const ValueId x = b.add_value({.id = 0, .bytes = 8_B, .persistent = true}),
                g = b.add_value({.id = 1, .persistent = true}),
                y = b.add_value({.id = 2, .bytes = 8_B}),
                mask = b.add_value({.id = 3, .bytes = 8_B}),
                z = b.add_value({.id = 4, .bytes = 8_B}),
                grad = b.add_value({.id = 5, .bytes = 8_B});
  b.add_node({.id = 0, .op = "dropout"}, {x}, {y, mask}, {g});
  b.add_node({.id = 1, .op = "dropout"}, {y}, {z}, {g});
  b.add_node({.id = 2, .op = "backward"}, {z, mask}, {grad});
  b.add_output(grad);
  return std::move(b).build();
}

// a; v = view(a); w overwrites v; read(w), and a again for last.
StepGraph view_step() {
  GraphBuilder b;
  const ValueId a = b.add_value({.id = 0, .bytes = 8_B}), v = b.add_value({.id = 1, .alias_of = a}),
                r = b.add_value({.id = 2, .bytes = 8_B}),
                w = b.add_value({.id = 3, .overwrites = v}),
                s = b.add_value({.id = 4, .bytes = 8_B});
  b.add_node({.id = 0, .op = "make"}, {}, {a});
  b.add_node({.id = 1, .op = "view"}, {a}, {v});
  b.add_node({.id = 2, .op = "read"}, {v}, {r});
  b.add_node({.id = 3, .op = "write_"}, {v}, {w});
  b.add_node({.id = 4, .op = "sum"}, {w, r}, {s});
  b.add_output(s);
  b.add_output(r);
  return std::move(b).build();
}

}  // namespace

TEST_CASE("a recomputed toy does the same as the toy") {
  const IrResult own = run(toy_graph(), own_order(toy_graph()));
  CHECK(own.outputs.size() == 2);
  CHECK(own.persistent.size() == 2);
  CHECK_FALSE(own.diverged.valid());
  CHECK(run(toy_graph(), toy_schedule()) == own);
}

TEST_CASE("other contents at the start give other results") {
  const IrProgram program = Rewriter<IrBackend>{}.rewrite(toy_graph(), toy_schedule());
  CHECK(program.run(1) == program.run(1));
  CHECK(program.run(1).outputs != program.run(2).outputs);
  CHECK(program.run(1).persistent != program.run(2).persistent);
}

TEST_CASE("a program needs neither the graph nor the rewriting that it was made from") {
  const auto program = [] {
    const StepGraph graph = toy_graph();
    return Rewriter<IrBackend>{}.rewrite(graph, toy_schedule());
  }();
  CHECK(program.run() == run(toy_graph(), toy_schedule()));
}

TEST_CASE("statistics that move twice are seen in what is left of them") {
  Rewriting broken = rewrite(toy_graph(), toy_schedule());
  broken.steps[5].effects = Effects::perform;
  const IrResult own = run(toy_graph(), own_order(toy_graph())),
                 twice = run_broken(toy_graph(), broken);
  CHECK(twice.persistent[0] == own.persistent[0]);
  CHECK(twice.persistent[1] != own.persistent[1]);
}

TEST_CASE("a mask is drawn again from the generator's state of the first time") {
  const StepGraph graph = dropout_step();
  const IrResult own = run(graph, nodes({0, 1, 2}));
  CHECK(run(graph, nodes({0, 1, 0, 2})) == own);
  Rewriting broken = rewrite(graph, nodes({0, 1, 0, 2}));
  broken.steps[0].effects = Effects::perform;  // nothing was noted
  const IrResult other = run_broken(graph, broken);
  CHECK(other.outputs != own.outputs);
  CHECK(other.persistent == own.persistent);
  CHECK(other.diverged == NodeId{0});
}

TEST_CASE("a write through a view is seen by whoever looks at those bytes") {
  const StepGraph graph = view_step();
  const IrResult own = run(graph, own_order(graph));
  // read again, after the write, from a base of its own
  CHECK(run(graph, nodes({0, 1, 2, 3, 0, 1, 2, 4})) == own);
  Rewriting broken = rewrite(graph, own_order(graph));
  broken.steps[2].reads = broken.steps[3].writes;
  // read after the write, in the same bytes
  std::swap(broken.steps[2], broken.steps[3]);
  CHECK(run_broken(graph, broken).outputs != own.outputs);
}

TEST_CASE("an in-place write that runs twice in the same bytes is seen") {
  const StepGraph graph = view_step();
  Rewriting broken = rewrite(graph, own_order(graph));
  broken.steps.insert(broken.steps.begin() + 4, broken.steps[3]);
  CHECK(run_broken(graph, broken).outputs != run(graph, own_order(graph)).outputs);
}

TEST_CASE("freed bytes are garbage") {
  Rewriting broken = rewrite(toy_graph(), toy_schedule());
  broken.steps[8].reads[1] = broken.steps[2].writes[0];  // the first h.flat
  const IrResult own = run(toy_graph(), own_order(toy_graph())),
                 other = run_broken(toy_graph(), broken);
  CHECK(other.outputs[0] == own.outputs[0]);
  CHECK(other.outputs[1] != own.outputs[1]);
}

TEST_CASE("what lint refuses beyond the plan format would give something else") {
  GraphBuilder b;
  const ValueId p = b.add_value({.id = 0, .bytes = 8_B, .persistent = true}),
                a = b.add_value({.id = 1, .bytes = 8_B}), v = b.add_value({.id = 2, .alias_of = a}),
                w = b.add_value({.id = 3, .overwrites = a}),
                u = b.add_value({.id = 4, .alias_of = v}), c = b.add_value({.id = 5, .bytes = 8_B}),
                d = b.add_value({.id = 6, .bytes = 8_B});
  b.add_node({.id = 0, .op = "make"}, {p}, {a});
  b.add_node({.id = 1, .op = "view"}, {a}, {v});
  b.add_node({.id = 2, .op = "write_and_view"}, {a, v}, {w, u});
  b.add_node({.id = 3, .op = "read"}, {p}, {c});
  b.add_node({.id = 4, .op = "step", .recomputable = false}, {c}, {p});
  b.add_node({.id = 5, .op = "last"}, {c}, {d});
  b.add_output(u);
  b.add_output(d);
  const StepGraph graph = std::move(b).build();
  const IrResult own = run(graph, own_order(graph));
  const auto valid_by_the_format = [&](const Schedule& schedule) {
    return run_broken(graph, rewrite(graph, schedule));
  };
  CHECK(valid_by_the_format(nodes({0, 1, 0, 1, 2, 3, 3, 4, 5})) == own);
  CHECK(valid_by_the_format(nodes({0, 1, 0, 2, 3, 4, 5})).outputs[0] != own.outputs[0]);  // apart
  // effect_order
  CHECK(valid_by_the_format(nodes({0, 1, 2, 3, 4, 3, 5})).outputs[1] != own.outputs[1]);
}

TEST_CASE("two nodes of the same op on the same input are two functions") {
  GraphBuilder b;
  const ValueId x = b.add_value({.id = 0, .persistent = true}),
                a = b.add_value({.id = 1, .bytes = 8_B}), c = b.add_value({.id = 2, .bytes = 8_B});
  b.add_node({.id = 0, .op = "op"}, {x}, {a});
  b.add_node({.id = 1, .op = "op"}, {x}, {c});
  b.add_output(a);
  b.add_output(c);
  const IrResult result = run(std::move(b).build(), nodes({0, 1}));
  CHECK(result.outputs[0] != result.outputs[1]);
}

TEST_CASE("planned schedules of whole steps do the same as the steps") {
  for (const StepGraph& graph : {reprise::testing::resnet_step({.blocks = 8}),
                                 reprise::testing::transformer_step({.layers = 3})}) {
    const Simulation own = simulate(graph, own_order(graph));
    const Bytes floor = floor_bytes(graph), budget{floor.count + (own.peak - floor).count / 2};
    const Plan plan = Planner{}.plan(graph, {.budget = budget});
    REQUIRE(plan.within_budget());
    REQUIRE(recomputations(graph, plan.schedule) > 0);
    CHECK(Rewriter<IrBackend>{}.rewrite(graph, plan).run() == run(graph, own_order(graph)));
  }
}

namespace {

// What the recomputations of the random cases have met, in cases.
struct Coverage {
  std::size_t cases = 0, other_version = 0, apart = 0, recomputes = 0;
  std::size_t in_place = 0, view = 0, update = 0, multi_output = 0, twice = 0, reordered = 0;

  void count(const StepGraph& graph, const Schedule& schedule) {
    bool has_in_place = false, has_view = false, has_update = false, has_multi_output = false,
         has_twice = false;
    const std::vector<std::uint32_t> runs = run_counts(graph, schedule);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (runs[i] < 2) continue;
      for (ValueId v : graph.outputs(NodeId{i})) {
        has_in_place = has_in_place || graph.value(v).overwrites.valid();
        has_view = has_view || graph.value(v).alias_of.valid();
      }
      has_update = has_update || !graph.updates(NodeId{i}).empty();
      has_multi_output = has_multi_output || graph.outputs(NodeId{i}).size() > 1;
      has_twice = has_twice || runs[i] > 2;
    }
    ++cases;
    recomputes += recomputations(graph, schedule) > 0;
    in_place += has_in_place;
    view += has_view;
    update += has_update;
    multi_output += has_multi_output;
    twice += has_twice;
    reordered += !keeps_order(graph, schedule);
  }
};

std::ostream& operator<<(std::ostream& out, const Coverage& c) {
  return out << c.cases << " cases, " << c.recomputes << " recompute: in place " << c.in_place
             << ", views " << c.view << ", updates " << c.update << ", several outputs "
             << c.multi_output << ", a node twice or more " << c.twice << "; reordered "
             << c.reordered << "; refused: " << c.other_version
             << " read another version of something persistent, " << c.apart << " write apart";
}

void try_random_schedules(std::uint64_t seed, std::size_t graphs, Coverage& coverage) {
  Rng rng{seed};
  for (std::size_t g = 0; g < graphs; ++g) {
    const StepGraph graph =
        reprise::testing::random_graph(rng, {.nodes = 4 + rng.below(16), .updates = 0.3});
    if (!simulate(graph, own_order(graph)).valid) continue;
    const IrResult own = run(graph, own_order(graph));
    for (std::size_t k = 0; k < 4; ++k) {
      const Schedule schedule =
          reprise::testing::random_schedule(rng, graph, {.insertions = 1 + rng.below(6)});
      INFO("seed " << seed << ", graph " << g << ", schedule " << k);
      const Rewriting program = rewrite(graph, schedule);
      const std::string refused = refusal([&] { lint(graph, program); });
      if (refused != "accepted") {  // for what the format lets through; see lint.hpp
        const bool apart = refused.starts_with("bad schedule: lint: apart: ");
        CHECK((apart || refused.starts_with("bad schedule: lint: effect_order: ")));
        apart ? ++coverage.apart : ++coverage.other_version;
        continue;
      }
      CHECK(IrBackend{}.compile(graph, program).run() == own);
      coverage.count(graph, schedule);
    }
  }
}

}  // namespace

TEST_CASE("whatever valid schedule, every output and everything persistent is the same") {
  const std::uint64_t seed = 20240607;
  Coverage c;
  const auto begin = std::chrono::steady_clock::now();
  try_random_schedules(seed, 1500, c);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  INFO("seed " << seed << ": " << c << "; " << ms / static_cast<double>(c.cases) << " ms a case");
  CHECK(c.cases >= 4000);
  CHECK(2 * c.recomputes >= c.cases);
  for (std::size_t met : {c.in_place, c.view, c.update, c.multi_output, c.twice, c.reordered})
    CHECK(20 * met >= c.cases);
  CHECK(5 * (c.other_version + c.apart) <= c.cases + c.other_version + c.apart);
  WARN("seed " << seed << ": " << c);
}
